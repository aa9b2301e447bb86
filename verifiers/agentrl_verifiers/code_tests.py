"""Judges a program by running it: calls with expected values, inputs with expected output, or assert-style tests."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import ClassVar

from agentrl.api import (
    JSON,
    UNJUDGED_REASONS,
    Call,
    CallsExecution,
    CodeSpec,
    Example,
    Execution,
    Rollout,
    Task,
    Verdict,
    Verifier,
    extract_program,
    read_code_spec,
    same_text,
    same_value,
    show_value,
)

_LONGEST_CALL = 400


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
        read_code_spec(task.data)

    async def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout. Raises DataError when the task's data cannot be understood."""
        spec = read_code_spec(rollout.task.data)
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
        calls = [Call(function=spec.entry_point or "", args=case["args"], kwargs=case["kwargs"]) for case in spec.cases]
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
                return (
                    "wrong_answer",
                    f"input {number}: expected {show_value(pair['stdout'])}, got {show_value(done.stdout)}",
                )
        return "passed", ""

    async def _judge_tests(self, program: str, spec: CodeSpec) -> tuple[str, str]:
        done: Execution = await self.services.sandbox.run_tests(
            program, spec.tests, entry_point=spec.entry_point, files=spec.workspace, limits=spec.limits
        )
        return ("passed", "") if done.reason == "ok" else (done.reason, done.detail)


def _fenced(program: str) -> str:
    return f"```python\n{program}\n```"


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
                f"case {number}, {shown}: expected {show_value(case['expected'])}, got {show_value(result.value)}",
            )
    if len(done.results) < len(spec.cases):
        return "exited_early", f"only {len(done.results)} of {len(spec.cases)} calls were made"
    return "passed", ""


def _show_call(function: str, case: Mapping[str, JSON]) -> str:
    words = [show_value(value) for value in case.get("args", [])]
    words += [f"{name}={show_value(value)}" for name, value in case["kwargs"].items()]
    return f"{function}({', '.join(words)})"[:_LONGEST_CALL]


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
