"""Rollouts as JSON and back: nothing that verifiers, trainers or reports read is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.api import (
    REASONS,
    UNJUDGED_REASONS,
    Completion,
    DataError,
    Message,
    Reward,
    RewardPart,
    Rollout,
    Scored,
    Segment,
    Step,
    Stop,
    Task,
    ToolCall,
    Turn,
    Verdict,
    sampled_ids,
)
from agentrl.records.serial import SCHEMA, message_from_json, message_to_json, scored_from_json, scored_to_json

TASK = Task(
    id="tools/train/3",
    messages=(
        Message(role="system", content=""),
        Message(role="user", content="Sum 1 and 2. é \u2028 \U0001f600 \x00"),
    ),
    answer={"total": 3, "parts": [1, 2.5, None, True]},
    data={"cases": [{"args": [[1, 2]], "expected": {"a": None}}], "limit": None},
    tags=("skill:tools", "template:unseen"),
)


def _segment(ids: list[int], sampled: list[bool], logprobs: list[float], turn: list[int]) -> Segment:
    return Segment(
        ids=np.asarray(ids, np.int32),
        sampled=np.asarray(sampled, np.bool_),
        logprobs=np.asarray(logprobs, np.float32),
        turn=np.asarray(turn, np.int16),
    )


def _completion(segment: Segment, span: tuple[int, int], **changes: Any) -> Completion:
    values: dict[str, Any] = {
        "token_ids": tuple(segment.ids[slice(*span)].tolist()),
        "logprobs": tuple(segment.logprobs[slice(*span)].tolist()),
        "finish": "stop",
    }
    return Completion(**(values | changes))


def rich() -> Scored:
    """Two segments, tool calls, a turn without tokens, process steps, an unjudged part."""
    first = _segment([5, 9, 4, 7, 2], [False, False, False, True, True], [0, 0, 0, -0.1, -1e-30], [0] * 5)
    second = _segment([5, 300_000, 8, 2], [False, True, True, False], [0, -7.25, -0.0, 0], [0, 1, 1, 1])
    call = ToolCall(id="call_0", name="add", arguments={"a": 1, "b": [2.5, {"c": None}]})
    turns = (
        Turn(
            segment=0,
            span=(3, 5),
            completion=_completion(first, (3, 5), stop_token=2, temperature=0.7, versions=((0, 3), (1, 4))),
            action=Message(role="assistant", content="", reasoning="think", tool_calls=(call,)),
            observation=(Message(role="tool", content="3", tool_call_id="call_0"),),
            env_reward=0.1,
            info={"passed": False, "nested": {"x": [1, None]}},
        ),
        Turn(
            segment=1,
            span=(1, 3),
            completion=_completion(second, (1, 3), stop_string="</end>", finish="length"),
            action=Message(role="assistant", content="3"),
            env_reward=-1 / 3,
        ),
        Turn(segment=1, span=(4, 4), completion=None, action=Message(role="assistant", content="typed by a person")),
    )
    rollout = Rollout(
        task=TASK,
        index=2,
        seed=(1 << 63) - 1,
        turns=turns,
        segments=(first, second),
        stop=Stop.MAX_TURNS,
        evidence={"program": None, "files": {"a.py": "x\n"}},
    )
    verdicts = (
        Verdict(
            verifier="process",
            score=0.75,
            steps=(Step(turn=0, score=0.5), Step(turn=1, end=1, score=0.25)),
            reason="scored",
            seconds=0.004,
        ),
        Verdict(verifier="silent", score=0.0, passed=False, steps=(), reason="wrong_answer", detail="got 4\nwant 3"),
        Verdict(verifier="broken", score=None, reason="verifier_timeout", detail="after 3 s"),
    )
    parts = (
        RewardPart(
            name="steps",
            kind="process",
            raw=0.75,
            weight=0.5,
            value=0.375,
            step_values=(Step(turn=0, score=0.25), Step(turn=1, end=1, score=0.125)),
        ),
        RewardPart(name="tests", kind="outcome", raw=0.0, weight=1.0, value=0.0),
        RewardPart(name="watch", kind="outcome", raw=None, weight=0.0, value=None),
        RewardPart(name="empty", kind="process", raw=0.0, weight=1.0, value=0.0, step_values=()),
    )
    return Scored(rollout=rollout, verdicts=verdicts, reward=Reward(parts=parts, success=False))


def round_trip(scored: Scored, **extra: Any) -> Scored:
    return scored_from_json(json.loads(json.dumps(scored_to_json(scored, **extra), ensure_ascii=False)))


def assert_same(left: Scored, right: Scored) -> None:
    assert left.verdicts == right.verdicts
    assert left.reward == right.reward
    for field in fields(Rollout):
        if field.name != "segments":
            assert getattr(left.rollout, field.name) == getattr(right.rollout, field.name), field.name
    assert len(left.rollout.segments) == len(right.rollout.segments)
    for mine, other in zip(left.rollout.segments, right.rollout.segments, strict=True):
        for field in fields(Segment):
            a, b = getattr(mine, field.name), getattr(other, field.name)
            assert a.dtype == b.dtype, field.name
            np.testing.assert_array_equal(a, b, err_msg=field.name)


def test_a_rich_rollout_survives() -> None:
    scored = rich()
    again = round_trip(scored, step=12)
    assert_same(scored, again)
    assert sampled_ids(again.rollout) == [7, 2, 300_000, 8]
    assert again.reward.total == scored.reward.total == 0.375
    assert scored_to_json(again, step=12) == scored_to_json(scored, step=12)


def test_types_are_restored_not_only_equal_values() -> None:
    again = round_trip(rich())
    turn = again.rollout.turns[0]
    assert isinstance(turn.span, tuple)
    assert isinstance(turn.action.tool_calls, tuple)
    assert isinstance(turn.completion, Completion)
    assert isinstance(turn.completion.versions[0], tuple)
    assert isinstance(again.rollout.task.tags, tuple)
    assert isinstance(again.verdicts[0].steps, tuple)
    assert again.verdicts[1].steps == ()
    assert again.verdicts[2].steps is None
    assert again.rollout.stop is Stop.MAX_TURNS
    assert [segment.ids.dtype for segment in again.rollout.segments] == [np.int32, np.int32]


def test_the_record_is_one_json_object_with_its_schema_and_total() -> None:
    data = scored_to_json(rich(), step=12)
    assert (data["schema"], data["step"], data["reward"]["total"]) == (SCHEMA, 12, 0.375)
    assert data["rollout"]["stop"] == "max_turns"
    assert "\n" not in json.dumps(data, allow_nan=False)


def test_log_probabilities_are_written_once_and_for_sampled_tokens_only() -> None:
    data = scored_to_json(rich())
    assert [len(segment["logprobs"]) for segment in data["rollout"]["segments"]] == [2, 2]
    assert set(data["rollout"]["turns"][0]["completion"]) == {
        "finish",
        "stop_token",
        "stop_string",
        "temperature",
        "versions",
    }


def test_a_failed_rollout_survives() -> None:
    rollout = Rollout(task=TASK, index=0, seed=0, turns=(), segments=(), stop=Stop.ENV_ERROR, error="Traceback:\n  x")
    parts = (RewardPart(name="tests", kind="outcome", raw=None, weight=1.0, value=None),)
    scored = Scored(rollout=rollout, verdicts=(), reward=Reward(parts=parts, success=None))
    again = round_trip(scored)
    assert_same(scored, again)
    assert again.reward.total is None
    assert scored_to_json(scored)["reward"]["total"] is None


def test_messages_leave_empty_fields_out() -> None:
    plain = Message(role="user", content="")
    assert message_to_json(plain) == {"role": "user", "content": ""}
    call = ToolCall(id="1", name="f", arguments={})
    full = Message(role="assistant", content="a", reasoning="", tool_calls=(call,), tool_call_id="0")
    assert message_from_json(message_to_json(full)) == full
    assert message_from_json(message_to_json(plain)) == plain


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
STEPS = st.none() | st.lists(
    st.builds(Step, turn=st.integers(0, 5), end=st.none() | st.integers(1, 9), score=FLOATS), max_size=3
).map(tuple)
VERDICTS = st.one_of(
    st.builds(
        Verdict,
        verifier=st.text(),
        score=FLOATS,
        passed=st.none() | st.booleans(),
        steps=STEPS,
        reason=st.sampled_from(sorted(REASONS - UNJUDGED_REASONS)),
        detail=st.text(),
        seconds=FLOATS,
    ),
    st.builds(
        Verdict, verifier=st.text(), score=st.none(), reason=st.sampled_from(sorted(UNJUDGED_REASONS)), detail=st.text()
    ),
)
PARTS = st.builds(
    RewardPart,
    name=st.text(),
    kind=st.sampled_from(["outcome", "process"]),
    raw=st.none() | FLOATS,
    weight=FLOATS,
    value=st.none() | FLOATS,
    step_values=STEPS,
)


@st.composite
def segments(draw: Callable[..., Any]) -> Segment:
    size = draw(st.integers(0, 6))
    sampled = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    logprob = st.floats(max_value=0, allow_infinity=False, allow_nan=False, width=32)
    return _segment(
        draw(st.lists(st.integers(0, 2**31 - 1), min_size=size, max_size=size)),
        sampled,
        [draw(logprob) if is_sampled else 0.0 for is_sampled in sampled],
        draw(st.lists(st.integers(0, 2**15 - 1), min_size=size, max_size=size)),
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(segments(), max_size=3), st.lists(VERDICTS, max_size=3), st.lists(PARTS, max_size=3), st.data())
def test_any_rollout_survives(
    parts_of_it: list[Segment], verdicts: list[Verdict], parts: list[RewardPart], data: st.DataObject
) -> None:
    rollout = Rollout(
        task=TASK,
        index=data.draw(st.integers(0, 100)),
        seed=data.draw(st.integers(0, 2**63 - 1)),
        turns=(),
        segments=tuple(parts_of_it),
        stop=data.draw(st.sampled_from(Stop)),
        error=data.draw(st.none() | st.text()),
    )
    success = data.draw(st.none() | st.booleans())
    scored = Scored(rollout=rollout, verdicts=tuple(verdicts), reward=Reward(parts=tuple(parts), success=success))
    assert_same(scored, round_trip(scored))


@pytest.mark.parametrize("schema", [SCHEMA + 1, 99, 0, -1, "1", None, 1.5])
def test_an_unknown_schema_is_refused(schema: object) -> None:
    data = scored_to_json(rich()) | {"schema": schema}
    with pytest.raises(DataError, match=f"schema {schema}; this version reads up to {SCHEMA}"):
        scored_from_json(data)


def test_a_record_without_a_schema_is_refused() -> None:
    data = scored_to_json(rich())
    del data["schema"]
    with pytest.raises(DataError, match="schema None"):
        scored_from_json(data)


def _damage(data: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split("/")
    inner: Any = data
    for part in parents:
        inner = inner[int(part) if isinstance(inner, list) else part]
    if value is KeyError:
        del inner[last]
    else:
        inner[last] = value


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("rollout", KeyError),
        ("rollout", None),
        ("rollout/task", KeyError),
        ("rollout/task/id", KeyError),
        ("rollout/segments/0/ids", [1]),
        ("rollout/segments/0/logprobs", [-0.1]),
        ("rollout/stop", "tired"),
        ("rollout/unknown", 3),
        ("rollout/turns/0/segment", 7),
        ("rollout/turns/0/action", {"role": "assistant"}),
        ("verdicts", None),
        ("verdicts/0/reason", "bored"),
        ("verdicts/0/score", None),
        ("reward", []),
        ("reward/parts/0/name", KeyError),
        ("reward/success", KeyError),
    ],
)
def test_a_damaged_record_is_a_data_error(path: str, value: Any) -> None:
    data = json.loads(json.dumps(scored_to_json(rich())))
    _damage(data, path, value)
    with pytest.raises(DataError, match="not a rollout record"):
        scored_from_json(data)


@pytest.mark.parametrize("data", [[], "text", None, 3])
def test_what_is_no_object_is_a_data_error(data: Any) -> None:
    with pytest.raises(DataError):
        scored_from_json(data)
