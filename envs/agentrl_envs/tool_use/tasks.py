"""Tasks drawn from the kinds of requests by keyed seeds."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence

from agentrl.api import JSON, Message, Task, keyed_seed
from agentrl_envs.tool_use.requests import KINDS, Request, draw_world
from agentrl_envs.tool_use.world import State, World

SIZES = {"train": 480, "validation": 96, "test": 192}
DOMAINS = ("shop", "calendar")
_ORDER = ("test", "validation", "train")

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


def make_task(name: str, start: State, request: Request, tags: Sequence[str], messages: Sequence[Message] = ()) -> Task:
    """The task as environment and verifier get it: `data` holds `start`, `expected`, the `plan` and its `calls`."""
    plan = [{"name": tool, "arguments": dict(arguments)} for tool, arguments in request.plan]
    return Task(
        id=name,
        messages=tuple(messages) or (Message(role="user", content=request.text),),
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
