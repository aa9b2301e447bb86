"""JSON Schema in verifiers: short checks at once, those that may run away in a killable worker."""

from __future__ import annotations

from collections.abc import Sequence

from agentrl.api import (
    JSON,
    CallCrashed,
    CallTimeout,
    ToolCall,
    ToolSpec,
    Workers,
    check_tool_calls,
    costly,
    schema_error,
)

SECONDS = 2.0
"""Processor time for one check; what needs more is too complex."""
_LONGEST = 20_000
TOO_COMPLEX = ("too_complex", f"not checked within {SECONDS:g} s")


def value_problem(schema: JSON, value: JSON) -> list[str] | None:
    """`[kind, text]` of what a schema refuses, else None: plain data, so that a worker can answer."""
    try:
        error = schema_error(schema, value)
    except (RecursionError, OverflowError) as failure:
        return ["too_complex", str(failure)]
    return None if error is None else ["schema", error]


def calls_problem(calls: Sequence[JSON], tools: Sequence[JSON]) -> list[str] | None:
    """`check_tool_calls` on plain data: calls as `[name, arguments]`, tools as `[name, parameters]`."""
    problem = check_tool_calls(
        [ToolCall(id="", name=name, arguments=arguments) for name, arguments in calls],
        [ToolSpec(name=name, description="", parameters=parameters) for name, parameters in tools],
    )
    return None if problem is None else [problem.kind, problem.text]


async def check_value(workers: Workers, schema: JSON, value: JSON, length: int) -> tuple[str, str] | None:
    """What `schema` refuses in a value read from `length` characters of text: (kind, text), or None."""
    if length <= _LONGEST and not costly(schema):
        found: JSON = value_problem(schema, value)
    else:
        found = await _in_worker(workers, "value_problem", schema, value)
    return None if found is None else (found[0], found[1])


async def check_calls(
    workers: Workers, calls: Sequence[ToolCall], tools: Sequence[ToolSpec], length: int
) -> tuple[str, str] | None:
    """What the tools refuse in calls read from `length` characters of text: (kind, text), or None."""
    plain = (
        [[call.name, dict(call.arguments)] for call in calls],
        [[tool.name, dict(tool.parameters)] for tool in tools],
    )
    if length <= _LONGEST and not any(costly(dict(tool.parameters)) for tool in tools):
        found: JSON = calls_problem(*plain)
    else:
        found = await _in_worker(workers, "calls_problem", *plain)
    return None if found is None else (found[0], found[1])


async def _in_worker(workers: Workers, function: str, *arguments: JSON) -> JSON:
    try:
        return await workers.call(f"{__name__}:{function}", *arguments, timeout=SECONDS)
    except (CallTimeout, CallCrashed):
        return TOO_COMPLEX
