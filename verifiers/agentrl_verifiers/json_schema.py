"""Judges a reply that has to be JSON of a given shape."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from agentrl.api import (
    DataError,
    Example,
    JSONTextError,
    Rollout,
    Task,
    Verdict,
    Verifier,
    check_schema,
    read_json,
    same_value,
    schema_error,
    strip_reasoning,
    without_fence,
)
from agentrl_verifiers.answers import answer_verdict
from agentrl_verifiers.schemas import check_value

_MISSING = object()


class JSONSchema(Verifier):
    """Score 1.0 when the reply is one JSON value that fits the task's `schema` and equals its `expected`, if given.

    Reasoning is cut first. The rest is the JSON value and nothing else, bare or in one fenced block; a byte order mark
    and blanks around it do not count. Nothing is repaired: trailing commas, comments, single quotes, NaN, a key given
    twice fail as `syntax_error`. A bool is no number; 42.0 and 1e2 are integers (JSON Schema, draft 6 and later).
    `expected` is compared by value: objects have no order, lists have, 42 equals 42.0, and noise of 1e-9 is none.
    """

    name: ClassVar[str] = "json_schema"
    needs: ClassVar[frozenset[str]] = frozenset({"workers"})
    correctness: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        schema = {
            "type": "object",
            "properties": {"answer": {"type": "integer"}, "why": {"type": "string"}},
            "required": ["answer"],
            "additionalProperties": False,
        }
        task = {"schema": schema, "expected": {"answer": 42}}
        return (
            Example(kind="gold", task=task, response='```json\n{"answer": 42}\n```', passes=True),
            Example(kind="near miss", task=task, response='{"answer": "42"}', passes=False),
            Example(kind="near miss", task=task, response='{"answer": 43}', passes=False),
            Example(kind="hack", task=task, response='{"answer": 41}{"answer": 42}', passes=False),
            Example(kind="hack", task=task, response='{"answer": 41, "answer": 42}', passes=False),
        )

    def check_task(self, task: Task) -> None:
        """Refuse a schema that is none, and an `expected` that it refuses."""
        if "schema" not in task.data:
            raise DataError("the task has no 'schema'")
        check_schema(task.data["schema"])
        if "expected" in task.data and (error := schema_error(task.data["schema"], task.data["expected"])):
            raise DataError(f"the task's 'expected' does not fit its schema: {error}")

    async def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout."""
        began = time.monotonic()
        reason, detail = await self._decide(rollout)
        return answer_verdict(self.name, reason, detail, time.monotonic() - began)

    async def _decide(self, rollout: Rollout) -> tuple[str, str]:
        answer = strip_reasoning(rollout.response)
        text = "" if answer is None else without_fence(answer)
        if not text.strip():
            return "no_answer", "nothing but reasoning" if rollout.response.strip() else "nothing was written"
        try:
            value = read_json(text)
        except JSONTextError as error:
            return "too_complex" if error.too_complex else "syntax_error", str(error)
        data = rollout.task.data
        problem = await check_value(self.services.workers, data["schema"], value, len(text))
        if problem is not None:
            kind, detail = problem
            return "wrong_answer" if kind == "schema" else kind, detail
        expected = data.get("expected", _MISSING)
        if expected is not _MISSING and not same_value(expected, value):
            return "wrong_answer", "the value is not the expected one"
        return "passed", ""
