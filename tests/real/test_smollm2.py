"""A real instruct model through the whole line: two training steps on the CPU, rollouts recorded."""

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


@pytest.mark.slow
@pytest.mark.skipif(not (MODEL / "config.json").exists(), reason="needs `python tests/real/fetch_smollm2.py` (93 MB)")
def test_two_steps_with_smollm2(tmp_path: Path) -> None:
    more = (
        "train.steps=2",
        "train.tasks_per_step=1",
        "train.group_size=4",
        "engine.max_new_tokens=48",
        "eval.samples=1",
        "eval.k=[1]",
        "eval.limit=2",
        "env.options.max_turns=2",
        "train.tokens_per_microbatch=1024",
        "algorithm.kl_coefficient=0.02",
    )
    run = tmp_path / "run"
    words = ["--output", str(run), *(word for text in more for word in ("--set", text))]
    command = [sys.executable, "-m", "agentrl", "train", "--env", "code_exec", "--model", str(MODEL)]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2]
    assert all(row.get("logprob_gap_max", 0) < 1e-4 for row in rows)
    members = list(RunDirectory.open(run).read_rollouts("step_000002"))
    assert len(members) == 4
    assert all(m.rollout.sampled_tokens > 0 and m.rollout.turns[0].action.content for m in members)
