"""The environment `tool_use`, played through the runner: gold succeeds, the floor fails, faults are told."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from agentrl_envs.tool_use import tasks as tool_use
from agentrl_envs.tool_use.demonstrations import flawed, messages_of
from agentrl_envs.tool_use.env import Options, ToolUse
from agentrl_envs.tool_use.own import own_task
from agentrl_envs.tool_use.requests import KINDS

from agentrl.api import (
    ConfigError,
    DataError,
    Message,
    Rollout,
    Scored,
    Services,
    Stop,
    Task,
    TaskRow,
    ToolSpec,
    write_tool_calls,
)
from agentrl.config import Layer, parse_options
from agentrl.loops.resolve import resolve
from agentrl.loops.wiring import Wired, wire
from agentrl.rollouts.collect import collect, plan
from agentrl.rollouts.players import Attempt, WordPlayers

Script = Callable[[Task], Sequence[str]]


def call(name: str, /, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def written(messages: Sequence[Message]) -> list[str]:
    return [message.content + write_tool_calls(message.tool_calls, "hermes") for message in messages]


def settings(**options: object) -> Layer:
    return Layer("test", {"env": {"name": "tool_use", "options": options}})


async def play(wired: Wired, tasks: Sequence[Task], script: Script, samples: int = 1) -> list[Scored]:
    texts = {task.id: list(script(task)) for task in tasks}

    async def write(attempt: Attempt, conversation: Sequence[Message], tools: Sequence[ToolSpec], turn: int) -> str:
        lines = texts[attempt.task.id]
        return lines[turn] if turn < len(lines) else "Done."

    groups = await collect(
        plan(tasks, samples, seed=3, phase=("test",)),
        make_env=wired.make_env,
        players=WordPlayers(write),
        limits=wired.resolved.config.rollout,
        scorer=wired.scorer,
        progress=lambda scored: None,
    )
    return [member for group in groups for member in group.members]


def played(script: Script, split: str = "test", limit: int | None = 48, **options: object) -> list[Scored]:
    async def scenario() -> list[Scored]:
        async with wire(resolve([settings(**options)])) as wired:
            return await play(wired, wired.tasks(split, limit), script)

    return asyncio.run(scenario())


def one(script: Sequence[str], task: Task | None = None) -> Scored:
    async def scenario() -> list[Scored]:
        async with wire(resolve([settings()])) as wired:
            return await play(wired, [task or make_task()], lambda _: script)

    return asyncio.run(scenario())[0]


WORLD = {
    "customers": [{"name": "Ana"}, {"name": "Bob"}],
    "items": [{"name": "pen", "price": 2, "stock": 5}, {"name": "cup", "price": 3, "stock": 4}],
    "orders": [
        {"id": 14, "customer": "Ana", "item": "pen", "count": 2, "status": "open"},
        {"id": 15, "customer": "Bob", "item": "cup", "count": 1, "status": "shipped"},
    ],
    "bookings": [{"day": "mon", "hour": 9, "name": "Bob"}],
}


def line(**changes: object) -> str:
    plain = {"request": "Cancel the order of Ana.", "world": WORLD}
    planned = {
        "plan": [{"name": "orders", "arguments": {"customer": "Ana"}}, {"name": "cancel", "arguments": {"order": 14}}]
    }
    return json.dumps(plain | planned | changes)


def make_task() -> Task:
    return own_task(TaskRow(id="own", fields=json.loads(line()), where="own"))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_gold_succeeds_with_full_marks(split: str) -> None:
    env = ToolUse(Options(), Services())
    found = played(lambda task: written(env.gold(task) or ()), split, limit=None)
    assert len(found) >= 50
    assert {member.rollout.stop for member in found} == {Stop.FINISHED}
    raws = {tuple((part.name, round(part.raw or 0.0, 9)) for part in member.reward.parts) for member in found}
    assert raws == {(("state", 1.0), ("calls", 1.0), ("efficiency", 1.0))}
    assert {tag for member in found for tag in member.rollout.task.tags if tag.startswith("kind:")} == {
        f"kind:{kind}" for kind in KINDS
    }


FLOOR = {
    "empty": lambda task: [""],
    "done": lambda task: ["Done."],
    "no": lambda task: ["No."],
    "zero": lambda task: ["0"],
    "echo": lambda task: [task.messages[0].content],
    "junk": lambda task: ["lorem ipsum " * 50],
    "all numbers": lambda task: [" ".join(map(str, range(100)))],
    "the start as words": lambda task: [json.dumps(task.data["start"])],
    "the end as words": lambda task: [json.dumps({"state": task.data["expected"]})],
    "looks only": lambda task: [call("item", name="pen"), "Done."],
    "malformed": lambda task: ['<tool_call>{"name": "item"'] * 9,
}


@pytest.mark.parametrize("attempt", FLOOR.values(), ids=FLOOR)
def test_the_floor_is_worth_nothing(attempt: Script) -> None:
    found = played(attempt, limit=None)
    assert {member.reward.success for member in found} == {False}
    assert {(p.name, p.raw) for member in found for p in member.reward.parts if p.name != "calls"} == {
        ("state", 0.0),
        ("efficiency", 0.0),
    }


def test_splits_share_no_request_with_the_same_fulfilment() -> None:
    env = ToolUse(Options(), Services())
    keys = [
        (task.messages[0].content, json.dumps([task.data["plan"], task.answer]))
        for split in env.splits
        for task in env.tasks(split)
    ]
    assert len(keys) == len(set(keys)) == 768


def test_the_same_actions_give_the_same_observations_in_any_order() -> None:
    env = ToolUse(Options(), Services())

    def texts(task: Task) -> list[str]:
        return [call("orders", customer="Ana"), call("cancel", order=99), *written(env.gold(task) or ())]

    async def scenario() -> list[list[Scored]]:
        async with wire(resolve([settings()])) as wired:
            tasks = wired.tasks("test", 24)
            return [await play(wired, tasks, texts, samples=3), await play(wired, tasks[::-1], texts)]

    many, backwards = asyncio.run(scenario())
    seen = {member.rollout.task.id: member.rollout.turns for member in backwards}
    assert all(member.rollout.turns == seen[member.rollout.task.id] for member in many)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (call("cancel", order=99), "error: ValueError: no order 99"),
        (call("cancel", order=15), "error: ValueError: order 15 is shipped"),
        (call("cancel", order=10**30), "error: ValueError: no order 1000"),
        (call("order", customer="Ana", item="pen", count=6), "error: ValueError: only 5 pen in stock"),
        (call("order", customer="Ana", item="pen", count=-1), "error: ValueError: count must be at least 1"),
        (call("order", customer="Zoe", item="pen", count=1), "error: ValueError: no customer Zoe"),
        (call("restock", item="pen'; DROP TABLE items; --", count=1), "error: ValueError: no item pen'; DROP"),
        (call("restock", item="pen", count=10**9), "error: ValueError: count must be 1 to 1000"),
        (call("book", day="sun", hour=9, name="Ana"), "error: ValueError: day must be one of"),
        (call("book", day="mon", hour=9, name="Ana"), "error: ValueError: taken by Bob"),
        (call("drop", day="mon", hour=10), "error: ValueError: mon 10 is free already"),
        (call("book", day="mon", hour="ten", name="Ana"), "error: book: "),
        (call("cancel", order=14, reason="x"), "error: cancel: "),
        (call("sql", query="DROP TABLE orders"), "error: there is no tool 'sql'"),
        ('<tool_call>{"name": "cancel", "arguments": {"order": 14}', "error: "),
        ("\ud800" + call("item", name="\ud800"), "error: "),
    ],
)
def test_a_fault_is_told_and_leaves_the_world_as_it_was(text: str, told: str) -> None:
    member = one([text, "Done."])
    assert member.rollout.stop is Stop.FINISHED
    assert member.rollout.turns[0].observation[0].role == "tool"
    assert member.rollout.turns[0].observation[0].content.startswith(told)
    assert member.rollout.evidence["state"] == make_task().data["start"]
    assert member.reward.by_name["calls"].raw == 0.0
    assert member.reward.success is False


RIGHT = [call("orders", customer="Ana"), call("cancel", order=14), "Done."]


@pytest.mark.parametrize(
    ("texts", "success", "calls", "efficiency"),
    [
        (RIGHT, True, 1.0, 1.0),
        (RIGHT[1:], True, 0.5, 1.0),
        ([RIGHT[0] + RIGHT[1], "Done."], True, 1.0, 1.0),
        ([call("cancel", order=99), *RIGHT], True, 1.0, 2 / 3),
        (["<tool_call>half", *RIGHT], True, 1.0, 2 / 3),
        ([*RIGHT[:2], call("item", name="pen"), call("item", name="cup"), "Done."], True, 1.0, 0.5),
        ([*RIGHT[:2], call("restock", item="cup", count=1), "Done."], False, 1.0, 0.0),
        ([*RIGHT[:2], call("drop", day="mon", hour=9), "Done."], False, 1.0, 0.0),
        ([RIGHT[0]] * 5 + ["Done."], False, 0.5, 0.0),
    ],
)
def test_what_each_part_says(texts: Sequence[str], success: bool, calls: float, efficiency: float) -> None:
    reward = one(texts).reward
    assert reward.success is success
    assert reward.by_name["calls"].raw == pytest.approx(calls)
    assert reward.by_name["efficiency"].raw == pytest.approx(efficiency)


def test_tasks_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    cancelled = [{**WORLD["orders"][0], "status": "cancelled"}, WORLD["orders"][1]]
    stocked = [{**WORLD["items"][0], "stock": 7}, WORLD["items"][1]]
    stated = {"request": "Cancel it.", "world": WORLD, "expected": {"orders": cancelled, "items": stocked}}
    ask = line(request="What does a cup cost?", plan=[{"name": "item", "arguments": {"name": "cup"}}], answer=3)
    file.write_text("\n".join([line(), json.dumps(stated), json.dumps(json.loads(ask) | {"part": "asked"})]))
    parts = {"path": str(file), "splits": {"train": 1.0}}
    done = played(lambda task: RIGHT, "train", source=parts | {"limit": 2})
    assert [(m.rollout.task.id, m.reward.success) for m in done] == [("own/1", True), ("own/2", True)]
    asked = {**parts, "columns": {"part": "part"}, "prompt": "{request} ({part})"}
    with pytest.raises(DataError, match="there is no column 'part'"):
        played(lambda task: [""], "train", source=asked)
    only = {**asked, "filter": [{"column": "request", "contains": "cost"}]}
    (said,) = played(lambda task: [call("item", name="cup"), "It costs 3."], "train", source=only)
    assert said.reward.success
    assert said.rollout.task.messages[0].content == "What does a cup cost? (asked)"
    env = ToolUse(Options.model_validate({"source": only}), Services())
    (shown,) = env.demonstrations("train")
    assert [message.role for message in shown.messages] == ["user", "assistant", "tool", "assistant"]
    assert shown.messages[-1].content == "3"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 1"),
        (line(request=3), "line 1: the request must be text"),
        (line(world={"users": []}), "no table 'users'"),
        (line(world={"items": [{"name": "pen"}]}), "columns name, price, stock"),
        (line(world={"items": [{"name": "pen", "price": 1, "stock": -1}]}), "cannot be: CHECK"),
        (line(plan=[{"name": "cancel", "arguments": {"order": 15}}]), "order 15 is shipped"),
        (line(plan=[{"name": "close", "arguments": {}}]), "cannot be carried out"),
        (line(plan=[{"name": "cancel"}]), "'plan' must be a list of calls"),
        (line(expected={"items": []}), "other 'items' than 'expected'"),
        (line(plan=[], expected={}), "doing nothing would pass"),
        (json.dumps({"request": "x", "world": WORLD}), "give 'plan', 'expected' or both"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text(text)
    with pytest.raises(DataError, match=words):
        played(lambda task: [""], "train", source={"path": str(file), "splits": {"train": 1.0}})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"domains": ["bank"]}, "env.options.domains"),
        ({"domains": []}, "env.options.domains"),
        ({"most_calls": 5}, "env.options.most_calls"),
        ({"demonstration_flaw_rate": 1.5}, "flaw_rate"),
        ({"source": "own.jsonl", "most_calls": 1}, "most_calls belongs to the drawn tasks"),
        ({"most_call": 1}, "did you mean 'env.options.most_calls'|most_calls"),
    ],
)
def test_options_are_checked(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_options(Options, options, "env.options")


def test_options_choose_tools_and_tasks(tmp_path: Path) -> None:
    env = ToolUse(Options(domains=("calendar",), most_calls=2), Services())
    assert [one.name for one in env.tools] == ["day", "book", "drop"]
    tags = {tag for task in env.tasks("test") for tag in task.tags}
    assert {tag for tag in tags if not tag.startswith("kind")} == {"domain:calendar", "calls:1", "calls:2"}
    with pytest.raises(DataError, match=r"none\.jsonl"):
        ToolUse(Options.model_validate({"source": str(tmp_path / "none.jsonl")}), Services()).tasks("train")


def test_a_demonstration_shows_what_a_rollout_would_have_shown() -> None:
    env = ToolUse(Options(demonstration_count=120, demonstration_flaw_rate=1.0), Services())
    shown = list(env.demonstrations("train"))
    assert len(shown) == 120
    assert env.demonstrations("test") == ()
    errors = [m for one in shown for m in one.messages if m.content.startswith("error")]
    assert len(errors) > 10
    # Flawed plans of fresh requests, played in rollouts of the same worlds.
    random_ = random.Random(5)
    drawn = list(itertools.islice(tool_use.draw_requests("x", ("shop", "calendar"), 4), 72))
    tasks = [tool_use.make_task(str(i), start, request, ()) for i, (_, start, request) in enumerate(drawn)]
    shows = {
        task.id: messages_of(start, flawed(request, start, random_))
        for task, (_, start, request) in zip(tasks, drawn, strict=True)
    }

    async def scenario() -> list[Scored]:
        async with wire(resolve([settings()])) as wired:
            return await play(wired, tasks, lambda task: written([m for m in shows[task.id] if m.role == "assistant"]))

    for member in asyncio.run(scenario()):
        assert _messages(member.rollout) == [(m.role, m.content, m.tool_calls) for m in shows[member.rollout.task.id]]


def _messages(rollout: Rollout) -> list[tuple[object, ...]]:
    messages = [m for turn in rollout.turns for m in (turn.action, *turn.observation)]
    return [(m.role, m.content, m.tool_calls) for m in messages]


def test_the_world_comes_back_from_a_snapshot_as_often_as_wanted() -> None:
    env = ToolUse(Options(), Services())
    env.reset(task=make_task(), seed=0)
    before = env.snapshot()
    for _ in range(2):
        env.cancel(14)
        assert env.evidence()["state"] != make_task().data["start"]
        env.restore(before)
        assert env.evidence()["state"] == make_task().data["start"]
    with pytest.raises(ValueError, match="no customer"):
        env.order("Zoe", "pen", 1)
    env.close()
    env.close()
