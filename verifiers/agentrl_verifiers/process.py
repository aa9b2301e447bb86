"""Scores the steps of a rollout that calls tools: how many of its calls were valid."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from agentrl.api import (
    Example,
    Options,
    Rollout,
    Step,
    ToolCall,
    ToolSpec,
    Turn,
    Verdict,
    Verifier,
    check_tool_calls,
    parse_tool_calls,
)


class ProcessOptions(Options):
    """Options of `process`. calls: how many a plan has, for tasks whose data do not say. format: of calls in text."""

    calls: int = Field(4, ge=1)
    format: str = "hermes"


class Process(Verifier):
    """A step for each turn: its new valid calls, divided by the calls of the plan; at most 1.0 over the rollout.

    A call is valid that was well formed and did not fail; it is new when no earlier one had the same name and
    arguments. Once there are as many as the plan has (`task.data["calls"]`), more earn nothing. It passes when every
    call that was made earned something. Calls in text that no environment carried out are read by `task.data["tools"]`.
    """

    name: ClassVar[str] = "process"
    Options = ProcessOptions

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        schema = {"type": "object", "properties": {"item": {"type": "string"}}, "required": ["item"]}
        task = {"tools": [{"name": "price", "parameters": schema}], "calls": 1}
        call = '<tool_call>\n{"name": "price", "arguments": {"%s": "pen"}}\n</tool_call>'
        return (
            Example(kind="gold", task=task, response=call % "item", passes=True),
            Example(kind="near miss", task=task, response=call % "items", passes=False),
            Example(kind="near miss", task=task, response=(call % "item")[:-13], passes=False),
            Example(kind="hack", task=task, response="\n".join([call % "item"] * 5), passes=False),
        )

    def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout."""
        began = time.monotonic()
        assert isinstance(self.options, ProcessOptions)
        planned: int = rollout.task.data.get("calls", self.options.calls)
        seen: set[str] = set()
        earned, made, steps = 0, 0, []
        for place, turn in enumerate(rollout.turns):
            calls, failed = self._calls(rollout, turn)
            texts = {json.dumps([call.name, dict(call.arguments)], sort_keys=True) for call in calls}
            # Which ones failed is not recorded: as many as failed are taken off.
            valid = max(min(len(texts - seen), len(calls) - failed), 0)
            seen |= texts
            made += max(len(calls), failed)
            gain = min(valid, planned - earned)
            earned += gain
            steps.append(Step(turn=place, score=gain / planned))
        return Verdict(
            verifier=self.name,
            score=earned / planned,
            passed=0 < made == earned,
            steps=tuple(steps),
            reason="scored",
            detail=f"{earned} of {made} calls counted, {planned} planned",
            seconds=time.monotonic() - began,
        )

    def _calls(self, rollout: Rollout, turn: Turn) -> tuple[Sequence[ToolCall], int]:
        """The calls of a turn, and how many failed or could not be read."""
        if "tool_problem" in turn.info:
            return (), 1
        if turn.action.tool_calls or "tools" not in rollout.task.data:
            return turn.action.tool_calls, int(turn.info.get("tool_errors", 0))
        assert isinstance(self.options, ProcessOptions)
        tools = [
            ToolSpec(name=one["name"], description="", parameters=one.get("parameters", {"type": "object"}))
            for one in (entry.get("function", entry) for entry in rollout.task.data["tools"])
        ]
        reply = parse_tool_calls(turn.action.content, self.options.format, tools)
        problem = reply.problem or check_tool_calls(reply.calls, tools)
        return ((), 1) if problem is not None else (reply.calls, 0)
