"""A real instruct model through the whole line: a few training steps on the CPU, rollouts recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentrl.records.run import RunDirectory
from tests.real.fetch_smollm2 import DEFAULT

MODEL = Path(os.environ.get("AGENTRL_SMOLLM2", DEFAULT))


SMALL = (
    "train.tasks_per_step=1",
    "train.group_size=4",
    "engine.max_new_tokens=48",
    "eval.samples=1",
    "eval.k=[1]",
    "eval.limit=2",
    "train.tokens_per_microbatch=1024",
)
RUNS = {
    "code_exec": (2, ("env.options.max_turns=2", "algorithm.kl_coefficient=0.02")),
    "reasoning_gym": (5, ("env.options.dataset=chain_sum",)),
}


@pytest.mark.slow
@pytest.mark.skipif(not (MODEL / "config.json").exists(), reason="needs `python tests/real/fetch_smollm2.py` (93 MB)")
@pytest.mark.parametrize("env", sorted(RUNS))
def test_some_steps_with_smollm2(env: str, tmp_path: Path) -> None:
    steps, options = RUNS[env]
    run = tmp_path / "run"
    sets = [word for text in (f"train.steps={steps}", *SMALL, *options) for word in ("--set", text)]
    command = [
        sys.executable,
        "-m",
        "agentrl",
        "train",
        "--env",
        env,
        "--model",
        str(MODEL),
        "--output",
        str(run),
        *sets,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == list(range(1, steps + 1))
    assert all(row.get("logprob_gap_max", 0) < 1e-4 for row in rows)
    members = list(RunDirectory.open(run).read_rollouts(f"step_{steps:06d}"))
    assert len(members) == 4
    assert all(m.rollout.sampled_tokens > 0 and m.rollout.turns[0].action.content for m in members)
