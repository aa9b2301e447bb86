"""The verifier on top of the sandbox: what it asks, what it says, and what it refuses to judge."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from agentrl_verifiers.code_tests import CodeTests

from agentrl.api import (
    CallResult,
    CallsExecution,
    DataError,
    Execution,
    Message,
    Options,
    Rollout,
    Services,
    Stop,
    Task,
    Turn,
    Verdict,
    read_code_spec,
)

Run = Callable[..., Any]
ADD = {"cases": [{"args": [1, 2], "expected": 3}], "entry_point": "add"}


def rollout(data: dict[str, Any], *, program: Any = None, response: str = "") -> Rollout:
    action = Message(role="assistant", content=response)
    return Rollout(
        task=Task(id="t", messages=(), data=data),
        index=0,
        seed=0,
        turns=(Turn(segment=0, span=(0, 0), completion=None, action=action),),
        segments=(),
        stop=Stop.FINISHED,
        evidence=None if program is None else {"program": program},
    )


def verdict(sandbox: object, attempt: Rollout) -> Any:
    return CodeTests(Options(), Services(available={"sandbox": sandbox})).verify(attempt)


def judge(in_sandbox: Run, data: dict[str, Any], program: str) -> Verdict:
    result: Verdict = in_sandbox(lambda sandbox: verdict(sandbox, rollout(data, program=program)))
    return result


class Canned:
    """A sandbox that answers with what it is given."""

    def __init__(self, *, run: Execution | None = None, calls: CallsExecution | None = None) -> None:
        self.answers = {"run": run, "calls": calls}
        self.asked: list[Any] = []

    async def run(self, program: str, **options: Any) -> Execution | None:
        self.asked.append((program, options))
        return self.answers["run"]  # type: ignore[return-value]

    async def run_calls(self, program: str, calls: Any, **options: Any) -> CallsExecution | None:
        self.asked.append((program, calls, options))
        return self.answers["calls"]  # type: ignore[return-value]

    async def run_tests(self, program: str, tests: str, **options: Any) -> Execution | None:
        return await self.run(program, tests=tests, **options)


def canned(sandbox: Canned, attempt: Rollout) -> Verdict:
    result: Verdict = asyncio.run(verdict(sandbox, attempt))
    return result


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "exactly one of cases, io and tests, not none"),
        (ADD | {"io": [{"stdout": ""}]}, "not cases and io"),
        ({"cases": [], "entry_point": "f"}, "cases must be a list with at least one entry"),
        ({"io": []}, "io must be a list with at least one entry"),
        ({"tests": "  \n"}, "tests must be Python text"),
        ({"cases": [{"args": [1], "expected": 1}]}, "entry_point is missing"),
        ({"cases": [{"args": [1]}], "entry_point": "f"}, "case 1 must be an object with 'expected'"),
        ({"cases": [{"args": 1, "expected": 1}], "entry_point": "f"}, "args of case 1 must be a list"),
        ({"cases": [{"kwargs": [1], "expected": 1}], "entry_point": "f"}, "kwargs of case 1 must be an object"),
        ({"io": [{"stdin": "1"}]}, "entry 1 must be an object with the text 'stdout'"),
        ({"io": [{"stdout": "1", "stdin": 1}]}, "stdin of entry 1 must be text"),
        (ADD | {"entry_point": 3}, "entry_point must be text"),
        (ADD | {"compare": "tokens"}, "compare is 'tokens', but for cases it is one of default, float"),
        ({"io": [{"stdout": ""}], "compare": "token"}, "did you mean 'tokens'"),
        (ADD | {"workspace": ["a"]}, "workspace must be an object"),
        (ADD | {"workspace": {"a": 1}}, "the file 'a' must be text"),
        (ADD | {"limits": {"cpu": 1}}, "limits.cpu is unknown"),
        (ADD | {"limits": {"memory": 1}}, "did you mean 'memory_mb'"),
        (ADD | {"limits": {"cpu_seconds": 0}}, "limits.cpu_seconds is 0; it must be a positive number"),
        (ADD | {"limits": {"processes": 1.5}}, "limits.processes is 1.5; it must be a positive integer"),
        (ADD | {"limits": {"seconds": True}}, "limits.seconds is True"),
        (ADD | {"limits": 3}, "limits must be an object"),
    ],
)
def test_a_malformed_task_is_an_error_that_names_the_key(data: dict[str, Any], words: str) -> None:
    with pytest.raises(DataError) as caught:
        read_code_spec(data)
    assert words in str(caught.value)


def test_what_else_a_task_carries_is_no_concern() -> None:
    spec = read_code_spec(ADD | {"io": None, "difficulty": 3, "limits": None, "compare": None})
    assert (spec.compare, spec.limits.cpu_seconds) == ("default", 4.0)


@pytest.mark.parametrize("program", ["", " \n", 3, ["x"]])
def test_no_program_is_no_answer(program: Any) -> None:
    result = canned(Canned(), rollout(ADD, program=program, response="```python\nprint(1)\n```"))
    assert (result.score, result.reason) == (0.0, "no_answer")


def test_a_response_without_code_is_no_answer() -> None:
    assert canned(Canned(), rollout(ADD, response="I do not know.")).reason == "no_answer"


def test_the_evidence_wins_over_the_response() -> None:
    sandbox = Canned(calls=CallsExecution(load=Execution(), results=(CallResult(value=3),)))
    assert canned(sandbox, rollout(ADD, program="p", response="```python\nq\n```")).passed is True
    assert canned(sandbox, rollout(ADD, response="```python\nq\n```")).passed is True
    assert [asked[0] for asked in sandbox.asked] == ["p", "q\n"]


def test_the_expected_value_is_not_sent() -> None:
    sandbox = Canned(calls=CallsExecution(load=Execution(), results=(CallResult(value=3),)))
    data = ADD | {"workspace": {"a": "x"}, "limits": {"cpu_seconds": 1}}
    canned(sandbox, rollout(data, program="p"))
    ((program, calls, options),) = sandbox.asked
    assert (program, [(call.function, call.args, call.kwargs) for call in calls]) == ("p", [("add", [1, 2], {})])
    assert (options["files"], options["limits"].cpu_seconds) == ({"a": b"x"}, 1)


@pytest.mark.parametrize("reason", ["sandbox_unavailable", "verifier_error"])
def test_what_is_our_fault_is_no_zero(reason: str) -> None:
    ours = Execution(reason=reason, cause="ours", detail="why")
    for data, sandbox in (
        (ADD, Canned(calls=CallsExecution(load=ours))),
        ({"io": [{"stdout": ""}]}, Canned(run=ours)),
        ({"tests": "assert f()"}, Canned(run=ours)),
    ):
        result = canned(sandbox, rollout(data, program="p"))
        assert (result.score, result.passed, result.reason) == (None, None, reason)
        assert "why" in result.detail


@pytest.mark.parametrize(
    ("results", "reason", "detail"),
    [
        ((CallResult(value=4),), "wrong_answer", "case 1, add(1, 2): expected 3, got 4"),
        ((CallResult(value=10**5000),), "wrong_answer", "got a int that is too large to show"),
        ((CallResult(value="x" * 10**6),), "wrong_answer", "got 'xxx"),
        ((CallResult(reason="timeout", error="too long"),), "timeout", "case 1, add(1, 2): too long"),
        ((), "exited_early", "only 0 of 1 calls were made"),
    ],
)
def test_the_detail_names_what_went_wrong(results: tuple[CallResult, ...], reason: str, detail: str) -> None:
    result = canned(Canned(calls=CallsExecution(load=Execution(), results=results)), rollout(ADD, program="p"))
    assert (result.score, result.reason) == (0.0, reason)
    assert detail in result.detail
    assert len(result.detail) < 1000


@pytest.mark.parametrize(
    ("compare", "body", "passed"),
    [
        (None, "return [0.1 + 0.2, 2]", True),
        ("exact", "return [0.1 + 0.2, 2]", False),
        ("float", "return [0.3000001, 2]", True),
        (None, "return [2, 0.3]", False),
        ("unordered", "return [2, 0.3]", True),
    ],
)
def test_compare_for_cases(in_sandbox: Run, compare: str | None, body: str, passed: bool) -> None:
    data = {"cases": [{"expected": [0.3, 2]}], "entry_point": "f", "compare": compare}
    assert judge(in_sandbox, data, f"def f():\n    {body}").passed is passed


@pytest.mark.parametrize(
    ("compare", "printed", "passed"),
    [
        (None, "b 2 a 1", True),
        ("lines", "b 2 a 1", False),
        ("unordered_lines", "a 1\\nb 2", True),
        ("float", "b 2.0000001\\na 1", True),
        ("exact", "b 2\\na 1", False),
    ],
)
def test_compare_for_output(in_sandbox: Run, compare: str | None, printed: str, passed: bool) -> None:
    data = {"io": [{"stdout": "b 2\na 1"}], "compare": compare}
    assert judge(in_sandbox, data, f"print('{printed}')").passed is passed


def test_every_input_counts(in_sandbox: Run) -> None:
    data = {"io": [{"stdin": "1\n", "stdout": "1"}, {"stdin": "2\n", "stdout": "4"}]}
    assert judge(in_sandbox, data, "print(int(input()) ** 2)").passed is True
    half = judge(in_sandbox, data, "print(1)")
    assert (half.score, half.detail) == (0.0, "input 2: expected '4', got '1\\n'")


def test_keywords_and_numbers_that_json_lacks(in_sandbox: Run) -> None:
    data = {
        "cases": [
            {"args": [{"__float__": "nan"}], "kwargs": {"y": {"z": {"__float__": "-inf"}}}, "expected": [True, True]},
        ],
        "entry_point": "f",
    }
    assert judge(in_sandbox, data, "def f(x, y): return [x != x, y['z'] == float('-inf')]").passed is True


def test_the_workspace_is_there_for_the_program_and_not_for_the_tests(in_sandbox: Run) -> None:
    data = {"tests": "import os\nassert f() == 'x' and not os.path.exists('a.txt')", "workspace": {"a.txt": "x"}}
    assert judge(in_sandbox, data, "def f(): return open('a.txt').read()").passed is True
    for path in ("/etc/passwd", "../x", "a\0b", "program.py/x"):
        broken = judge(in_sandbox, {"io": [{"stdout": ""}], "workspace": {path: "x"}}, "print(1)")
        assert broken.score == 0.0


@pytest.mark.parametrize("data", [ADD, {"io": [{"stdout": "3"}]}, {"tests": "assert add(1, 2) == 3"}])
@pytest.mark.parametrize("program", ["pass", "import sys; sys.exit(0)", "print('passed', 1.0, True)", "add = None"])
def test_programs_that_do_nothing_score_nothing(in_sandbox: Run, data: dict[str, Any], program: str) -> None:
    assert judge(in_sandbox, data, program).score == 0.0
