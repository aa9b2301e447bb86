"""Answers that graders get wrong, with the right verdict, every line through the verifier as `agentrl verify` would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agentrl_verifiers.math_answer import MathAnswer

from agentrl.api import DataError, Options, Services, Verdict
from tests.support_answers import judge_all, rollout_of

LINES = [json.loads(line) for line in Path(__file__).with_name("answer_cases.jsonl").read_text().splitlines()]
REFUSED = {"own-emp-5", "x-empty-both"}
"""Lines whose gold is empty: an error when tasks are loaded."""
OTHER_RULE = {"own-num-20": True}
"""Contested lines for which docs/answers.md has another rule than the one proposed."""
JUDGED = [line for line in LINES if line["id"] not in REFUSED]


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    found = judge_all(MathAnswer, [(line["response"], line["task"]["answer"]) for line in JUDGED])
    return dict(zip((line["id"] for line in JUDGED), found, strict=True))


@pytest.mark.parametrize("line", JUDGED, ids=[line["id"] for line in JUDGED])
def test_case(line: dict[str, Any], verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[line["id"]]
    right = OTHER_RULE.get(line["id"], line["right"]["passed"])
    assert verdict.passed is right, f"{verdict.reason}: {verdict.detail} ({line['why']})"
    assert verdict.score == float(right)


@pytest.mark.parametrize("identity", sorted(REFUSED))
def test_an_empty_gold_is_an_error(identity: str) -> None:
    line = next(line for line in LINES if line["id"] == identity)
    verifier = MathAnswer(MathAnswer.Options(), Services())
    with pytest.raises(DataError, match="empty"):
        verifier.check_task(rollout_of(line["response"], line["task"]["answer"]).task)
    assert isinstance(verifier.options, Options)


def test_only_contested_lines_follow_another_rule() -> None:
    assert all(line["contested"] for line in LINES if line["id"] in OTHER_RULE)
