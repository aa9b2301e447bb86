"""`code_exec`: splits that share nothing, observations that are what running gave, texts that stay as they are."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from agentrl_envs.code_exec import CodeExec
from agentrl_envs.code_exec.basic import basic_tasks
from agentrl_envs.code_exec.env import Options
from agentrl_envs.code_exec.evaluate import run_own
from agentrl_envs.code_exec.feedback import NO_PROGRAM, examples_passed, observe

from agentrl.api import (
    Call,
    CallResult,
    CallsExecution,
    Execution,
    Message,
    SandboxUnavailable,
    Services,
    StepResult,
    Task,
    extract_program,
)
from agentrl.records.serial import task_to_json

SPLITS = ("train", "validation", "test")
PROMPTS_HASH = "000424d35158e13b"
OBSERVATIONS_HASH = "86a8e47c67a8def8"


class FakeSandbox:
    """Answers `run_calls` with given executions and remembers what it was asked."""

    def __init__(self, *executions: CallsExecution) -> None:
        self.executions = list(executions)
        self.asked: list[tuple[str, list[Call]]] = []

    async def run_calls(self, program: str, calls: Sequence[Call], **rest: Any) -> CallsExecution:
        self.asked.append((program, list(calls)))
        return self.executions.pop(0)


def values(*results: object) -> CallsExecution:
    return CallsExecution(load=Execution(), results=tuple(CallResult(value=value) for value in results))


def env(*executions: CallsExecution, **options: Any) -> tuple[CodeExec, FakeSandbox]:
    sandbox = FakeSandbox(*executions)
    return CodeExec(Options(**options), Services(available={"sandbox": sandbox})), sandbox


TASK = Task(
    id="t",
    messages=(Message(role="user", content="Write f(n): add 1."),),
    data={
        "entry_point": "f",
        "examples": [{"args": [1], "expected": 2}, {"args": [5], "expected": 6}],
        "cases": [{"args": [9], "expected": 10}],
    },
)


def act(environment: CodeExec, text: str) -> StepResult:
    return asyncio.run(environment.step(Message(role="assistant", content=text)))


PROGRAM = "```python\ndef f(n):\n    return n + 1\n```"


def everything() -> Mapping[str, Sequence[Task]]:
    return {split: basic_tasks(split) for split in SPLITS}


def test_sizes_and_tags() -> None:
    tasks = everything()
    assert (len(tasks["train"]), len(tasks["validation"]), len(tasks["test"])) == (600, 100, 200)
    unseen = [task for task in tasks["test"] if "template:unseen" in task.tags]
    assert len(unseen) == 40
    for split in ("train", "validation"):
        assert all("template:seen" in task.tags for task in tasks[split])
    skills = {tag for task in tasks["train"] for tag in task.tags if tag.startswith("skill:")}
    assert skills == {"skill:arithmetic", "skill:strings", "skill:lists", "skill:conditions", "skill:loops"}
    assert {tag for task in tasks["test"] for tag in task.tags if tag.startswith("level:")} == {
        "level:1", "level:2", "level:3",
    }  # fmt: skip


def test_no_task_is_shared() -> None:
    tasks = everything()
    for what in (lambda t: t.messages[0].content, lambda t: t.answer, lambda t: t.id):
        sets = [{what(task) for task in tasks[split]} for split in SPLITS]
        assert sum(map(len, sets)) == len(set().union(*sets))
    assert len({task.id for split in SPLITS for task in tasks[split]}) == 900


def test_hidden_cases_are_not_the_visible_ones() -> None:
    for tasks in everything().values():
        for task in tasks:
            visible = [json.dumps(example["args"]) for example in task.data["examples"]]
            hidden = [json.dumps(case["args"]) for case in task.data["cases"]]
            assert len(visible) == 2
            assert len(hidden) >= 4
            assert not set(visible) & set(hidden)


def test_gold_passes_all_cases_and_one_constant_never_does() -> None:
    for tasks in everything().values():
        for task in tasks:
            for pool in (task.data["examples"], task.data["cases"]):
                arguments = [case["args"] for case in pool]
                assert examples_passed(pool, run_own(str(task.answer), "f", arguments)) == len(pool)
            answers = {json.dumps(case["expected"]) for case in (*task.data["examples"], *task.data["cases"])}
            assert len(answers) > 1, task.id


def test_the_rendered_tasks_are_frozen() -> None:
    """The embedded policy was made on these texts: changing one silently would make it worse."""
    text = json.dumps(
        {split: [task_to_json(t) for t in tasks] for split, tasks in everything().items()}, sort_keys=True
    )
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == PROMPTS_HASH


OBSERVED = [
    (CallsExecution(load=Execution(reason="syntax_error", detail="SyntaxError: expected ':' (line 1)")),
     "It does not load: SyntaxError: expected ':' (line 1)."),
    (values(3, 6), "f(1) gave 3, expected 2."),
    (values(2, None), "f(5) gave None, expected 6."),
    (CallsExecution(load=Execution(), results=(
        CallResult(reason="runtime_error", error="NameError: name 'x' is not defined (line 2)"),)),
     "f(1) failed: NameError: name 'x' is not defined (line 2), expected 2."),
    (CallsExecution(load=Execution(), results=(CallResult(value=0, stdout="hello\n"),)),
     "f(1) printed hello, gave 0, expected 2."),
    (CallsExecution(load=Execution(), results=(CallResult(value=2),)), "f(5) failed: exited_early, expected 6."),
    (values("x" * 500, 6), "f(1) gave '" + "x" * 56 + "..., expected 2."),
]  # fmt: skip


@pytest.mark.parametrize(("execution", "text"), OBSERVED)
def test_observations_say_what_failed(execution: CallsExecution, text: str) -> None:
    assert observe("f", TASK.data["examples"], execution) == text


def test_a_failing_attempt_is_told_and_a_passing_one_ends() -> None:
    environment, sandbox = env(values(1, 5), values(2, 6))
    first, _ = environment.reset(task=TASK, seed=0)
    assert first == list(TASK.messages)
    result = act(environment, PROGRAM)
    assert not result.terminated
    assert result.observation == (Message(role="user", content="f(1) gave 1, expected 2."),)
    assert result.info == {"examples_passed": 0, "examples": 2}
    assert sandbox.asked[0][1] == [Call(function="f", args=[1]), Call(function="f", args=[5])]
    result = act(environment, PROGRAM)
    assert result.terminated
    assert result.observation == ()
    assert environment.evidence() == {"program": extract_program(PROGRAM)}


def test_attempts_run_out() -> None:
    environment, _ = env(values(1, 5), values(1, 5), max_turns=2)
    environment.reset(task=TASK, seed=0)
    assert not act(environment, PROGRAM).terminated
    assert act(environment, PROGRAM).terminated


def test_a_message_without_a_program() -> None:
    environment, sandbox = env(max_turns=2)
    environment.reset(task=TASK, seed=0)
    result = act(environment, "I would rather not.\nSorry.")
    assert result.observation[0].content == NO_PROGRAM
    assert sandbox.asked == []
    assert environment.evidence() == {"program": None}


def test_our_own_failure_is_no_observation() -> None:
    ours = CallsExecution(load=Execution(reason="sandbox_unavailable", cause="ours", detail="worker died"))
    environment, _ = env(ours)
    environment.reset(task=TASK, seed=0)
    with pytest.raises(SandboxUnavailable, match="worker died"):
        act(environment, PROGRAM)


def test_demonstrations_show_what_running_gave() -> None:
    environment, _ = env(demonstration_count=150, demonstration_flaw_rate=0.7)
    test_prompts = {task.messages[0].content for split in ("validation", "test") for task in basic_tasks(split)}
    found = list(environment.demonstrations("train"))
    assert len(found) == 150
    lengths = set()
    for demonstration in found:
        prompt, *rest = demonstration.messages
        assert prompt.content not in test_prompts
        assert [m.role for m in rest] == ["assistant", "user"] * (len(rest) // 2) + ["assistant"]
        lengths.add(len(rest))
        for attempt, told in zip(rest[::2], rest[1::2], strict=False):
            program = extract_program(attempt.content)
            assert program is not None
            call, _, expected = prompt.content.splitlines()[1].partition(" == ")
            assert told.content.startswith(("It does not load: ", "f("))
            assert call.startswith("f(")
            assert expected
    assert lengths == {1, 3, 5}
    assert list(environment.demonstrations("test")) == []


def test_flawless_demonstrations_take_one_turn() -> None:
    environment, _ = env(demonstration_count=50, demonstration_flaw_rate=0.0)
    assert all(len(demonstration.messages) == 2 for demonstration in environment.demonstrations("train"))


def test_the_demonstrations_are_frozen() -> None:
    environment, _ = env(demonstration_count=200, demonstration_flaw_rate=0.9)
    texts = [[m.content for m in demonstration.messages] for demonstration in environment.demonstrations("train")]
    assert hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16] == OBSERVATIONS_HASH
