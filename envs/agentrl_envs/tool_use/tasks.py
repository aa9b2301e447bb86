"""Tasks drawn from the kinds of requests by keyed seeds, and tasks read from a file; one form for both."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from agentrl.api import JSON, DataError, Message, Task, keyed_seed
from agentrl_envs.tool_use.requests import KINDS, Request, draw_world
from agentrl_envs.tool_use.world import COLUMNS, State, World

SIZES = {"train": 480, "validation": 96, "test": 192}
DOMAINS = ("shop", "calendar")
_ORDER = ("test", "validation", "train")
_LINE_KEYS = frozenset({"id", "request", "world", "plan", "expected", "answer", "split"})

Key = tuple[str, str]
"""What makes two tasks the same: the request, and what fulfils it."""


def carry_out(world: World, plan: Sequence[tuple[str, Mapping[str, JSON]]]) -> None:
    """Carry out a plan. Raises ValueError for a call that fails and KeyError for a tool that does not exist."""
    for tool, arguments in plan:
        if tool not in TOOLS:
            raise KeyError(tool)
        getattr(world, tool)(**arguments)


TOOLS = ("item", "orders", "order", "cancel", "ship", "restock", "day", "book", "drop")
"""Names of the tools; each is a method of `World`."""


def state_after(start: State, plan: Sequence[tuple[str, Mapping[str, JSON]]]) -> State:
    """The state of a fresh world after a plan."""
    world = World(start)
    try:
        carry_out(world, plan)
        return world.state()
    finally:
        world.close()


def make_task(name: str, start: State, request: Request, tags: Sequence[str]) -> Task:
    """The task as environment and verifier get it: `data` holds `start`, `expected`, the `plan` and its `calls`."""
    plan = [{"name": tool, "arguments": dict(arguments)} for tool, arguments in request.plan]
    return Task(
        id=name,
        messages=(Message(role="user", content=request.text),),
        answer=request.answer,
        data={"start": start, "expected": state_after(start, request.plan), "plan": plan, "calls": len(plan)},
        tags=tuple(tags),
    )


def draw_requests(key: str, domains: Sequence[str], most_calls: int) -> Iterator[tuple[str, State, Request]]:
    """Requests without end, of one kind after the other: a name, the world, the request."""
    kinds = [name for name, kind in KINDS.items() if kind.domain in domains and kind.calls <= most_calls]
    for number in itertools.count():
        name = kinds[number % len(kinds)]
        random_ = random.Random(keyed_seed("tool_use", key, name, number // len(kinds)))
        request = None
        while request is None:
            world = draw_world(random_)
            request = KINDS[name].draw(world, random_)
        yield name, world, request


def key_of(request: Request) -> Key:
    """See `Key`."""
    return request.text, json.dumps([request.plan, request.answer])


@functools.cache
def _split(split: str, domains: tuple[str, ...], most_calls: int) -> tuple[tuple[Task, ...], frozenset[Key]]:
    """The tasks of a split, and the keys of it and of all splits that were drawn before it."""
    place = _ORDER.index(split)
    taken = set(_split(_ORDER[place - 1], domains, most_calls)[1]) if place else set()
    tasks: list[Task] = []
    for number, (kind, world, request) in enumerate(draw_requests(split, domains, most_calls)):
        if len(tasks) == SIZES[split]:
            break
        if key_of(request) not in taken:
            taken.add(key_of(request))
            tags = (f"kind:{kind}", f"domain:{KINDS[kind].domain}", f"calls:{KINDS[kind].calls}")
            tasks.append(make_task(f"{split}/{number}", world, request, tags))
    return tuple(tasks), frozenset(taken)


def drawn_tasks(split: str, domains: tuple[str, ...], most_calls: int) -> tuple[Task, ...]:
    """The tasks of a split. Test is drawn first: what it holds, no other split has."""
    return _split(split, domains, most_calls)[0]


def held_out(domains: tuple[str, ...], most_calls: int) -> frozenset[Key]:
    """What validation and test hold, and demonstrations must not show."""
    return _split("validation", domains, most_calls)[1]


def read_tasks(path: str, split: str) -> tuple[Task, ...]:
    """The lines of a JSONL file that name `split` (or, for train, none). Raises DataError with the line's number."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise DataError(f"env.options.path = '{path}': {error.strerror}") from error
    tasks = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                own_split, task = read_task(line, f"{Path(path).name}/{number}")
            except DataError as error:
                raise DataError(f"{path}, line {number}: {error}") from error
            if own_split == split:
                tasks.append(task)
    return tuple(tasks)


def read_task(line: str, name: str) -> tuple[str, Task]:
    """Split and task of a line `{"request", "world", "plan" | "expected", "answer", "id", "split"}`.

    `expected` holds the rows of the tables that change; without it they are what `plan` leads to.
    """
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error}") from error
    if not isinstance(data, dict) or not isinstance(data.get("request"), str):
        raise DataError("an object with 'request', 'world' and 'plan' or 'expected' is expected")
    unknown = sorted(set(data) - _LINE_KEYS)
    if unknown:
        raise DataError(f"unknown key '{unknown[0]}' ({', '.join(sorted(_LINE_KEYS))})")
    start = state_after(_tables(data, "world"), ())
    plan = _plan(data)
    answer = data.get("answer")
    request = Request(text=data["request"], plan=plan, answer=None if answer is None else str(answer))
    try:
        task = make_task(str(data.get("id", name)), start, request, ())
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"the plan cannot be carried out: {type(error).__name__}: {error}") from error
    return data.get("split", "train"), _expecting(task, data)


def _expecting(task: Task, data: Mapping[str, JSON]) -> Task:
    """The task with the end that its line states, which must be that of its plan where it has both."""
    if "plan" not in data and "expected" not in data:
        raise DataError("give 'plan', 'expected' or both")
    if "expected" not in data:
        return task
    expected = {**task.data["start"], **_tables(data, "expected")}
    if "plan" not in data:
        made = {key: value for key, value in task.data.items() if key not in ("plan", "calls")}
    else:
        made = dict(task.data)
        different = [table for table in COLUMNS if not _same(expected[table], made["expected"][table])]
        if different:
            raise DataError(f"the plan leads to other '{different[0]}' than 'expected' states")
    return Task(id=task.id, messages=task.messages, answer=task.answer, data=made | {"expected": expected})


def _same(rows: Sequence[JSON], others: Sequence[JSON]) -> bool:
    return sorted(json.dumps(row, sort_keys=True) for row in rows) == sorted(
        json.dumps(row, sort_keys=True) for row in others
    )


def _tables(data: Mapping[str, JSON], key: str) -> State:
    tables = data.get(key)
    rows = list(tables.values()) if isinstance(tables, dict) else [None]
    if not all(isinstance(one, list) and all(isinstance(row, dict) for row in one) for one in rows):
        raise DataError(f"'{key}' must be lists of rows by table ({', '.join(COLUMNS)})")
    assert isinstance(tables, dict)
    for table in tables:
        if table not in COLUMNS:
            raise DataError(f"'{key}' has no table '{table}' ({', '.join(COLUMNS)})")
    return tables


def _plan(data: Mapping[str, JSON]) -> tuple[tuple[str, Mapping[str, JSON]], ...]:
    calls = data.get("plan", [])
    if not isinstance(calls, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("arguments"), dict)
        for one in calls
    ):
        raise DataError('\'plan\' must be a list of calls {"name", "arguments"}')
    return tuple((one["name"], one["arguments"]) for one in calls)
