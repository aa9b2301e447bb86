"""The built-in environment with the real sandbox and verifier: gold passes, what is no answer scores 0."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from agentrl.api import Message, Rollout, Stop, Task, Turn, Verdict
from agentrl.config import Layer
from agentrl.loops.resolve import resolve
from agentrl.loops.wiring import Wired, wire


def rollout_of(wired: Wired, task: Task, texts: list[str]) -> asyncio.Future[Rollout]:
    async def run() -> Rollout:
        env = wired.make_env()
        env.reset(task=task, seed=1)
        turns = []
        for text in texts:
            action = Message(role="assistant", content=text)
            result = await env.step(action)  # type: ignore[misc]
            turns.append(Turn(segment=0, span=(0, 0), completion=None, action=action, observation=result.observation))
            if result.terminated:
                break
        return Rollout(
            task=task, index=0, seed=1, turns=tuple(turns), segments=(), stop=Stop.FINISHED, evidence=env.evidence()
        )

    return asyncio.ensure_future(run())


async def verdicts(wired: Wired, split: str, attempt: Callable[[Task], list[str]], count: int) -> list[Verdict]:
    rollouts = [await rollout_of(wired, task, attempt(task)) for task in wired.tasks(split)[:count]]
    return [(await wired.scorer.score(rollout)).verdicts[0] for rollout in rollouts]


def judged(split: str, attempt: Callable[[Task], list[str]], count: int = 25) -> list[Verdict]:
    async def scenario() -> list[Verdict]:
        async with wire(resolve([Layer("test", {"env": {"name": "code_exec"}})])) as wired:
            return await verdicts(wired, split, attempt, count)

    return asyncio.run(scenario())


def fenced(program: object) -> str:
    return f"```python\n{program}\n```"


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_gold_passes(split: str) -> None:
    assert {v.reason for v in judged(split, lambda task: [fenced(task.answer)])} == {"passed"}


@pytest.mark.parametrize(
    "attempt",
    [
        lambda task: [""],
        lambda task: [task.messages[0].content],
        lambda task: [fenced("import os\nos._exit(0)")],
        lambda task: [fenced("exit(0)")],
        lambda task: [fenced("def f(*args):\n    return 0")],
        lambda task: [fenced("class Yes:\n    def __eq__(self, other): return True\ndef f(*args):\n    return Yes()")],
        lambda task: ["def f("],
    ],
    ids=["empty", "echo", "os._exit", "exit", "constant", "always equal", "junk"],
)
def test_what_is_no_answer_scores_nothing(attempt: Callable[[Task], list[str]]) -> None:
    found = judged("test", attempt)
    assert {(v.score, v.passed) for v in found} == {(0.0, False)}


def test_the_same_actions_give_the_same_observations() -> None:
    async def scenario() -> list[list[Turn]]:
        async with wire(resolve([Layer("test", {"env": {"name": "code_exec"}})])) as wired:
            task = wired.tasks("test")[3]
            texts = [fenced("def f(*args):\n    return 41"), fenced("def f(:\n    pass"), fenced(task.answer)]
            return [list((await rollout_of(wired, task, texts)).turns) for _ in range(2)]

    first, second = asyncio.run(scenario())
    assert first == second
    assert len(first) == 3
    assert "41" in first[0].observation[0].content
    assert "does not load" in first[1].observation[0].content
