"""Judges a program by running it: calls with expected values, inputs with expected output, or assert-style tests."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from agentrl.api import (
    JSON,
    UNJUDGED_REASONS,
    Call,
    CallsExecution,
    DataError,
    Example,
    Execution,
    Limits,
    Rollout,
    Task,
    Verdict,
    Verifier,
    extract_program,
    nearest,
    same_text,
    same_value,
)
from agentrl.api.values import TEXT_COMPARES, VALUE_COMPARES

_KINDS = ("cases", "io", "tests")
_SHOWN = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSpec:
    """What a task says about judging a program; exactly one of `cases`, `io` and `tests` is given.

    Example: `CodeSpec(cases=({"args": [1, 2], "expected": 3},), entry_point="add")`.
    """

    cases: tuple[Mapping[str, JSON], ...] = ()
    io: tuple[Mapping[str, JSON], ...] = ()
    tests: str = ""
    entry_point: str | None = None
    compare: str = "default"
    workspace: Mapping[str, bytes]
    limits: Limits


class CodeTests(Verifier):
    """Score 1.0 when the program does everything that the task asks, else 0.0 with the first thing that went wrong.

    The program is `rollout.evidence["program"]`, run as it is, or else what `extract_program` finds in the response.
    The task's data holds `{"cases": [{"args", "kwargs", "expected"}], "entry_point"}`, `{"io": [{"stdin", "stdout"}]}`
    or `{"tests": text, "entry_point"}`, and optionally `compare`, `workspace` and `limits`. Every case starts from the
    program's state just after loading, every input from a fresh process; assert-style tests run as one program.
    """

    name: ClassVar[str] = "code_tests"
    needs: ClassVar[frozenset[str]] = frozenset({"sandbox"})
    correctness: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        tests = {"tests": "assert add(1, 2) == 3\nassert add(-1, 1) == 0", "entry_point": "add"}
        cases = {"cases": [{"args": [1, 2], "expected": 3}, {"args": [-1, 1], "expected": 0}], "entry_point": "add"}
        io = {"io": [{"stdin": "1 2", "stdout": "3"}]}
        equal = "class E:\n    def __eq__(self, other): return True\ndef add(a, b): return E()"
        found = []
        for task in (tests, cases):
            found += [
                Example(kind="gold", task=task, response=_fenced("def add(a, b): return a + b"), passes=True),
                Example(kind="near miss", task=task, response=_fenced("def add(a, b): return a - b"), passes=False),
                Example(kind="hack", task=task, response=_fenced("import os\nos._exit(0)"), passes=False),
                Example(kind="hack", task=task, response=_fenced(equal), passes=False),
            ]
        return (
            *found,
            Example(kind="gold", task=io, response=_fenced("print(sum(map(int, input().split())))"), passes=True),
            Example(kind="near miss", task=io, response=_fenced("print(4)"), passes=False),
            Example(kind="hack", task=io, response=_fenced("print(1, 2, 3, 4, 5)"), passes=False),
        )

    def check_task(self, task: Task) -> None:
        """Refuse a task whose data cannot be understood."""
        read_spec(task.data)

    async def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout. Raises DataError when the task's data cannot be understood."""
        spec = read_spec(rollout.task.data)
        began = time.monotonic()
        program = _program_of(rollout)
        if program is None:
            reason, detail = "no_answer", "no program was submitted"
        elif spec.cases:
            reason, detail = await self._judge_cases(program, spec)
        elif spec.io:
            reason, detail = await self._judge_io(program, spec)
        else:
            reason, detail = await self._judge_tests(program, spec)
        return _verdict(reason, detail, time.monotonic() - began)

    async def _judge_cases(self, program: str, spec: CodeSpec) -> tuple[str, str]:
        calls = [
            Call(function=spec.entry_point or "", args=_numbers(case.get("args", [])), kwargs=_numbers(case["kwargs"]))
            for case in spec.cases
        ]
        done = await self.services.sandbox.run_calls(program, calls, files=spec.workspace, limits=spec.limits)
        if done.load.reason != "ok":
            return done.load.reason, done.load.detail
        return _compare_cases(spec, done)

    async def _judge_io(self, program: str, spec: CodeSpec) -> tuple[str, str]:
        for number, pair in enumerate(spec.io, 1):
            done = await self.services.sandbox.run(
                program, stdin=pair.get("stdin", ""), files=spec.workspace, limits=spec.limits
            )
            if done.reason != "ok":
                return done.reason, f"input {number}: {done.detail}"
            if not same_text(pair["stdout"], done.stdout, compare=spec.compare):
                return "wrong_answer", f"input {number}: expected {_show(pair['stdout'])}, got {_show(done.stdout)}"
        return "passed", ""

    async def _judge_tests(self, program: str, spec: CodeSpec) -> tuple[str, str]:
        done: Execution = await self.services.sandbox.run_tests(
            program, spec.tests, entry_point=spec.entry_point, files=spec.workspace, limits=spec.limits
        )
        return ("passed", "") if done.reason == "ok" else (done.reason, done.detail)


