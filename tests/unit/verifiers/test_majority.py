"""`majority`: the answer that most members gave, ties and missing answers."""

from __future__ import annotations

import pytest
from agentrl_verifiers.majority import Majority
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.api import Services
from tests.support_answers import rollout_of

MAJORITY = Majority(Majority.Options(), Services())


def scores(*responses: str) -> list[float | None]:
    return [verdict.score for verdict in MAJORITY.verify_group([rollout_of(text, None) for text in responses])]


@pytest.mark.parametrize(
    ("responses", "expected"),
    [
        (["#### 7", r"\boxed{7}", "The answer is 8."], [1, 1, 0]),
        (["#### 0.5", r"\boxed{\frac{1}{2}}", "#### 8", "#### 50\\%"], [1, 1, 0, 1]),
        ([r"\boxed{x = 3}", "#### 3", "#### 4"], [1, 1, 0]),
        (["#### 5 m", "#### 5 cm", "#### 5 cm"], [0, 1, 1]),
        (["#### Paris", "#### paris ", "#### Rome"], [1, 1, 0]),
        ([r"\boxed{x+1}", r"\boxed{ x+1 }", r"\boxed{x+2}"], [1, 1, 0]),
        (["#### 1/0", "#### 1/0", "#### 1"], [1, 1, 0]),
        (["#### 7", "#### 8"], [0, 0]),
        (["#### 7", "#### 7", "#### 8", "#### 8", "#### 9"], [0, 0, 0, 0, 0]),
        (["", "", "", "#### 8"], [0, 0, 0, 1]),
        (["", "  ", r"<think>\boxed{7}", r"\boxed{}"], [0, 0, 0, 0]),
        (["#### 8"], [1]),
    ],
)
def test_votes(responses: list[str], expected: list[float]) -> None:
    assert scores(*responses) == expected


def test_the_reasons() -> None:
    rollouts = [rollout_of(text, None) for text in ("#### 7", "#### 7", "#### 8", "")]
    found = MAJORITY.verify_group(rollouts)
    assert [one.reason for one in found] == ["passed", "passed", "wrong_answer", "no_answer"]
    assert [one.detail for one in found][:3] == ["2 of 3 answers agree"] * 2 + ["1 of 3 answers agree"]
    assert "no majority: 2 answers have 1 votes" in MAJORITY.verify_group(rollouts[1:3])[0].detail


@settings(deadline=None, max_examples=200)
@given(st.lists(st.text(max_size=40) | st.sampled_from(["#### 7", r"\boxed{8}", "\\boxed{", "9^{9^9}"]), min_size=1))
def test_no_text_raises_and_the_order_does_not_count(responses: list[str]) -> None:
    found = scores(*responses)
    assert set(found) <= {0.0, 1.0}
    assert found == scores(*reversed(responses))[::-1]
