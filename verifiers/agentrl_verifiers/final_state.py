"""Judges what a rollout left behind: the final state of its world, and the answer in words where one is asked for."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar

from agentrl.api import JSON, DataError, Example, Options, Rollout, Task, Verdict, Verifier, strip_reasoning
from agentrl_verifiers.answers import answer_verdict
from agentrl_verifiers.math_answer.extraction import extract

_ROWS = {"items": [{"name": "pen", "stock": 7}, {"name": "cup", "stock": 4}]}
_TAKEN = {"items": [{"name": "pen", "stock": 5}, {"name": "cup", "stock": 4}]}
_BOTH_TAKEN = {"items": [{"name": "pen", "stock": 5}, {"name": "cup", "stock": 3}]}


class FinalState(Verifier):
    """Score 1.0 when the rollout's `evidence["state"]` is `task.data["expected"]`, and its last words are the answer.

    A state is a list of rows by table. Rows are compared as multisets, so one row too many, too few or different
    fails; a table that is not named must be empty. `task.answer` (or `data["answer"]`), where there is one, is found in
    the last message as by `exact`, whatever its case, and a message with calls says nothing. A rollout without
    evidence that called nothing left `task.data["start"]`.
    """

    name: ClassVar[str] = "final_state"
    correctness: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        ask = {"start": _ROWS, "expected": _ROWS, "answer": "7"}
        take = {"start": _ROWS, "expected": _TAKEN}
        return (
            Example(kind="gold", task=ask, response="There are 7.", passes=True),
            Example(kind="gold", task=take, response="Done.", evidence={"state": _TAKEN}, passes=True),
            Example(kind="near miss", task=ask, response="8", passes=False),
            Example(kind="near miss", task=take, response="Done.", evidence={"state": _BOTH_TAKEN}, passes=False),
            Example(kind="hack", task=ask, response="5, 6, 7 or 8", passes=False),
            Example(kind="hack", task=ask, response="7", evidence={"state": _TAKEN}, passes=False),
            Example(kind="hack", task=take, response=json.dumps({"state": _TAKEN}), passes=False),
        )

    def check_task(self, task: Task) -> None:
        """Refuse states that are none, and a task that is done by doing nothing."""
        check_states(task)

    def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout. Raises DataError for a task or evidence that holds no state."""
        began = time.monotonic()
        reason, detail = decide(rollout)
        return answer_verdict(self.name, reason, detail, time.monotonic() - began)


class EfficiencyOptions(Options):
    """Options of `efficiency`. calls: how many a plan has, for tasks whose data do not say."""

    calls: int = 1


class Efficiency(Verifier):
    """Score planned / made calls, at most 1.0, for a rollout that `final_state` passes; else 0.0.

    planned: `task.data["calls"]`, the length of a plan that fulfils the task. Failed and malformed calls count as made.
    It passes when no call was made beyond the plan.
    """

    name: ClassVar[str] = "efficiency"
    Options = EfficiencyOptions
    correctness: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        return FinalState.examples()

    def check_task(self, task: Task) -> None:
        """Refuse what `final_state` refuses, and a plan without calls."""
        check_states(task)
        if not isinstance(task.data.get("calls", 1), int) or task.data.get("calls", 1) < 1:
            raise DataError("'calls', the length of the plan, must be at least 1")

    def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout. Raises DataError for a task or evidence that holds no state."""
        began = time.monotonic()
        reason, detail = decide(rollout)
        if reason != "passed":
            return answer_verdict(self.name, reason, detail, time.monotonic() - began)
        assert isinstance(self.options, EfficiencyOptions)
        planned: int = rollout.task.data.get("calls", self.options.calls)
        made = sum(len(turn.action.tool_calls) or "tool_problem" in turn.info for turn in rollout.turns)
        return Verdict(
            verifier=self.name,
            score=planned / max(made, planned),
            passed=made <= planned,
            reason="scored",
            detail=f"{made} calls, {planned} planned",
            seconds=time.monotonic() - began,
        )


def check_states(task: Task) -> None:
    """Raise DataError for states that are none, and for a task that is done by doing nothing."""
    start, expected = _state(task.data.get("start"), "start"), _state(task.data.get("expected"), "expected")
    if _answer(task) is None and difference(expected, start) is None:
        raise DataError("'expected' is 'start' and no answer is asked for: doing nothing would pass")


def decide(rollout: Rollout) -> tuple[str, str]:
    """Reason and detail of a rollout: `passed`, `wrong_answer` or `no_answer`."""
    task = rollout.task
    wrong = difference(_state(task.data.get("expected"), "expected"), _left(rollout))
    if wrong is not None:
        return "wrong_answer", wrong
    answer = _answer(task)
    if answer is None:
        return "passed", ""
    last = rollout.turns[-1] if rollout.turns else None
    if last is None or last.action.tool_calls or "tool_problem" in last.info or not last.action.content.strip():
        return "no_answer", "the last message answers nothing"
    given = _answers_in(last.action.content)
    return ("passed", "") if answer.casefold() in given else ("wrong_answer", f"said {last.action.content[:100]}")


def _answers_in(text: str) -> set[str]:
    """What a text may be read to say, without case, blanks and a full stop at the end."""
    whole, found = strip_reasoning(text), extract(text)
    texts = [] if whole is None else [whole, *(found.texts if found else ())]
    return {" ".join(one.split()).strip("*`\"' ").removesuffix(".").casefold() for one in texts}


def difference(expected: Mapping[str, JSON], found: Mapping[str, JSON]) -> str | None:
    """The first row in which two states differ, in words; None when they are the same."""
    for table in dict.fromkeys([*expected, *found]):
        wanted, there = (Counter(map(_plain, state.get(table, ()))) for state in (expected, found))
        for words, rows in (("is missing", wanted - there), ("should not be there", there - wanted)):
            if rows:
                return f"{table}: {min(rows)} {words}"
    return None


def _plain(row: JSON) -> str:
    """A row as text that is the same for the same values: 1 and 1.0 are one, true is none of them."""
    values = {
        key: int(value) if isinstance(value, float) and value.is_integer() else value for key, value in row.items()
    }
    return json.dumps(values, sort_keys=True, ensure_ascii=False)


def _left(rollout: Rollout) -> Mapping[str, JSON]:
    if rollout.evidence is None and not any(turn.action.tool_calls for turn in rollout.turns):
        return _state(rollout.task.data.get("start"), "start")
    evidence = rollout.evidence if isinstance(rollout.evidence, Mapping) else {}
    return _state(evidence.get("state"), "evidence.state")


def _state(value: JSON, name: str) -> Mapping[str, JSON]:
    tables = value.values() if isinstance(value, Mapping) else (None,)
    if not all(isinstance(one, list | tuple) and all(isinstance(row, Mapping) for row in one) for one in tables):
        raise DataError(f"'{name}' must be lists of rows by table, not {str(value)[:100]}")
    assert isinstance(value, Mapping)
    return value


def _answer(task: Task) -> str | None:
    answer = task.data.get("answer", task.answer)
    return None if answer is None else " ".join(str(answer).split())
