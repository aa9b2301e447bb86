"""How states are compared, what is asked of a task, and what a rollout without evidence left."""

from __future__ import annotations

from typing import Any

import pytest
from agentrl_verifiers.final_state import Efficiency, FinalState, difference

from agentrl.api import DataError, Message, Options, Rollout, Services, Stop, Task, ToolCall, Turn

ROW, OTHER = {"name": "pen", "stock": 1}, {"name": "cup", "stock": 2}


@pytest.mark.parametrize(
    ("expected", "found", "words"),
    [
        ({"a": [ROW, OTHER]}, {"a": [OTHER, ROW]}, None),
        ({"a": [ROW]}, {"a": [{"stock": 1.0, "name": "pen"}]}, None),
        ({"a": [ROW], "b": []}, {"a": [ROW]}, None),
        ({"a": [ROW]}, {"a": [ROW, ROW]}, "should not be there"),
        ({"a": [ROW, ROW]}, {"a": [ROW]}, "is missing"),
        ({"a": [ROW]}, {"a": [{**ROW, "stock": True}]}, "is missing"),
        ({"a": [ROW]}, {"a": [ROW], "b": [OTHER]}, "b: .*cup.* should not be there"),
        ({"a": [ROW]}, {}, "is missing"),
    ],
)
def test_states_are_multisets_of_rows(expected: Any, found: Any, words: str | None) -> None:
    told = difference(expected, found)
    assert (told is None) == (words is None)
    if words is not None:
        with pytest.raises(ValueError, match=words):
            raise ValueError(told)


def rollout(evidence: Any, *actions: Message, answer: str | None = None) -> Rollout:
    task = Task(id="x", messages=(), answer=answer, data={"start": {"a": [ROW]}, "expected": {"a": [ROW, OTHER]}})
    turns = tuple(Turn(segment=0, span=(0, 0), completion=None, action=action) for action in actions)
    return Rollout(task=task, index=0, seed=0, turns=turns, segments=(), stop=Stop.FINISHED, evidence=evidence)


CALL = Message(role="assistant", content="7", tool_calls=(ToolCall(id="", name="add", arguments={}),))
DONE = {"state": {"a": [OTHER, ROW]}}


def test_without_evidence_only_a_rollout_that_called_nothing_is_judged() -> None:
    verifier = FinalState(Options(), Services())
    assert verifier.verify(rollout(None, Message(role="assistant", content="Done."))).reason == "wrong_answer"
    for evidence in (None, {"rows": []}, {"state": {"a": "pen"}}):
        with pytest.raises(DataError, match=r"evidence\.state"):
            verifier.verify(rollout(evidence, CALL))


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (Message(role="assistant", content="There are 7."), "passed"),
        (Message(role="assistant", content="<think>8?</think> 7."), "passed"),
        (Message(role="assistant", content="seven, 8 or 7"), "wrong_answer"),
        (Message(role="assistant", content="<think>7"), "wrong_answer"),
        (Message(role="assistant", content=" "), "no_answer"),
        (CALL, "no_answer"),
    ],
)
def test_the_answer_stands_in_the_last_message(last: Message, reason: str) -> None:
    verifier = FinalState(Options(), Services())
    assert verifier.verify(rollout(DONE, CALL, last, answer="7")).reason == reason


def test_a_task_that_doing_nothing_solves_is_refused() -> None:
    same = {"start": {"a": [ROW]}, "expected": {"a": [ROW]}}
    for plugin in (FinalState, Efficiency):
        verifier = plugin(plugin.Options(), Services())
        with pytest.raises(DataError, match="doing nothing would pass"):
            verifier.check_task(Task(id="x", messages=(), data=same))
        verifier.check_task(Task(id="x", messages=(), data=same, answer="7"))
        with pytest.raises(DataError, match="'expected' must be lists of rows"):
            verifier.check_task(Task(id="x", messages=(), data={"start": {}}))
