"""`math_answer`: arithmetic whose splits share nothing, own questions in GSM8K's form, a Python tool when asked for."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agentrl_envs.math_answer import MathAnswer, Options
from agentrl_envs.math_answer.arithmetic import Line, Problem, carry_out, draw_problem, working
from agentrl_envs.math_answer.own import gold_of
from hypothesis import given
from hypothesis import strategies as st

from agentrl.api import (
    ConfigError,
    DataError,
    Execution,
    Message,
    SandboxUnavailable,
    Services,
    Task,
    ToolCall,
)
from agentrl.config import parse_options

SPLITS = ("train", "validation", "test")
SAMPLE = Path(__file__).parents[1] / "verifiers" / "gsm8k_sample.jsonl"


def env(**options: Any) -> MathAnswer:
    return MathAnswer(Options(**options), Services())


def expression(task: Task) -> str:
    return task.messages[0].content.removeprefix("What is ").removesuffix("?")


def kind_of(text: str) -> tuple[str, ...]:
    """The numbers and operations of an expression, whatever their order."""
    return tuple(sorted(re.findall(r"\d+|[+*]", text)))


@pytest.mark.parametrize("settings", [{}, {"digits": 1, "operations": ("+", "-", "*"), "steps": 3}, {"digits": 3}])
def test_gold_is_the_value_of_the_expression(settings: dict[str, Any]) -> None:
    for split in SPLITS:
        for task in env(**settings).tasks(split):
            assert str(eval(expression(task))) == task.answer
            assert not str(task.answer).startswith("-")


@pytest.mark.parametrize("digits", [1, 2])
def test_no_split_holds_a_problem_of_another_in_any_order(digits: int) -> None:
    found = env(digits=digits, operations=("+", "*"), steps=2)
    kinds = [{kind_of(expression(task)) for task in found.tasks(split)} for split in SPLITS]
    assert sum(map(len, kinds)) == len(set().union(*kinds))
    ids = [task.id for split in SPLITS for task in found.tasks(split)]
    assert len(ids) == len(set(ids))


def test_sizes_and_tags() -> None:
    found = env(operations=("+", "-", "*"), steps=2)
    assert [len(found.tasks(split)) for split in SPLITS] == [1000, 100, 200]
    assert {tag for task in found.tasks("test") for tag in task.tags} == {
        "steps:1", "steps:2", "operation:+", "operation:-", "operation:*",
    }  # fmt: skip
    assert [task.id for task in env().tasks("test")] == [task.id for task in env().tasks("test")]


def test_a_used_up_kind_of_problem_gives_fewer_tasks() -> None:
    found = env(digits=1, operations=("+",))
    counts = [len(found.tasks(split)) for split in SPLITS]
    assert sum(counts) == 100
    assert min(counts) > 0


def test_the_working_follows_the_order_of_arithmetic() -> None:
    lines = working(Problem(numbers=(12, 3, 4, 1), operations=("+", "*", "-")))
    assert [str(line) for line in lines] == ["3*4=12", "12+12=24", "24-1=23"]


def test_a_slip_makes_exactly_one_operation_wrong_and_the_rest_follows() -> None:
    for seed in range(300):
        random_ = random.Random(seed)
        problem = draw_problem(random_, digits=2, operations=("+", "-", "*"), steps=3)
        lines = working(problem, random_)
        wrong = [line for line in lines if eval(f"{line.left}{line.operation}{line.right}") != line.result]
        assert len(wrong) == 1
        assert len(lines) == len(problem.operations)


PAPER: list[tuple[tuple[int, str, int], list[str]]] = [
    ((37, "+", 48), ["7+8=15", "3+4+1=8"]),
    ((95, "+", 7), ["5+7=12", "9+0+1=10"]),
    ((81, "-", 46), ["11-6=5", "7-4=3"]),
    ((100, "-", 1), ["10-1=9", "9-0=9", "0-0=0"]),
    ((7, "+", 8), []),
    ((12, "*", 12), []),
]


@pytest.mark.parametrize(("operation", "work"), PAPER)
def test_digits_are_worked_as_on_paper(operation: tuple[int, str, int], work: list[str]) -> None:
    line = carry_out(*operation)
    assert list(line.work) == work
    assert line.result == eval("".join(map(str, operation)))


@given(st.integers(0, 9999), st.sampled_from("+-*"), st.integers(0, 9999), st.integers(0, 100))
def test_the_work_is_right_and_a_slip_is_one_wrong_digit(left: int, operation: str, right: int, seed: int) -> None:
    left, right = max(left, right), min(left, right)

    def wrong(line: Line) -> int:
        return sum(eval(text.split("=")[0]) != int(text.split("=")[1]) for text in line.work)

    line = carry_out(left, operation, right)
    assert line.result == eval(f"{left}{operation}{right}")
    assert wrong(line) == 0
    flawed = carry_out(left, operation, right, random.Random(seed))
    assert flawed.result != line.result
    assert flawed.result >= 0
    assert wrong(flawed) == bool(flawed.work)


@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_the_share_of_flawed_demonstrations_is_the_one_asked_for(rate: float) -> None:
    found = env(demonstration_count=500, demonstration_flaw_rate=rate)
    held_out = {task.messages[0].content for split in ("validation", "test") for task in found.tasks(split)}
    right = 0
    for demonstration in found.demonstrations("train"):
        asked, said = demonstration.messages
        assert asked.content not in held_out
        value = eval(asked.content.removeprefix("What is ").removesuffix("?"))
        right += said.content.endswith(f"#### {value}")
    assert abs(right / 500 - (1 - rate)) < (0.06 if 0 < rate < 1 else 1e-9)
    assert list(found.demonstrations("test")) == []


def test_gsm8k_is_read_as_it_is() -> None:
    found = env(source=({"path": str(SAMPLE), "splits": {"train": 1.0}},))
    lines = [json.loads(line) for line in SAMPLE.read_text("utf-8").splitlines()]
    tasks = found.tasks("train")
    assert [task.answer for task in tasks] == [line["answer"].rsplit("#### ", 1)[1] for line in lines]
    assert tasks[0].messages[0].content.startswith(lines[0]["question"].strip())
    solutions = [demonstration.messages[-1].content for demonstration in found.demonstrations("train")]
    assert "<<" in lines[0]["answer"], "the file carries marks for a calculator, which no policy should learn to write"
    assert solutions == [re.sub("<<.*?>>", "", line["answer"]) for line in lines]


@pytest.mark.parametrize(
    ("answer", "gold"), [("#### 7", "7"), ("a\n#### 1,000 ", "1,000"), ("x = 3", "x = 3"), (4, 4), (0.5, 0.5)]
)
def test_the_gold_of_an_answer(answer: object, gold: object) -> None:
    assert gold_of(answer, "here") == gold


@pytest.mark.parametrize("answer", ["", "working\n####", "#### ", True, None, ["7"]])
def test_an_answer_without_a_gold_is_an_error_with_its_place(answer: object) -> None:
    with pytest.raises(DataError, match=r"tasks.jsonl, line 3: "):
        gold_of(answer, "tasks.jsonl, line 3")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"source": "a.jsonl", "digits": 3}, "digits belongs to the embedded arithmetic"),
        ({"source": "a.jsonl", "demonstration_flaw_rate": 0.5}, "demonstration_flaw_rate belongs to the embedded"),
        ({"source_seed": 1}, "source_seed draws mixtures by weight"),
        ({"tools": ["bash"]}, "tools"),
        ({"operations": []}, "operations"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_options(Options, options, "env.options")


class FakeSandbox:
    """Gives the executions that it was made with."""

    def __init__(self, *executions: Execution) -> None:
        self.executions = list(executions)
        self.programs: list[str] = []

    async def run(self, program: str, **rest: Any) -> Execution:
        self.programs.append(program)
        return self.executions.pop(0)


def with_tool(*executions: Execution) -> tuple[MathAnswer, FakeSandbox]:
    sandbox = FakeSandbox(*executions)
    made = MathAnswer(Options(tools=("python",)), Services(available={"sandbox": sandbox}))
    made.reset(task=made.tasks("test")[0], seed=0)
    return made, sandbox


def calling(code: object) -> Message:
    return Message(
        role="assistant", content="", tool_calls=(ToolCall(id="1", name="python", arguments={"code": code}),)
    )


def told(made: MathAnswer, action: Message) -> Sequence[Message]:
    result = asyncio.run(made.step(action))
    assert not result.terminated
    return result.observation


TOLD: list[tuple[Execution, str]] = [
    (Execution(stdout="85\n"), "85\n"),
    (Execution(), "[nothing was printed]"),
    (
        Execution(stdout="1\n", stderr="Traceback\n  x\nValueError: no\n", exit_code=1, reason="runtime_error"),
        "1\nValueError: no\n[runtime_error]",
    ),
    (Execution(reason="timeout"), "[timeout]"),
]


@pytest.mark.parametrize(("execution", "text"), TOLD)
def test_the_tool_tells_what_was_printed(execution: Execution, text: str) -> None:
    made, sandbox = with_tool(execution)
    (message,) = told(made, calling("print(1)"))
    assert (message.role, message.content, message.tool_call_id) == ("tool", text, "1")
    assert sandbox.programs == ["print(1)"]


def test_long_output_is_cut() -> None:
    made, _ = with_tool(Execution(stdout="a" * 100_000))
    (message,) = told(made, calling("..."))
    assert len(message.content) < 2100
    assert "[cut: 2000 of 100000 characters]" in message.content


def test_our_own_failure_is_raised_and_the_policys_is_told() -> None:
    made, _ = with_tool(Execution(cause="ours", reason="sandbox_unavailable", detail="gone"))
    with pytest.raises(SandboxUnavailable, match="gone"):
        asyncio.run(made.step(calling("1")))
    made, sandbox = with_tool()
    (message,) = told(made, calling(["no text"]))
    assert message.content.startswith("error: code: ")
    assert sandbox.programs == []


def test_without_the_tool_nothing_is_offered_and_no_sandbox_is_needed() -> None:
    made = env()
    assert (list(made.tools), MathAnswer.needs_for(Options())) == ([], frozenset())
    assert asyncio.run(made.step(calling("print(1)"))).terminated
    options = Options(tools=("python",))
    assert MathAnswer.needs_for(options) == {"sandbox"}
    assert [spec.name for spec in MathAnswer(options, Services()).tools] == ["python"]


def test_demonstrations_with_the_tool_call_it() -> None:
    found = MathAnswer(Options(tools=("python",), demonstration_count=20, demonstration_flaw_rate=0.0), Services())
    for demonstration in found.demonstrations("train"):
        asked, call, printed, said = demonstration.messages
        value = eval(asked.content.removeprefix("What is ").removesuffix("?"))
        assert call.tool_calls[0].arguments == {"code": f"print({expression_of(asked)})"}
        assert printed.content == f"{value}\n"
        assert said.content == f"#### {value}"
        assert [spec.name for spec in demonstration.tools] == ["python"]


def expression_of(asked: Message) -> str:
    return asked.content.removeprefix("What is ").removesuffix("?")
