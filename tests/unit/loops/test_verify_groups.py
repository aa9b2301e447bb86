"""`agentrl verify` with a verifier that judges groups: members may stand anywhere, answers come in input order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentrl.config import SandboxConfig
from agentrl.loops.verify import Outcome, verify_file

TASK: dict[str, Any] = {"prompt": "3 + 4"}


def verified(path: Path, lines: list[Any], verifier: str = "majority") -> tuple[Outcome, list[Any], list[str]]:
    file = path / "lines.jsonl"
    file.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    written: list[dict[str, Any]] = []
    refused: list[str] = []
    outcome = verify_file(verifier, str(file), sandbox=SandboxConfig(), write=written.append, refuse=refused.append)
    return outcome, [(line["id"], line["score"]) for line in written], refused


def line(name: str, group: Any, response: str, task: dict[str, Any] = TASK) -> dict[str, Any]:
    return {"id": name, "group": group, "response": response, "task": task}


def test_groups_are_judged_together_wherever_their_lines_stand(tmp_path: Path) -> None:
    lines = [
        line("a0", "a", "#### 7"),
        line("b0", "b", "#### 8"),
        line("a1", "a", "#### 8"),
        line("b1", "b", "#### 8"),
        line("n0", 1, "#### 8"),
        line("s0", "1", "#### 7"),
        line("b2", "b", "#### 7"),
        line("a2", "a", "#### 7"),
    ]
    outcome, written, refused = verified(tmp_path, lines)
    assert written == [
        ("a0", 1.0),
        ("b0", 1.0),
        ("a1", 0.0),
        ("b1", 1.0),
        ("n0", 1.0),
        ("s0", 1.0),
        ("b2", 0.0),
        ("a2", 1.0),
    ]
    assert (outcome.judged, outcome.passed, outcome.unjudged, refused, outcome.exit_code) == (8, 6, 0, [], 0)


def test_many_groups_with_few_slots(tmp_path: Path) -> None:
    lines = [line(f"{g}/{m}", g, f"#### {g if m < 2 else m}") for m in range(3) for g in range(10, 150)]
    outcome, written, _ = verified(tmp_path, lines)
    assert [name for name, _ in written] == [entry["id"] for entry in lines]
    assert outcome.passed == 2 * 140


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"id": "x", "response": "#### 8", "task": TASK}, "'group' must be the text or integer that names"),
        (line("x", None, "#### 8"), "'group' must be"),
        (line("x", True, "#### 8"), "'group' must be"),
        (line("x", ["a"], "#### 8"), "'group' must be"),
        (line("x", "a", "#### 8", {"prompt": "1 + 1"}), "the task is not that of the other lines of the group"),
        ({"id": "x", "group": "a", "response": 3, "task": TASK}, "'response' or 'program' must be text"),
        ("{", "not JSON"),
    ],
)
def test_a_refused_line_leaves_its_group_judged_without_it(tmp_path: Path, bad: Any, words: str) -> None:
    lines = [line("a0", "a", "#### 7"), bad, line("a1", "a", "#### 7"), line("a2", "a", "#### 8")]
    outcome, written, refused = verified(tmp_path, lines)
    assert written == [("a0", 1.0), ("a1", 1.0), ("a2", 0.0)]
    assert (outcome.refused, outcome.exit_code) == (1, 2)
    assert len(refused) == 1
    assert "line 2: " in refused[0]
    assert words in refused[0]


def test_a_verifier_of_single_rollouts_needs_no_group(tmp_path: Path) -> None:
    lines = [{"id": i, "response": "#### 7", "task": {"answer": 7 + i % 2}} for i in range(100)]
    outcome, written, _ = verified(tmp_path, lines, "numeric")
    assert written == [(i, 1.0 - i % 2) for i in range(100)]
    assert outcome.exit_code == 0
