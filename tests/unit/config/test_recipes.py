"""Every recipe in configs/ resolves: its keys exist, its plugins load, its values go together."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentrl.config import read_yaml
from agentrl.loops.resolve import resolve

RECIPES = sorted((Path(__file__).parents[3] / "configs").glob("*.yaml"))  # not accelerate/, not deepspeed/


@pytest.mark.parametrize("file", RECIPES, ids=lambda file: file.stem)
def test_recipe_resolves(file: Path) -> None:
    layer = read_yaml(file)
    assert layer.settings, "a recipe that sets nothing"
    resolved = resolve([layer])
    assert resolved.layers[-1] == layer
    assert resolved.verifiers