def _fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def read_spec(data: Mapping[str, JSON]) -> CodeSpec:
    """Check a task's data. Raises DataError that names the key."""
    given = [kind for kind in _KINDS if data.get(kind) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise DataError(f"a code_tests task needs exactly one of cases, io and tests, not {found}")
    kind = given[0]
    entry_point = data.get("entry_point")
    if entry_point is not None and not isinstance(entry_point, str):
        raise DataError(f"entry_point must be text, not {_show(entry_point)}")
    if kind == "cases" and not entry_point:
        raise DataError("entry_point is missing: it names the function that the cases call")
    known = TEXT_COMPARES if kind == "io" else VALUE_COMPARES
    compare = data.get("compare") or known[0]
    if compare not in known:
        raise DataError(
            f"compare is {_show(compare)}, but for {kind} it is one of {', '.join(known)}{nearest(str(compare), known)}"
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
    return tuple({**case, "kwargs": case.get("kwargs") or {}} for case in cases)


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
            raise DataError(f"workspace: the file {_show(path)} must be text")
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
            raise DataError(f"limits.{name} is {_show(value)}; it must be a positive {wanted}")
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


def _program_of(rollout: Rollout) -> str | None:
    evidence = rollout.evidence
    if isinstance(evidence, Mapping) and "program" in evidence:
        program = evidence["program"]
        return program if isinstance(program, str) and program.strip() else None
    return extract_program(rollout.response)


def _compare_cases(spec: CodeSpec, done: CallsExecution) -> tuple[str, str]:
    for number, (case, result) in enumerate(zip(spec.cases, done.results, strict=False), 1):
        shown = _show_call(spec.entry_point or "", case)
        if result.reason != "ok":
            return result.reason, f"case {number}, {shown}: {result.error}"
        if not same_value(case["expected"], result.value, compare=spec.compare):
            return (
                "wrong_answer",
                f"case {number}, {shown}: expected {_show(case['expected'])}, got {_show(result.value)}",
            )
    if len(done.results) < len(spec.cases):
        return "exited_early", f"only {len(done.results)} of {len(spec.cases)} calls were made"
    return "passed", ""


def _show_call(function: str, case: Mapping[str, JSON]) -> str:
    words = [_show(value) for value in case.get("args", [])]
    words += [f"{name}={_show(value)}" for name, value in case["kwargs"].items()]
    return f"{function}({', '.join(words)})"[: 2 * _SHOWN]


def _show(value: object) -> str:
    """A value for people, cut short; printing it must not fail or take long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        # Integers of more than 4300 digits refuse to be printed.
        text = f"a {type(value).__name__} that is too large to show"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _verdict(reason: str, detail: str, seconds: float) -> Verdict:
    if reason in UNJUDGED_REASONS:
        return Verdict(verifier=CodeTests.name, score=None, passed=None, reason=reason, detail=detail, seconds=seconds)
    passed = reason == "passed"
    return Verdict(
        verifier=CodeTests.name,
        score=1.0 if passed else 0.0,
        passed=passed,
        reason=reason,
        detail=detail,
        seconds=seconds,
    )
