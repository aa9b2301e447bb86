"""Whatever a program returns or prints can be told to the policy, and demonstrations tell the same as the sandbox."""

from __future__ import annotations

import asyncio

import pytest
from agentrl_envs.code_exec import CodeExec, Options
from agentrl_envs.code_exec.evaluate import run_own
from agentrl_envs.code_exec.feedback import observe

from agentrl.api import JSON, Call, CallResult, CallsExecution, Execution, Message, Services, Task
from agentrl.sandbox import open_sandbox

EXAMPLES = [{"args": [1], "expected": 4}, {"args": [0], "expected": 3}]


class PlayedSandbox:
    """Runs the tests' own programs in this process."""

    async def run_calls(self, program: str, calls: list[Call], **rest: JSON) -> CallsExecution:
        return run_own(program, calls[0].function, [call.args for call in calls])


@pytest.mark.parametrize(
    "value", [10**9999, "x" * 5000, list(range(5000)), "\ud800"], ids=["integer", "text", "list", "surrogate"]
)
def test_whatever_a_program_returns_can_be_shown(value: object) -> None:
    result = CallResult(value=value, stdout="y\n" * 5000)
    text = observe("f", EXAMPLES, CallsExecution(load=Execution(), results=(result,)))
    assert len(text) < 200
    assert "\n" not in text
    assert text.startswith("f(1) printed y y y")
    text.encode()


def test_hints_of_newer_interpreters_are_not_told() -> None:
    result = CallResult(reason="runtime_error", error="NameError: name 'm' is not defined. Did you mean: 'n'? (line 2)")
    text = observe("f", EXAMPLES, CallsExecution(load=Execution(), results=(result,)))
    assert text == "f(1) failed: NameError: name 'm' is not defined, expected 4."


def test_a_truth_is_no_number() -> None:
    execution = CallsExecution(load=Execution(), results=(CallResult(value=True),))
    assert observe("f", [{"args": [1], "expected": 1}], execution) == "f(1) gave True, expected 1."


def test_an_earlier_program_never_stands_in_for_the_last_answer() -> None:
    async def attempts() -> tuple[JSON, JSON, JSON]:
        env = CodeExec(Options(), Services(available={"sandbox": PlayedSandbox()}))
        task = Task(id="t", messages=(), data={"entry_point": "f", "examples": EXAMPLES, "cases": []})
        env.reset(task=task, seed=0)
        await env.step(Message(role="assistant", content="```python\ndef f(n):\n    return 9\n```"))
        first = env.evidence()
        await env.step(Message(role="assistant", content="I do not know."))
        second = env.evidence()
        env.reset(task=task, seed=1)
        return first, second, env.evidence()

    none = {"program": None}
    assert asyncio.run(attempts()) == ({"program": "def f(n):\n    return 9\n"}, none, none)


def test_demonstrations_show_what_the_sandbox_would_have_shown() -> None:
    """Replays demonstrations against the real sandbox: the text in the data is the environment's to the letter."""
    catalogue = CodeExec(Options(demonstration_count=40, demonstration_flaw_rate=0.9), Services())

    async def replay() -> int:
        sandbox = open_sandbox(workers=1)
        compared = 0
        try:
            for demonstration in catalogue.demonstrations("train"):
                prompt, *rest = demonstration.messages
                examples = [_example(line) for line in prompt.content.split("\n")[1:]]
                task = Task(id="t", messages=(prompt,), data={"entry_point": "f", "examples": examples, "cases": []})
                env = CodeExec(Options(), Services(available={"sandbox": sandbox}))
                env.reset(task=task, seed=0)
                for action, told in zip(rest[::2], [*rest[1::2], None], strict=True):
                    result = await env.step(action)
                    assert result.observation == (() if told is None else (told,))
                    assert result.terminated == (told is None)
                    compared += told is not None
        finally:
            await sandbox.close()
        return compared

    assert asyncio.run(replay()) > 20


def _example(line: str) -> JSON:
    call, expected = line.split(" == ")
    return {"args": eval(call, {"f": lambda *args: list(args)}), "expected": eval(expected)}
