"""Judges the tool calls of a rollout: their form, their arguments, and whether they are the expected ones."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from agentrl.api import (
    FORMATS,
    JSON,
    DataError,
    Example,
    Options,
    Rollout,
    Task,
    ToolCall,
    ToolReply,
    ToolSpec,
    Verdict,
    Verifier,
    check_schema,
    check_tool_calls,
    nearest,
    parse_tool_calls,
    same_value,
)
from agentrl_verifiers.answers import answer_verdict
from agentrl_verifiers.schemas import check_calls


class ToolCallsOptions(Options):
    """Options of `tool_calls`. format: for tasks that name none. ordered: whether the order of calls matters."""

    format: str = "hermes"
    ordered: bool = False


class ToolCalls(Verifier):
    """Score 1.0 when the rollout's calls are the task's `expected` ones, each well formed and taken by its tool.

    The calls are those of all turns. `expected` is a list of `{"name", "arguments"}`, compared as a multiset (an option
    makes the order count); an empty list asks for a reply in words without any attempt at a call; null, or no
    `expected`, asks for one valid call or more. Arguments are compared by value: 1 equals 1.0, true is no number, text
    is compared exactly. Nothing is repaired; one malformed call fails the rollout. `tools` holds JSON schemas, either
    `{"name", "parameters"}` or OpenAI's `{"type": "function", "function": {...}}`.
    """

    name: ClassVar[str] = "tool_calls"
    Options = ToolCallsOptions
    needs: ClassVar[frozenset[str]] = frozenset({"workers"})
    correctness: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        number = {"type": "number"}
        parameters = {
            "type": "object",
            "properties": {"a": number, "b": number},
            "required": ["a", "b"],
            "additionalProperties": False,
        }
        task = {
            "tools": [{"name": "add", "parameters": parameters}],
            "format": "hermes",
            "expected": [{"name": "add", "arguments": {"a": 1, "b": 2}}],
        }
        call = '<tool_call>\n{"name": "add", "arguments": %s}\n</tool_call>'
        right, wrong = call % '{"a": 1, "b": 2}', call % '{"a": 1, "b": 3}'
        return (
            Example(kind="gold", task=task, response=right, passes=True),
            Example(kind="near miss", task=task, response=wrong, passes=False),
            Example(kind="near miss", task=task, response=call % '{"a": "1", "b": 2}', passes=False),
            Example(kind="hack", task=task, response=f"{wrong}\n{right}", passes=False),
            Example(kind="hack", task=task, response=f"<think>{right}", passes=False),
        )

    def check_task(self, task: Task) -> None:
        """Refuse tools, a format or an `expected` that cannot be right."""
        tools, format = _tools(task), self._format(task)
        if format not in FORMATS:
            raise DataError(f"unknown tool-call format '{format}'{nearest(str(format), FORMATS)}: {', '.join(FORMATS)}")
        for tool in tools:
            check_schema(dict(tool.parameters))
        problem = check_tool_calls(_expected(task) or (), tools)
        if problem is not None:
            raise DataError(f"the task's 'expected' fits no tool: {problem.text}")

    async def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout."""
        began = time.monotonic()
        reason, detail = await self._decide(rollout)
        return answer_verdict(self.name, reason, detail, time.monotonic() - began)

    async def _decide(self, rollout: Rollout) -> tuple[str, str]:
        tools, expected = _tools(rollout.task), _expected(rollout.task)
        replies = [self._reply(rollout, turn, tools) for turn in range(len(rollout.turns))]
        for reply in replies:
            if reply.problem is not None:
                too_complex = reply.problem.kind == "too_complex"
                return "too_complex" if too_complex else "invalid_tool_call", _detail(
                    reply.problem.kind, reply.problem.text
                )
        calls = [call for reply in replies for call in reply.calls]
        length = sum(len(turn.action.content) for turn in rollout.turns)
        problem = await check_calls(self.services.workers, calls, tools, length)
        if problem is not None:
            return "too_complex" if problem[0] == "too_complex" else "invalid_tool_call", _detail(*problem)
        if expected is not None and not expected and not calls:
            said = bool(replies) and bool(replies[-1].content)
            return ("passed", "") if said else ("no_answer", "neither a call nor an answer")
        if not calls:
            return "no_answer", "no tool was called"
        assert isinstance(self.options, ToolCallsOptions)
        if expected is None or _same_calls(expected, calls, ordered=self.options.ordered):
            return "passed", ""
        return "wrong_answer", f"called {', '.join(call.name for call in calls)[:200]}: not the expected calls"

    def _reply(self, rollout: Rollout, turn: int, tools: Sequence[ToolSpec]) -> ToolReply:
        """A turn's calls: those that were carried out, or what its text holds."""
        action = rollout.turns[turn].action
        if action.tool_calls:
            return ToolReply(content=action.content, calls=action.tool_calls)
        return parse_tool_calls(action.content, self._format(rollout.task), tools)

    def _format(self, task: Task) -> str:
        assert isinstance(self.options, ToolCallsOptions)
        format: str = task.data.get("format", self.options.format)
        return format


def _detail(kind: str, text: str) -> str:
    return text if kind == "malformed" else f"{kind}: {text}"


def _same_calls(expected: Sequence[ToolCall], calls: Sequence[ToolCall], *, ordered: bool) -> bool:
    if len(expected) != len(calls):
        return False
    left = list(calls)
    for call in expected:
        candidates = left[:1] if ordered else left
        index = next((i for i, one in enumerate(candidates) if _same_call(call, one)), None)
        if index is None:
            return False
        del left[index]
    return True


def _same_call(expected: ToolCall, call: ToolCall) -> bool:
    return expected.name == call.name and same_value(dict(expected.arguments), dict(call.arguments))


def _tools(task: Task) -> tuple[ToolSpec, ...]:
    """The tools of a task. Raises DataError for anything that is none."""
    given = task.data.get("tools")
    if not isinstance(given, list | tuple):
        raise DataError("the task has no list of 'tools'")
    tools: list[ToolSpec] = []
    for one in given:
        entry = one.get("function", one) if isinstance(one, Mapping) else one
        parameters = (
            entry.get("parameters", {"type": "object", "properties": {}}) if isinstance(entry, Mapping) else None
        )
        if not isinstance(parameters, Mapping) or not isinstance(entry.get("name"), str):
            raise DataError(f'a tool must be {{"name", "parameters"}}, not {str(one)[:100]}')
        tools.append(ToolSpec(name=entry["name"], description=str(entry.get("description", "")), parameters=parameters))
    if len({tool.name for tool in tools}) != len(tools):
        raise DataError("two tools of the task have one name")
    return tuple(tools)


def _expected(task: Task) -> tuple[ToolCall, ...] | None:
    """The expected calls, or None when the task leaves open which. Raises DataError for anything else."""
    given: JSON = task.data.get("expected")
    if given is None:
        return None
    if not isinstance(given, list | tuple):
        raise DataError("the task's 'expected' must be a list of calls, or null")
    calls = []
    for one in given:
        if not isinstance(one, Mapping) or not isinstance(one.get("name"), str):
            raise DataError(f'an expected call must be {{"name", "arguments"}}, not {str(one)[:100]}')
        arguments = one.get("arguments", {})
        if not isinstance(arguments, Mapping):
            raise DataError(f"the arguments of the expected call of {one['name']} must be an object")
        calls.append(ToolCall(id="", name=one["name"], arguments=arguments))
    return tuple(calls)
