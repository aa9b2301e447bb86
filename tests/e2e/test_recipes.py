"""The recipes that make a policy from nothing, as they are committed but for a few steps: rollouts hold tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.config import read_yaml
from agentrl.records.run import RunDirectory
from tests.e2e.conftest import Run, settings

CONFIGS = Path(__file__).parents[2] / "configs"
RECIPES = [file for file in sorted(CONFIGS.glob("*.yaml")) if "scratch" in read_yaml(file).settings.get("sft", {})]
FEW = ("sft.steps=10", "train.steps=1", "env.options.demonstration_count=300")


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_the_policy_that_a_recipe_makes_writes_and_is_judged(file: Path, tmp_path: Path, agentrl: Run) -> None:
    made = agentrl("sft", "--config", str(file), "--output", "made", *settings(*FEW))
    assert made.returncode == 0, made.stderr
    assert "left out" not in made.stdout + made.stderr
    base = ("train", "--config", str(file), "--model", "made/policy", "--output", "run")
    done = agentrl(*base, *settings(*FEW))
    assert done.returncode == 0, done.stderr
    (row,) = RunDirectory.open(tmp_path / "run").read_metrics()
    assert row["length"] > 0
    assert row["excluded"] < row["rollouts"]


def test_prompts_that_fill_the_context_are_refused_and_the_keys_are_named(tmp_path: Path, agentrl: Run) -> None:
    base = ("sft", "--config", str(CONFIGS / "tool_use.yaml"), "--output", "made")
    done = agentrl(*base, *settings(*FEW, "chat.show_tools=true"))
    assert done.returncode == 2
    assert "longer than the model's context of 256 tokens" in done.stderr
    assert "chat.show_tools=false" in done.stderr
    assert not (tmp_path / "made").exists()
