"""Presets that need more than a group's rewards, through the command line: resumed runs, and what they log."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentrl.records.run import RunDirectory
from tests.e2e.conftest import Run, settings
from tests.e2e.test_train import metrics, weights

LOGGED = {
    "ppo": {"value_loss", "explained_variance", "kl_coefficient", "kl_per_rollout"},
    "dapo": {"groups_trained", "part/overlong/value"},
    "reinforce_pp": {"kl_coefficient", "kl_per_rollout"},
    "cispo": {"clip_low", "clip_high"},
}
OPTIONS = {
    "ppo": ("algorithm.kl_coefficient=0.01", "model.lora.rank=4", "train.gradient_checkpointing=true"),
    "dapo": ("algorithm.entropy_coefficient=0.01",),
    "reinforce_pp": ("algorithm.kl_coefficient=0.01",),
}


@pytest.mark.parametrize("preset", ["ppo", "dapo"])
def test_a_run_that_stops_and_goes_on_is_the_whole_run(preset: str, tmp_path: Path, agentrl: Run) -> None:
    """Critic, coefficient of KL, adapters and the cursor after several batches for one step are where they were."""
    base = ("train", "--env", "code_exec", "--algo", preset)
    options = ("train.minibatches=2", "train.schedule=constant", *OPTIONS.get(preset, ()))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for run, steps in ((whole, 3), (parts, 2)):
        done = agentrl(*base, "--output", str(run), *settings(f"train.steps={steps}", *options))
        assert done.returncode == 0, done.stderr
    done = agentrl("train", "--resume", "--output", str(parts), "--set", "train.steps=3")
    assert done.returncode == 0, done.stderr
    assert metrics(parts) == metrics(whole)
    a, b = weights(parts, 3), weights(whole, 3)
    assert all(torch.equal(a[name], b[name]) for name in b)
    assert LOGGED[preset] <= set(metrics(whole)[-1])


@pytest.mark.parametrize("preset", ["reinforce_pp", "cispo"])
def test_a_preset_runs_and_logs_what_it_decides(preset: str, tmp_path: Path, agentrl: Run) -> None:
    options = settings("train.steps=1", *OPTIONS.get(preset, ()))
    done = agentrl("train", "--env", "code_exec", "--algo", preset, "--output", str(tmp_path / "run"), *options)
    assert done.returncode == 0, done.stderr
    assert LOGGED[preset] <= set(metrics(tmp_path / "run")[-1])


def test_dynamic_sampling_draws_on_until_groups_differ(tmp_path: Path, agentrl: Run) -> None:
    run = tmp_path / "run"
    options = settings("train.steps=2", "train.group_size=2", "algorithm.dynamic_sampling=4")
    done = agentrl("train", "--env", "code_exec", "--algo", "dapo", "--output", str(run), *options)
    assert done.returncode == 0, done.stderr
    rows = metrics(run)
    assert any(row["groups"] > 4 for row in rows), "groups of two are often equal"
    for row in rows:
        assert row["groups"] % 4 == 0
        assert row["groups"] <= 16
        members = list(RunDirectory.open(run).read_rollouts(f"step_{row['step']:06d}"))
        assert len(members) == 2 * row["groups"]
        pairs = zip(members[::2], members[1::2], strict=True)
        differing = sum(a.reward.success != b.reward.success for a, b in pairs)
        assert row["groups_trained"] == min(differing, 4)
        assert row["groups_trained"] == 4 or row["groups"] == 16
        assert row["zero_variance_groups"] == row["groups"] - differing
