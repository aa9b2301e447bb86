"""Conversations to imitate: a plan really carried out, now and then with a flaw that a hurried person might make."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping

from agentrl.api import JSON, Demonstration, Message, ToolCall, ToolSpec, keyed_seed
from agentrl_envs.tool_use.requests import Request
from agentrl_envs.tool_use.tasks import draw_requests, held_out, key_of
from agentrl_envs.tool_use.world import State, World

DONE = "Done."
"""What is said in the end where no answer is asked for."""

Plan = list[tuple[str, dict[str, JSON]]]


def messages_of(start: State, request: Request) -> tuple[Message, ...]:
    """Calls and what they gave in a fresh world, then the answer. A call that fails is told as in a rollout."""
    world = World(start)
    messages: list[Message] = []
    try:
        for turn, (tool, arguments) in enumerate(request.plan):
            call = ToolCall(id=f"{turn:04d}00000", name=tool, arguments=dict(arguments))
            messages.append(Message(role="assistant", content="", tool_calls=(call,)))
            try:
                told = str(getattr(world, tool)(**arguments))
            except ValueError as error:
                told = f"error: ValueError: {error}"
            messages.append(Message(role="tool", content=told, tool_call_id=call.id))
    finally:
        world.close()
    return (*messages, Message(role="assistant", content=request.answer or DONE))


def demonstrations(
    *, domains: tuple[str, ...], most_calls: int, count: int, flaw_rate: float, tools: tuple[ToolSpec, ...]
) -> Iterator[Demonstration]:
    """`count` conversations about fresh requests, none of which validation or test holds."""
    hidden = held_out(domains, most_calls)
    random_ = random.Random(keyed_seed("tool_use", "flaws"))
    made = 0
    for _, start, request in draw_requests("demonstrations", domains, most_calls):
        if made == count:
            return
        if key_of(request) in hidden:
            continue
        made += 1
        shown = flawed(request, start, random_) if random_.random() < flaw_rate else request
        user = Message(role="user", content=request.text)
        yield Demonstration(messages=(user, *messages_of(start, shown)), tools=tools)


def flawed(request: Request, start: State, random_: random.Random) -> Request:
    """The request with one flaw in its plan or answer, of a kind that it has room for."""
    plan = [(tool, dict(arguments)) for tool, arguments in request.plan]
    kinds: list[Callable[[Plan, State, random.Random], Plan]] = []
    if any(isinstance(value, int) for _, arguments in plan for value in arguments.values()):
        kinds.append(_other_number)
    if any(isinstance(value, str) for _, arguments in plan for value in arguments.values()):
        kinds.append(_other_word)
    if any(tool in _CONFUSED for tool, _ in plan):
        kinds.append(_other_tool)
    if len(plan) > 1:
        kinds += [_without_last, _without_looking]
    answer = request.answer
    if answer is not None and random_.random() < 0.5:
        return Request(text=request.text, plan=request.plan, answer=_other_answer(answer, start, random_))
    return Request(text=request.text, plan=tuple(random_.choice(kinds)(plan, start, random_)), answer=answer)


_CONFUSED: Mapping[str, str] = {"cancel": "ship", "ship": "cancel"}


def _places(plan: Plan, kind: type) -> list[tuple[dict[str, JSON], str]]:
    return [(arguments, key) for _, arguments in plan for key, value in arguments.items() if isinstance(value, kind)]


def _other_number(plan: Plan, start: State, random_: random.Random) -> Plan:
    arguments, key = random_.choice(_places(plan, int))
    arguments[key] += random_.choice((-1, 1))
    return plan


def _other_word(plan: Plan, start: State, random_: random.Random) -> Plan:
    arguments, key = random_.choice(_places(plan, str))
    arguments[key] = _other(arguments[key], start, random_)
    return plan


def _other(word: str, start: State, random_: random.Random) -> str:
    """Another word of the world of the same kind."""
    days = sorted({row["day"] for row in start["bookings"]})
    for known in ([row["name"] for row in start["customers"]], [row["name"] for row in start["items"]], days):
        others = [one for one in known if one != word]
        if others and len(others) < len(known):
            return str(random_.choice(others))
    return word


def _other_tool(plan: Plan, start: State, random_: random.Random) -> Plan:
    return [(_CONFUSED.get(tool, tool), arguments) for tool, arguments in plan]


def _without_last(plan: Plan, start: State, random_: random.Random) -> Plan:
    return plan[:-1]


def _without_looking(plan: Plan, start: State, random_: random.Random) -> Plan:
    return plan[1:]


def _other_answer(answer: str, start: State, random_: random.Random) -> str:
    return str(int(answer) + random_.choice((-1, 1))) if answer.isdecimal() else _other(answer, start, random_)
