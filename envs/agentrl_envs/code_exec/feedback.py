"""What the policy is told after an attempt: pure functions of the call results. The texts are frozen (hash test)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentrl.api import JSON, CallResult, CallsExecution, same_value

NO_PROGRAM = "No python block found."
_WIDTH = 60


def short(text: str) -> str:
    """One line of at most `_WIDTH` characters: a program may return or print anything."""
    line = " ".join(text.split()).split(". Did you mean")[0]
    return line if len(line) <= _WIDTH else line[: _WIDTH - 3] + "..."


def _shown(value: object) -> str:
    """The value as Python writes it, short. Python refuses to write integers of more than some thousand digits."""
    try:
        return short(repr(value))
    except ValueError:
        return "a value too long to show"


def call_text(entry_point: str, args: Sequence[JSON], kwargs: Mapping[str, JSON] | None = None) -> str:
    """The call as Python writes it, such as `f([1, 2], 3)`."""
    words = [*map(repr, args), *(f"{name}={value!r}" for name, value in (kwargs or {}).items())]
    return f"{entry_point}({', '.join(words)})"


def examples_passed(examples: Sequence[Mapping[str, JSON]], execution: CallsExecution, compare: str = "default") -> int:
    """How many of the visible examples gave what they should; a program that does not load passes none."""
    return sum(
        passes(result, example["expected"], compare)
        for result, example in zip(execution.results, examples, strict=False)
    )


def passes(result: CallResult, expected: JSON, compare: str = "default") -> bool:
    """Whether one call returned the expected value."""
    return result.reason == "ok" and same_value(expected, result.value, compare=compare)


def observe(
    entry_point: str, examples: Sequence[Mapping[str, JSON]], execution: CallsExecution, compare: str = "default"
) -> str:
    """The text about the first example that fails.

    >>> observe("f", [{"args": [2], "expected": 4}], CallsExecution(load=Execution(), results=(CallResult(value=3),)))
    'f(2) gave 3, expected 4.'
    """
    if execution.load.reason != "ok":
        return f"It does not load: {short(execution.load.detail or execution.load.reason)}."
    for position, example in enumerate(examples):
        result = execution.results[position] if position < len(execution.results) else CallResult(reason="exited_early")
        if passes(result, example["expected"], compare):
            continue
        outcome = f"gave {_shown(result.value)}"
        if result.reason != "ok":
            outcome = f"failed: {short(result.error or result.reason)}"
        printed = f" printed {short(result.stdout)}," if result.stdout.strip() else ""
        call = short(call_text(entry_point, example["args"], example.get("kwargs")))
        return f"{call}{printed} {outcome}, expected {_shown(example['expected'])}."
    return "All examples pass."
