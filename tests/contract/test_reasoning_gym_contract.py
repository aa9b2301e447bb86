"""The environment `reasoning_gym` over every dataset that the library lists: its golds pass, the floor does not."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from reasoning_gym.factory import DATASETS

from agentrl.api import ConfigError, DataError, Message, Rollout, Services, Stop, Task, Turn, Verdict
from agentrl.config import Layer, SandboxConfig, parse_options
from agentrl.loops.resolve import resolve
from agentrl.loops.wiring import close_services, services_for, start_services, wire
from agentrl.plugins import load_env, load_verifier
from agentrl_envs.reasoning_gym.entries import make_task
from agentrl_envs.reasoning_gym.env import Options, ReasoningGym
from agentrl_envs.reasoning_gym.generate import draw, pack
from agentrl_verifiers.reasoning_gym.inside import score, unpack

CONFIGS = {
    "composite": {"datasets": [{"name": "chain_sum"}, {"name": "spiral_matrix", "weight": 2.0}]},
    "knight_swap": {"min_pieces": 2, "max_pieces": 2, "max_attempts": 100},  # the default takes seconds an entry
}
WITHOUT_GOLD = {
    "boxnet": "the scorer rewards lifted boxes, and no plan is kept",
    "rush_hour": "the number of moves is kept, the moves are not",
}
"""Datasets whose entries hold no answer at all."""
FLOOR = ("0", "1", "[]", "{}", "()", "None", "xyzzy", "lorem ipsum dolor", "-", "Yes, I am sure.")


def tasks_of(dataset: str, count: int = 2) -> list[Task]:
    config = CONFIGS.get(dataset, {})
    drawn = draw(dataset, config, [[17, count]])
    return [make_task(dataset, config, 17, "", "test", json.loads(json.dumps(one))) for one in drawn["entries"][0]]


def rollout(task: Task, text: str) -> Rollout:
    turn = Turn(segment=0, span=(0, 0), completion=None, action=Message(role="assistant", content=text))
    return Rollout(task=task, index=0, seed=1, turns=(turn,), segments=(), stop=Stop.FINISHED)


def verdicts(rollouts: Sequence[Rollout]) -> list[Verdict]:
    async def scenario() -> list[Verdict]:
        plugin = load_verifier("reasoning_gym")
        services = start_services(plugin.needs, SandboxConfig(), "reasoning_gym")
        try:
            verifier = plugin(plugin.Options(), services_for(plugin.needs, services))
            return list(await asyncio.gather(*(verifier.verify(one) for one in rollouts)))  # type: ignore[arg-type]
        finally:
            await close_services(services)

    return asyncio.run(scenario())


@pytest.fixture(scope="module")
def all_tasks() -> list[Task]:
    return [task for dataset in sorted(DATASETS) for task in tasks_of(dataset)]


def test_every_gold_passes(all_tasks: list[Task]) -> None:
    env = ReasoningGym(Options(), Services())
    assert {task.data["dataset"] for task in all_tasks} == set(DATASETS)
    assert {task.data["dataset"] for task in all_tasks if env.gold(task) is None} == set(WITHOUT_GOLD)
    with_gold = [task for task in all_tasks if env.gold(task)]
    found = verdicts([rollout(task, (env.gold(task) or ())[0].content) for task in with_gold])
    assert {task.id: v.detail for task, v in zip(with_gold, found, strict=True) if v.reason != "passed"} == {}


def test_the_floor_is_worth_nothing(all_tasks: list[Task]) -> None:
    passed = []
    for task in all_tasks:
        data = task.data
        for answer in (*FLOOR, data["entry"]["question"]):
            given = score(data["dataset"], data["config"], data["seed"], data["entry"], answer)[0]
            if given is not None and given >= 1.0 and answer != task.answer:
                passed.append((data["dataset"], answer, task.answer))
    assert passed == []
