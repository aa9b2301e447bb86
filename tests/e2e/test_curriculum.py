"""A curriculum on a user's own questions: what was measured is saved, and a run that goes on is the whole run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentrl.records.run import RunDirectory
from tests.e2e.conftest import Run, settings

CLOCK = ("seconds", "tokens_per_second", "memory_mb")


def rows(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.startswith(CLOCK)} for row in lines]


def trained_on(run: Path, step: int) -> list[str]:
    members = RunDirectory.open(run).read_rollouts(f"step_{step:06d}")
    return list(dict.fromkeys(member.rollout.task.id for member in members))


def test_a_resumed_curriculum_goes_on_bit_for_bit(agentrl: Run, tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    file.write_text("".join(json.dumps({"question": f"Say {n}", "answer": 7}) + "\n" for n in range(9)))
    source = {"path": str(file), "splits": {"train": 1.0, "test": "questions.jsonl"}}

    def train(name: str, *more: str) -> None:
        arguments = settings(
            f"env.options.source={json.dumps(source)}", "train.schedule=constant", "train.warmup_steps=0",
            "train.tasks_per_step=3", "train.group_size=2", "train.curriculum.kind=pass_rate",
            "train.curriculum.min_rollouts=2", "train.curriculum.weight=0.4", "train.save_every=3",
            "engine.max_new_tokens=8", "eval.limit=1",
        )  # fmt: skip
        done = agentrl(
            "train", "--env", "math_answer", "--output", name, *arguments, "--set", "train.save_every=3", *more
        )
        assert done.returncode == 0, done.stderr

    train("whole", "--set", "train.steps=6")
    train("parts", "--set", "train.steps=3")
    done = agentrl("train", "--resume", "--output", "parts", "--set", "train.steps=6")
    assert done.returncode == 0, done.stderr
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert rows(parts) == rows(whole)
    assert [trained_on(parts, step) for step in range(1, 7)] == [trained_on(whole, step) for step in range(1, 7)]
    assert sum(row["curriculum/skipped"] for row in rows(whole)[3:]) > 0, "nothing was passed over"
    assert [row["curriculum/never"] + row["curriculum/always"] for row in rows(whole)][:4] != [0, 0, 0, 0]
