"""Processes that train together: the gradient is that of one process with all of the rollouts."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as distributed

from agentrl.api import Group
from agentrl.config import TrainConfig
from agentrl.learning.algorithms import PRESETS
from agentrl.learning.batch import build_batch
from agentrl.learning.learner import Learner, LearnerSettings
from agentrl.learning.models import Policy
from agentrl.learning.world import World
from tests.support import make_policy
from tests.unit.learning.test_batch import group, member
from tests.unit.learning.test_learner import sampled_segment

STEPS = 3
SHARES = {"uneven": ([0], [1, 2]), "one has nothing": ([], [0, 1, 2])}
"""Which groups each of two ranks trains on."""


def groups(policy: Policy) -> list[Group]:
    rewards = [[1.0, 0.0, 0.5, 0.0], [0.0, 0.0, 1.0, 1.0], [0.0, 1.0]]
    return [
        group(*(member(i, r, sampled_segment(policy, 10 * g + i, 8 + 5 * i + 3 * g)) for i, r in enumerate(row)))
        for g, row in enumerate(rewards)
    ]


def train(preset: str, chosen: list[int], world: World) -> dict[str, Any]:
    """Three steps on the chosen groups; the first summed gradient, all metrics, the parameters at the end."""
    policy = make_policy()
    every = groups(policy)
    learner = Learner(
        policy.model,
        LearnerSettings(
            algorithm=PRESETS[preset],
            train=TrainConfig(learning_rate=1e-3, max_grad_norm=0.5, epochs=2),
            importance_cap=2.0,
            temperature=1.0,
            max_tokens=50,
            seed=0,
            autocast=None,
        ),
        world,
    )
    first: list[torch.Tensor] = []
    plain = learner.optimizer.step

    def step(*arguments: Any, **keywords: Any) -> Any:
        if not first:
            first.extend(p.grad.clone() for p in policy.model.parameters() if p.grad is not None)
        return plain(*arguments, **keywords)

    learner.optimizer.step = step  # type: ignore[method-assign]
    metrics = []
    for number in range(STEPS):
        batch, _ = build_batch([every[i] for i in chosen], PRESETS[preset])
        metrics.append(learner.step(learner.prepare(batch), number))
    return {"gradient": first, "parameters": [p.detach() for p in policy.model.parameters()], "metrics": metrics}


def work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=120)
    where = f"file://{folder}/rendezvous"
    distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=2, timeout=limit)
    found = {
        (preset, name): train(preset, shares[rank], World.current())
        for preset in PRESETS
        for name, shares in SHARES.items()
    }
    torch.save(found, f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[tuple[str, str], dict[str, Any]]]:
    """What each of two ranks ended with, for every preset and share."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    # Not by torch.multiprocessing: it leaves a process beside this one, which other tests would find.
    script = "import sys; from tests.unit.learning.test_world import work; work(int(sys.argv[1]), sys.argv[2])"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ranks = [
        subprocess.Popen([sys.executable, "-c", script, str(rank), str(folder)], env=environment) for rank in range(2)
    ]
    assert [rank.wait(timeout=300) for rank in ranks] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("preset", PRESETS)
def test_two_processes_train_as_one(
    preset: str, share: str, found: list[dict[tuple[str, str], dict[str, Any]]]
) -> None:
    one = train(preset, [0, 1, 2], World())
    first, second = (rank[preset, share] for rank in found)
    for mine, other in zip(first["parameters"], second["parameters"], strict=True):
        assert torch.equal(mine, other), "ranks drift apart"
    whole, parts = (torch.cat([g.flatten() for g in run["gradient"]]) for run in (one, first))
    assert float((whole - parts).norm() / whole.norm()) < 1e-5
    assert float(whole.norm()) > 1e-6
    moved = torch.cat([p.flatten() for p in one["parameters"]]) - torch.cat([p.flatten() for p in first["parameters"]])
    assert float((moved.abs() < 1e-2 * 1e-3 * STEPS).float().mean()) > 0.999, "AdamW makes signs of noise"
    assert first["metrics"] == second["metrics"]
    for name, value in one["metrics"][0].items():
        tokens = 0.02 if "clip" in name else 1e-5  # rounding moves a token over a bound now and then
        assert first["metrics"][0][name] == pytest.approx(value, rel=1e-3, abs=tokens), name
