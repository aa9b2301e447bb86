"""`import agentrl` and `agentrl --help` load no torch: they must answer at once."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "accelerate", "datasets", "peft", "safetensors", "tokenizers", "scipy", "docker"}


def loaded_by(*arguments: str) -> tuple[set[str], str]:
    """Top-level modules that `python ARGUMENTS` loads, and what it printed."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    names = re.findall(r"^import time:.*\|\s*([\w.]+)$", done.stderr, flags=re.MULTILINE)
    return {name.split(".")[0] for name in names}, done.stdout


@pytest.mark.parametrize("module", ["agentrl", "agentrl.api", "agentrl.config", "agentrl.plugins", "agentrl.cli"])
def test_import_loads_nothing_heavy(module: str) -> None:
    loaded, _ = loaded_by("-c", f"import {module}")
    assert "agentrl" in loaded
    assert not loaded & HEAVY


def test_help_loads_nothing_heavy() -> None:
    loaded, printed = loaded_by("-m", "agentrl", "--help")
    assert {"agentrl", "typer"} <= loaded
    assert not loaded & HEAVY
    for command in ("train", "eval", "verify", "doctor"):
        assert command in printed


def test_the_measurement_sees_a_heavy_import() -> None:
    loaded, _ = loaded_by("-c", "import safetensors")
    assert "safetensors" in loaded & HEAVY
