"""`agentrl eval`: evaluation without training."""

from __future__ import annotations

from typing import Any

import torch

from agentrl.api.background import run_loop
from agentrl.learning.models import load_policy
from agentrl.loops.display import Display
from agentrl.loops.evaluate import evaluate_split, make_sampling
from agentrl.loops.resolve import Resolved, model_folder
from agentrl.loops.train import about
from agentrl.loops.wiring import wire
from agentrl.records.run import RunDirectory


def evaluate_model(resolved: Resolved, split: str, output: str | None, *, quiet: bool = False) -> dict[str, Any]:
    """Evaluate a policy on a split; with `output` the rollouts and the result are kept there."""
    return run_loop(_evaluate(resolved, split, output, Display(quiet)))


async def _evaluate(resolved: Resolved, split: str, output: str | None, display: Display) -> dict[str, Any]:
    async with wire(resolved) as wired:
        wired.tasks(split, 1)
        if resolved.config.threads is not None:
            torch.set_num_threads(resolved.config.threads)
        policy = load_policy(resolved.config.model, model_folder(resolved.config.model))
        run = RunDirectory.create(output) if output is not None else None
        sampling = make_sampling(resolved.config, policy)
        result, groups = await evaluate_split(sampling, wired, split, label=split, display=display)
        if run is not None:
            run.write_config(resolved.config.model_dump(mode="json"), about())
            run.write_rollouts(split, [m for g in groups for m in g.members])
            run.write_evaluation(split, result)
        return result
