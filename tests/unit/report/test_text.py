"""The tables that a person reads: every number stands where its column says, and nothing measured is left out."""

from __future__ import annotations

from typing import Any

import pytest

from agentrl.report.text import evaluation_lines, interval, number, summary_lines, table

BEFORE: dict[str, Any] = {
    "split": "test",
    "tasks": 40,
    "samples": 8,
    "pass_at_k": {
        "1": {"mean": 0.25, "low": 0.2, "high": 0.3125},
        "8": {"mean": 0.5, "low": 0.4, "high": 0.6},
    },
    "parts": {
        "tests": {"raw": 0.25, "value": 0.125, "judged": 1.0},
        "format": {"raw": None, "value": None, "judged": 0},
    },
    "reward": 0.125,
    "unjudged": 0,
    "reasons": {"passed": 80, "wrong_answer": 240},
    "stops": {"finished": 300, "length": 20},
    "success_turns": {"1": 60, "2": 15, "10": 5},
    "tags": {"skill:lists": {"tasks": 10, "pass_at_1": {"mean": 0.1, "low": 0.0, "high": 0.2}}},
    "seconds": 10.0,
    "tokens": 32000,
    "mean_length": 100.04,
}
AFTER: dict[str, Any] = {
    **BEFORE,
    "pass_at_k": {"1": {"mean": 0.75, "low": 0.7, "high": 0.8}, "8": None},
    "reward": None,
    "reasons": {"passed": 240, "timeout": 80},
    "stops": {"finished": 320},
    "success_turns": {},
    "tags": {"skill:text": {"tasks": 3, "pass_at_1": None}},
}
SUMMARY: dict[str, Any] = {
    "before": BEFORE,
    "after": AFTER,
    "improvement": {"mean": 0.5, "low": 0.45, "high": 0.55},
    "seconds": {"train": 120.4, "evaluate": 20.6, "total": 150.0},
    "best_step": 40,
    "steps": 60,
    "stop_reason": "all steps done",
    "output": "runs/a",
}


def cells(lines: list[str], first: str) -> list[str]:
    """The cells of the one row that begins with `first`; columns stand two blanks apart."""
    (row,) = [line for line in lines if line.strip().startswith(first)]
    return [cell.strip() for cell in row.strip().split("  ") if cell.strip()][1:]


def test_a_table_lines_its_columns_up() -> None:
    assert table(["name", "a", "long head"], [["x", "1", "2"], ["longer name", "100", "3"]]) == [
        "name           a  long head",
        "-----------  ---  ---------",
        "x              1          2",
        "longer name  100          3",
    ]


def test_a_table_without_rows_is_its_head() -> None:
    assert table(["name", "b"], []) == ["name  b", "----  -"]


def test_numbers() -> None:
    assert interval({"mean": 0.41249, "low": 0.3605, "high": 1.0}) == "0.412 [0.360, 1.000]"
    assert interval(None) == "-"
    assert (number(0.12345), number(-2.0, 1), number(None)) == ("0.123", "-2.0", "-")
    assert number(0.0) == "0.000"


def test_an_evaluation_shows_every_number_under_its_head() -> None:
    lines = evaluation_lines({"before": BEFORE, "after": AFTER})
    assert lines[0].split() == ["test:", "40", "tasks", "x", "8", "before", "after"]
    assert cells(lines, "pass@1") == ["0.250 [0.200, 0.312]", "0.750 [0.700, 0.800]"]
    assert cells(lines, "pass@8") == ["0.500 [0.400, 0.600]", "-"]
    assert cells(lines, "reward") == ["0.125", "-"]
    assert cells(lines, "part tests, raw") == ["0.250", "0.250"]
    assert cells(lines, "part tests, weighted") == ["0.125", "0.125"]
    assert cells(lines, "part format, raw") == ["-", "-"]
    assert cells(lines, "tokens per rollout") == ["100.0", "100.0"]


def test_tags_of_either_side_are_shown() -> None:
    lines = evaluation_lines({"before": BEFORE, "after": AFTER})
    assert cells(lines, "skill:lists (10 tasks), pass@1") == ["0.100 [0.000, 0.200]", "-"]
    assert cells(lines, "skill:text (3 tasks), pass@1") == ["-", "-"]


def test_later_turns_count_as_numbers_and_not_as_text() -> None:
    """15 + 5 of 80 successes took two turns or more; `"10" > "1"` would hold as text as well, `"2" > "10"` too."""
    lines = evaluation_lines({"before": BEFORE, "after": AFTER})
    assert cells(lines, "solved in turn 2 or later") == ["20 of 80 (25.0 %)", "-"]


def test_reasons_and_stops_are_shares_of_their_own_side() -> None:
    lines = evaluation_lines({"before": BEFORE, "after": AFTER})
    assert cells(lines, "passed") == ["80 (25.0 %)", "240 (75.0 %)"]
    assert cells(lines, "wrong_answer") == ["240 (75.0 %)", "0 (0.0 %)"]
    assert cells(lines, "timeout") == ["0 (0.0 %)", "80 (25.0 %)"]
    assert cells(lines, "finished") == ["300 (93.8 %)", "320 (100.0 %)"]
    assert cells(lines, "length") == ["20 (6.2 %)", "0 (0.0 %)"]


def test_an_evaluation_in_which_nothing_was_judged_has_a_table() -> None:
    empty = {
        **BEFORE,
        "pass_at_k": {"1": None},
        "parts": {},
        "reward": None,
        "reasons": {},
        "stops": {"env_error": 1},
        "success_turns": {},
        "tags": {},
        "mean_length": None,
    }
    lines = evaluation_lines({"tiny": empty})
    assert cells(lines, "pass@1") == ["-"]
    assert cells(lines, "tokens per rollout") == ["-"]
    assert cells(lines, "env_error") == ["1 (100.0 %)"]


def test_the_summary_says_what_was_gained_and_why_it_ended() -> None:
    lines = summary_lines(SUMMARY)
    tables = evaluation_lines({"before": BEFORE, "after": AFTER})
    assert lines[: len(tables)] == tables
    assert lines[-7:] == [
        "",
        "pass@1 gained 0.500 [0.450, 0.550] (paired by task)",
        "",
        "60 steps (all steps done; best validation after step 40)",
        "120 s training, 21 s evaluating, 150 s in all",
        "run directory: runs/a",
        "policy: runs/a/checkpoints/step_40/policy",
    ]


@pytest.mark.parametrize("before", [BEFORE, None])
def test_the_summary_of_an_interrupted_run(before: dict[str, Any] | None) -> None:
    cut = {**SUMMARY, "before": before, "after": None, "improvement": None, "best_step": None}
    lines = summary_lines({**cut, "stop_reason": "interrupted", "steps": 3})
    assert "3 steps (interrupted)" in lines
    assert not any("gained" in line for line in lines)
    assert (lines[0] == "") == (before is None)
    assert ("pass@1" in "\n".join(lines)) == (before is not None)
