"""The environment `reasoning_gym` over every dataset that the library lists: its golds pass, the floor does not."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence

import pytest
from agentrl_envs.reasoning_gym.entries import make_task
from agentrl_envs.reasoning_gym.env import Options, ReasoningGym
from agentrl_envs.reasoning_gym.generate import draw, pack
from agentrl_verifiers.reasoning_gym.inside import score, unpack
from reasoning_gym.factory import DATASETS

from agentrl.api import ConfigError, DataError, Message, Rollout, Services, Stop, Task, Turn, Verdict
from agentrl.config import Layer, SandboxConfig, parse_options
from agentrl.loops.resolve import resolve
from agentrl.loops.wiring import close_services, services_for, start_services, wire
from agentrl.plugins import load_env, load_verifier

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


@pytest.mark.parametrize(
    ("dataset", "answer", "reason"),
    [
        ("spiral_matrix", "entry['answer'].split()", "wrong_answer"),
        ("binary_matrix", "[[int(x) for x in r.split()] for r in entry['answer'].splitlines()]", "wrong_answer"),
        ("string_insertion", "oracle_answer", "wrong_answer"),
        ("n_queens", "valid_solutions[0]", "wrong_answer"),
        ("simple_integration", "Integral(x, x)", "forbidden"),
        ("simple_integration", "__import__('os')._exit(0)", "forbidden"),
        ("polynomial_multiplication", "expand((x + 1)*(x + 2))", "forbidden"),
        ("countdown", "9**9**9**9", "timeout"),
        ("puzzle24", "2*10+2+2", "forbidden"),
        ("game_of_life_halting", "anything at all", "wrong_answer"),
        ("coin_flip", "0", "wrong_answer"),
        ("boxnet", "[1, 2]", "wrong_format"),
    ],
)
def test_an_answer_is_no_program_and_holes_of_scorers_are_closed(dataset: str, answer: str, reason: str) -> None:
    (verdict,) = verdicts([rollout(tasks_of(dataset)[0], f"<answer>{answer}</answer>")])
    assert (verdict.score, verdict.passed, verdict.reason) == (0.0, False, reason)


def test_only_an_entry_that_cannot_be_scored_is_unjudged() -> None:
    task = tasks_of("chain_sum")[0]
    broken = {**task.data, "config": {"min_terms": -1}}
    made = Task(id="x", messages=task.messages, answer=task.answer, data=broken)
    (verdict,) = verdicts([rollout(made, "<answer>1</answer>")])
    assert (verdict.score, verdict.reason) == (None, "verifier_error")
    assert "min_terms" in verdict.detail


def wired_tasks(options: dict[str, object], split: str = "test") -> list[Task]:
    async def scenario() -> list[Task]:
        layer = Layer("test", {"env": {"name": "reasoning_gym", "options": options}})
        async with wire(resolve([layer])) as wired:
            return wired.tasks(split)

    return asyncio.run(scenario())


def test_splits_share_no_question_and_are_drawn_again_alike() -> None:
    sizes = {"train_size": 60, "validation_size": 20, "test_size": 20}
    options = {"dataset": "gcd", "config": {"min_value": 1, "max_value": 12}, **sizes}
    env = load_env("reasoning_gym")(
        parse_options(load_env("reasoning_gym").Options, options, "env.options"), Services()
    )
    texts = {split: [task.messages[0].content for task in env.tasks(split)] for split in env.splits}
    everything = [text for found in texts.values() for text in found]
    assert len(everything) == len(set(everything))
    assert 10 < len(texts["test"]) <= 20
    assert 20 < len(texts["train"]) <= 60
    assert env.tasks("train") == env.tasks("train")
    other = load_env("reasoning_gym")(Options(dataset="gcd", seed=1, test_size=20), Services())
    assert other.tasks("test")[0].messages != env.tasks("test")[0].messages


def test_the_order_of_sets_changes_no_task() -> None:
    show = (
        "from agentrl_envs.reasoning_gym.entries import draw_tasks; "
        "print([t.data for t in draw_tasks('word_ladder', {}, 0, {'test': 4}, '', 'test')])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", show],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"dataset": "chain_sums"}, DataError, "'chain_sums': .*did you mean 'chain_sum'"),
        ({"config": {"max_term": 3}}, DataError, "max_term"),
        ({"config": {"min_terms": 9, "max_terms": 2}}, DataError, "chain_sum"),
        ({"config": {"seed": 3}}, ConfigError, "config.seed is set by the environment"),
        ({"test_size": 0}, ConfigError, "test_size"),
        ({"dataset": "composite"}, DataError, "at least one dataset"),
    ],
)
def test_options_are_checked(options: dict[str, object], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        wired_tasks(options)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'agentrl-framework\[reasoning-gym\]'"):
        parse_options(Options, {}, "env.options")
    with pytest.raises(ConfigError, match=r"pip install 'agentrl-framework\[reasoning-gym\]'"):
        parse_options(load_verifier("reasoning_gym").Options, {}, "options")


def test_entries_come_back_whole() -> None:
    value = {"a": (1, [2, (3,)]), "b": {0: "x", (1, 2): None}, "c": {"!tuple": 1}, "d": frozenset({1, 2})}
    assert unpack(json.loads(json.dumps(pack(value)))) == value
