"""The command line as a user has it: another process, an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

SMALL = (
    "train.steps=2",
    "train.tasks_per_step=4",
    "train.group_size=4",
    "train.save_every=1",
    "train.validate_every=0",
    "eval.samples=2",
    "eval.k=[1,2]",
    "eval.limit=4",
    "sandbox.workers=2",
)
"""Settings of a run that takes seconds."""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "agentrl", *arguments]


def settings(*more: str) -> list[str]:
    return [word for text in (*SMALL, *more) for word in ("--set", text)]


@pytest.fixture
def agentrl(tmp_path: Path) -> Run:
    """Runs `agentrl ...` in an empty folder; `env=` adds environment variables."""

    def run(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command(*arguments),
            cwd=tmp_path,
            env={**os.environ, **(env or {})},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return run
