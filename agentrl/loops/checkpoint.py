"""Checkpoints: an ordinary policy folder beside a registry of named state holders.

A holder is anything with `state()` and `load_state(state)`; adding one to the registry is all it takes to be resumed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from agentrl.api import DataError
from agentrl.learning.adapters import load_trained
from agentrl.learning.models import Policy, save_policy
from agentrl.records.run import RunDirectory, write_json

SCHEMA = 1


class StateHolder(Protocol):
    """Something that a resumed run must find as it was."""

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: dict[str, Any]) -> None: ...


Registry = Mapping[str, StateHolder]


def save_checkpoint(run: RunDirectory, step: int, policy: Policy, registry: Registry, config_hash: str) -> Path:
    """Write `checkpoints/step_N` under a temporary name and rename it when all of it is there."""
    target = run.checkpoint(step)
    if target.exists():
        return target
    draft = run.checkpoints / f".writing_step_{step}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    save_policy(policy, draft / "policy")
    torch.save({name: holder.state() for name, holder in registry.items()}, draft / "state.pt")
    write_json(draft / "checkpoint.json", {"schema": SCHEMA, "step": step, "config_hash": config_hash})
    for file in draft.rglob("*"):
        if file.is_file():
            with file.open("rb") as handle:
                os.fsync(handle.fileno())
    draft.rename(target)
    return target


def load_checkpoint(run: RunDirectory, step: int, registry: Registry) -> None:
    """Put all holders, the learner with its policy among them, back to where they were after `step`."""
    folder = run.checkpoint(step)
    about = json.loads((folder / "checkpoint.json").read_text(encoding="utf-8"))
    if about["schema"] > SCHEMA:
        raise DataError(f"{folder}: written with schema {about['schema']}; this version reads up to {SCHEMA}")
    states = _read_states(folder)
    missing = sorted(set(registry) - set(states))
    if missing:
        raise DataError(f"{folder}: holds no state of '{missing[0]}'; it was written by another version")
    for name, holder in registry.items():
        holder.load_state(states[name])


def load_weights(run: RunDirectory, step: int, policy: Policy) -> None:
    """Put the policy alone back to where it was after `step`, in place."""
    load_trained(policy.model, _read_states(run.checkpoint(step))["learner"]["model"])


def _read_states(folder: Path) -> dict[str, Any]:
    return dict(torch.load(folder / "state.pt", weights_only=True, map_location="cpu", mmap=True))


def prune_checkpoints(run: RunDirectory, keep: int, best: int | None) -> None:
    """Remove all but the newest `keep` checkpoints and the best one."""
    steps = run.checkpoint_steps()
    for step in steps[:-keep]:
        if step != best:
            run.remove_checkpoint(step)
