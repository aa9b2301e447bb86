"""Rollouts as JSON and back; what is written can be judged and trained on again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from agentrl.api import (
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
)

SCHEMA = 1
"""Version of the record; a reader refuses a newer one, and a record without one."""


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that UTF-8 can carry: readable, and escaped throughout where a text holds half a surrogate pair.

    >>> json_text("é"), json_text("\ud83d")
    ('"é"', '"\\ud83d"')
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent)
    return text


def scored_to_json(scored: Scored, **extra: Any) -> dict[str, Any]:
    """A scored rollout as one JSON object; `extra` (such as `step=3`) is put beside it."""
    return {
        "schema": SCHEMA,
        **extra,
        "rollout": _rollout_to_json(scored.rollout),
        "verdicts": [_without_none(_slots(v) | {"steps": _steps_to_json(v.steps)}) for v in scored.verdicts],
        "reward": {
            "total": scored.reward.total,
            "success": scored.reward.success,
            "parts": [_slots(p) | {"step_values": _steps_to_json(p.step_values)} for p in scored.reward.parts],
        },
    }


def scored_from_json(data: Mapping[str, Any]) -> Scored:
    """The inverse of `scored_to_json`; a record of another schema or shape is a `DataError`."""
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if not isinstance(schema, int) or not 1 <= schema <= SCHEMA:
        raise DataError(f"this rollout was written with schema {schema}; this version reads up to {SCHEMA}")
    try:
        return Scored(
            rollout=_rollout_from_json(data["rollout"]),
            verdicts=tuple(
                Verdict(**{"score": None, **v, "steps": _steps_from_json(v.get("steps"))}) for v in data["verdicts"]
            ),
            reward=Reward(
                success=data["reward"]["success"],
                parts=tuple(
                    RewardPart(**{**p, "step_values": _steps_from_json(p["step_values"])})
                    for p in data["reward"]["parts"]
                ),
            ),
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(f"not a rollout record: {error!r}") from error


def task_to_json(task: Task) -> dict[str, Any]:
    """A task as JSON."""
    return _slots(task) | {
        "messages": [message_to_json(m) for m in task.messages],
        "tags": list(task.tags),
        "data": dict(task.data),
    }


def message_to_json(message: Message) -> dict[str, Any]:
    """A message as JSON, empty fields left out."""
    calls = [_slots(call) | {"arguments": dict(call.arguments)} for call in message.tool_calls]
    return _without_none(_slots(message) | {"tool_calls": calls or None})


def message_from_json(data: Mapping[str, Any]) -> Message:
    """The inverse of `message_to_json`."""
    return Message(**{**data, "tool_calls": tuple(ToolCall(**call) for call in data.get("tool_calls", ()))})


def _rollout_to_json(rollout: Rollout) -> dict[str, Any]:
    return _slots(rollout) | {
        "task": task_to_json(rollout.task),
        "stop": rollout.stop.value,
        "segments": [
            {
                "ids": s.ids.tolist(),
                "sampled": s.sampled.astype(int).tolist(),
                "logprobs": [float(x) for x in s.logprobs[s.sampled]],
                "turn": s.turn.tolist(),
            }
            for s in rollout.segments
        ],
        "turns": [
            _slots(t)
            | {
                "span": list(t.span),
                "action": message_to_json(t.action),
                "observation": [message_to_json(m) for m in t.observation],
                "info": dict(t.info),
                "completion": _completion_to_json(t.completion),
            }
            for t in rollout.turns
        ],
    }


def _rollout_from_json(data: Mapping[str, Any]) -> Rollout:
    task = data["task"]
    segments = tuple(_segment_from_json(s) for s in data["segments"])
    return Rollout(
        **{
            **data,
            "task": Task(
                **{
                    **task,
                    "messages": tuple(message_from_json(m) for m in task["messages"]),
                    "tags": tuple(task["tags"]),
                }
            ),
            "stop": Stop(data["stop"]),
            "segments": segments,
            "turns": tuple(_turn_from_json(t, segments) for t in data["turns"]),
        }
    )


def _turn_from_json(data: Mapping[str, Any], segments: tuple[Segment, ...]) -> Turn:
    completion = None
    if data["completion"] is not None:
        segment, (start, end) = segments[data["segment"]], data["span"]
        completion = Completion(
            **{
                **data["completion"],
                "token_ids": tuple(segment.ids[start:end].tolist()),
                "logprobs": tuple(segment.logprobs[start:end].tolist()),
                "versions": tuple((a, b) for a, b in data["completion"]["versions"]),
            }
        )
    return Turn(
        **{
            **data,
            "span": tuple(data["span"]),
            "action": message_from_json(data["action"]),
            "observation": tuple(message_from_json(m) for m in data["observation"]),
            "completion": completion,
        }
    )


def _completion_to_json(completion: Completion | None) -> dict[str, Any] | None:
    if completion is None:
        return None
    fields = _slots(completion)  # ids and log-probabilities stand in the segment already
    del fields["token_ids"], fields["logprobs"]
    return fields | {"versions": [list(version) for version in completion.versions]}


def _segment_from_json(data: Mapping[str, Any]) -> Segment:
    sampled = np.asarray(data["sampled"], dtype=np.bool_)
    if len(data["logprobs"]) != int(sampled.sum()):  # numpy would spread a single one over all
        raise ValueError(f"{len(data['logprobs'])} log-probabilities for {int(sampled.sum())} sampled tokens")
    logprobs = np.zeros(len(sampled), dtype=np.float32)
    logprobs[sampled] = data["logprobs"]
    return Segment(
        ids=np.asarray(data["ids"], dtype=np.int32),
        sampled=sampled,
        logprobs=logprobs,
        turn=np.asarray(data["turn"], dtype=np.int16),
    )


def _steps_to_json(steps: tuple[Step, ...] | None) -> list[dict[str, Any]] | None:
    return None if steps is None else [_slots(step) for step in steps]


def _steps_from_json(steps: list[dict[str, Any]] | None) -> tuple[Step, ...] | None:
    return None if steps is None else tuple(Step(**step) for step in steps)


def _slots(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _without_none(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None and value != ()}
