"""What a task says about judging a program: read once, for the verifier and for environments that try programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from agentrl.api.errors import DataError, nearest
from agentrl.api.services import Limits
from agentrl.api.types import JSON
from agentrl.api.values import TEXT_COMPARES, VALUE_COMPARES

_KINDS = ("cases", "io", "tests")
_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSpec:
    """What a task says about judging a program; exactly one of `cases`, `io` and `tests` is given.

    Every case has `args`, `kwargs` and `expected`; `{"__float__": "nan"}` in arguments is already the number.

    Example: `CodeSpec(cases=({"args": [1, 2], "expected": 3},), entry_point="add")`.
    """

    cases: tuple[Mapping[str, JSON], ...] = ()
    io: tuple[Mapping[str, JSON], ...] = ()
    tests: str = ""
    entry_point: str | None = None
    compare: str = "default"
    workspace: Mapping[str, bytes]
    limits: Limits


def read_code_spec(data: Mapping[str, JSON]) -> CodeSpec:
    """Check a task's data. Raises DataError that names the key."""
    given = [kind for kind in _KINDS if data.get(kind) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise DataError(f"a code_tests task needs exactly one of cases, io and tests, not {found}")
    kind = given[0]
    entry_point = data.get("entry_point")
    if entry_point is not None and not isinstance(entry_point, str):
        raise DataError(f"entry_point must be text, not {show_value(entry_point)}")
    if kind == "cases" and not entry_point:
        raise DataError("entry_point is missing: it names the function that the cases call")
    known = TEXT_COMPARES if kind == "io" else VALUE_COMPARES
    compare = data.get("compare") or known[0]
    if compare not in known:
        raise DataError(
            f"compare is {show_value(compare)}, but for {kind} it is one of {', '.join(known)}"
            f"{nearest(str(compare), known)}"
        )
    tests = data.get("tests")
    if kind == "tests" and (not isinstance(tests, str) or not tests.strip()):
        raise DataError("tests must be Python text with at least one statement")
    return CodeSpec(
        cases=_read_cases(data["cases"]) if kind == "cases" else (),
        io=_read_io(data["io"]) if kind == "io" else (),
        tests=str(tests) if kind == "tests" else "",
        entry_point=entry_point,
        compare=compare,
        workspace=_read_workspace(data.get("workspace") or {}),
        limits=_read_limits(data.get("limits") or {}),
    )


def _read_cases(cases: JSON) -> tuple[Mapping[str, JSON], ...]:
    for number, case in enumerate(_read_list("cases", cases), 1):
        if not isinstance(case, Mapping) or "expected" not in case:
            raise DataError(f"cases: case {number} must be an object with 'expected'")
        if not isinstance(case.get("args", []), list | tuple):
            raise DataError(f"cases: args of case {number} must be a list")
        kwargs = case.get("kwargs") or {}
        if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
            raise DataError(f"cases: kwargs of case {number} must be an object")
    return tuple(
        {**case, "args": _numbers(case.get("args", [])), "kwargs": _numbers(case.get("kwargs") or {})} for case in cases
    )


def _read_io(pairs: JSON) -> tuple[Mapping[str, JSON], ...]:
    for number, pair in enumerate(_read_list("io", pairs), 1):
        if not isinstance(pair, Mapping) or not isinstance(pair.get("stdout"), str):
            raise DataError(f"io: entry {number} must be an object with the text 'stdout'")
        if not isinstance(pair.get("stdin", ""), str):
            raise DataError(f"io: stdin of entry {number} must be text")
    return tuple(pairs)


def _read_list(key: str, value: JSON) -> Sequence[JSON]:
    if not isinstance(value, list | tuple) or not value:
        raise DataError(f"{key} must be a list with at least one entry: an empty one would let every program pass")
    return value


def _read_workspace(workspace: JSON) -> dict[str, bytes]:
    if not isinstance(workspace, Mapping):
        raise DataError("workspace must be an object of path to text")
    files = {}
    for path, text in workspace.items():
        if not isinstance(path, str) or not isinstance(text, str):
            raise DataError(f"workspace: the file {show_value(path)} must be text")
        files[path] = text.encode("utf-8", "surrogatepass")
    return files


def _read_limits(limits: JSON) -> Limits:
    if not isinstance(limits, Mapping):
        raise DataError("limits must be an object")
    known = {field.name: field.type for field in fields(Limits)}
    for name, value in limits.items():
        if name not in known:
            raise DataError(f"limits.{name} is unknown{nearest(str(name), known)}")
        whole = known[name] == "int"
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float) or not value > 0:
            wanted = "integer" if whole else "number"
            raise DataError(f"limits.{name} is {show_value(value)}; it must be a positive {wanted}")
    return Limits(**limits)


def _numbers(value: JSON) -> JSON:
    """A value with every `{"__float__": "nan"}` replaced by the number that it stands for."""
    if isinstance(value, Mapping):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_numbers(item) for item in value]
    return value


def show_value(value: object) -> str:
    """A value for people, cut short; printing it must not fail or take long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # Integers of more than 4300 digits refuse to be printed.
        text = f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
