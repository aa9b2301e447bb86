"""`agentrl env check`: an environment against its contract, before a model is trained on it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from agentrl.api import Message, PluginError, Rollout, Scored, Stop, Task, ToolSpec, check_schema
from agentrl.api.background import run_loop
from agentrl.loops.resolve import Resolved
from agentrl.loops.wiring import Wired, wire
from agentrl.loops.words import Played, Script, Seen, golds, play, recite, spread

ODD = (
    "",
    " \n\t",
    "\x00\ud800\u202e é 漢字 \U0001f600",
    "{" * 5000,
    "long " * 50_000,
    '<tool_call>\n{"name": "no_such_tool", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": ',
    "<think>never closed",
)
"""What a policy may write and an environment must take: none of it is the environment's bug."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was tried. right: None when there was nothing to try it on.

    Example: `Finding(name="gold succeeds", right=True, detail="24 of 24 tasks")`.
    """

    name: str
    right: bool | None
    detail: str = ""


def check_env(resolved: Resolved, limit: int) -> list[Finding]:
    """Try the whole contract on about `limit` tasks; what the environment raises is a finding."""
    return run_loop(_check(resolved, limit))


async def _check(resolved: Resolved, limit: int) -> list[Finding]:
    async with wire(resolved) as wired:
        findings = [_tasks(wired)]
        if not findings[0].right:
            return findings
        tasks = spread(wired, limit)
        texts = await golds(wired, tasks)
        checks: tuple[tuple[str, Callable[..., Awaitable[Finding]]], ...] = (
            ("tools have schemas", _tools),
            ("gold succeeds", _gold),
            ("same seed, same observations", _repeatable),
            ("rollouts do not disturb each other", _independent),
            ("what is no attempt fails", _floor),
            ("odd messages are no bugs", _odd),
            ("demonstrations", _demonstrations),
        )
        for name, check in checks:
            try:
                findings.append(await check(name, wired, tasks, texts))
            except PluginError as error:  # the class breaks the contract: a finding like any other
                findings.append(Finding(name=name, right=False, detail=str(error)))
        return findings


Texts = Mapping[str, Sequence[str]]


def _tasks(wired: Wired) -> Finding:
    """Every split has tasks, in the same order each time, with ids of their own, and none stands in two splits."""
    name, count = "tasks", 0
    ids: dict[str, str] = {}
    seen: dict[str, str] = {}
    for split in wired.resolved.env.splits:
        tasks = wired.tasks(split)
        if [task.id for task in wired.make_env().tasks(split)] != [task.id for task in tasks]:
            return Finding(name=name, right=False, detail=f"{split}: another instance gives other tasks")
        for task in tasks:
            if ids.setdefault(task.id, split) != split:
                return Finding(
                    name=name, right=False, detail=f"the id '{task.id}' stands in {ids[task.id]} and {split}"
                )
            if not task.messages and task.data == {} and task.answer is None:
                return Finding(name=name, right=False, detail=f"the task '{task.id}' is empty")
            try:
                key = json.dumps([[m.content for m in task.messages], task.answer, dict(task.data)], sort_keys=True)
            except TypeError as error:
                return Finding(name=name, right=False, detail=f"the task '{task.id}' is no JSON: {error}")
            if seen.setdefault(key, split) != split:
                return Finding(
                    name=name, right=False, detail=f"the task '{task.id}' of {split} stands in {seen[key]} too"
                )
        if len({task.id for task in tasks}) < len(tasks):
            return Finding(name=name, right=False, detail=f"{split}: two tasks share an id")
        count += len(tasks)
    return Finding(name=name, right=True, detail=f"{count} in {', '.join(wired.resolved.env.splits)}")


async def _tools(name: str, wired: Wired, tasks: Sequence[Task], texts: Texts) -> Finding:
    specs: dict[str, ToolSpec] = {}

    def script(seen: Seen) -> str:
        specs.update({one.name: one for one in seen.tools})
        return ""

    await play(wired, tasks[:1], script)
    for spec in specs.values():
        check_schema(spec.parameters)
        if not spec.description:
            return Finding(name=name, right=False, detail=f"the tool '{spec.name}' has no description (its docstring)")
    return Finding(name=name, right=True if specs else None, detail=", ".join(specs) or "no tools")


async def _gold(name: str, wired: Wired, tasks: Sequence[Task], texts: Texts) -> Finding:
    known = [task for task in tasks if task.id in texts]
    if not known:
        return Finding(name=name, right=None, detail="gold() knows no attempt")
    played = await play(wired, known, recite(texts))
    bad = [member for member in played.members if member.reward.success is not True]
    if bad:
        return Finding(name=name, right=False, detail=f"{len(bad)} of {len(known)} fail; {_why(bad[0])}")
    return Finding(name=name, right=True, detail=f"{len(known)} of {len(tasks)} tasks, reward {_range(played.members)}")


async def _repeatable(name: str, wired: Wired, tasks: Sequence[Task], texts: Texts) -> Finding:
    for script in _scripts(texts):
        first, second = [await play(wired, tasks, script) for _ in range(2)]
        for detail in _differences(first, second):
            return Finding(name=name, right=False, detail=detail)
    return Finding(name=name, right=True, detail=f"{len(tasks)} tasks, twice")


async def _independent(name: str, wired: Wired, tasks: Sequence[Task], texts: Texts) -> Finding:
    for script in _scripts(texts):
        together = await play(wired, tasks, script, concurrency=max(2, len(tasks)))
        alone = await play(wired, tasks[::-1], script, concurrency=1)
        for detail in _differences(together, alone):
            return Finding(name=name, right=False, detail=detail)
    return Finding(name=name, right=True, detail="all at once, and one by one backwards")


def _scripts(texts: Texts) -> Iterator[Script]:
    yield recite(texts)
    yield lambda seen: f"attempt {seen.turn}"


def _differences(first: Played, second: Played) -> Iterator[str]:
    others = {(m.rollout.task.id, m.rollout.index): m.rollout for m in second.members}
    for member in first.members:
        key = (member.rollout.task.id, member.rollout.index)
        other = others[key]
        if first.openings.get(key) != second.openings.get(key):
            yield f"task '{key[0]}': reset gave other messages"
        yield from (f"task '{key[0]}': {what}" for what in _unlike(member.rollout, other))


def _unlike(first: Rollout, second: Rollout) -> Iterator[str]:
    for place, (one, two) in enumerate(zip(first.turns, second.turns, strict=False)):
        for what in ("observation", "env_reward", "info"):
            if getattr(one, what) != getattr(two, what):
                yield f"turn {place}: another {what}: {getattr(one, what)!r:.100} and {getattr(two, what)!r:.100}"
    if first.stop is not second.stop or len(first.turns) != len(second.turns):
        yield f"ended as {first.stop.value} and {second.stop.value}; {first.error or second.error or ''}".strip("; ")
    elif first.evidence != second.evidence:
        yield f"other evidence: {first.evidence!r:.100} and {second.evidence!r:.100}"


async def _floor(name: str, wired: Wired, tasks: Sequence[Task], texts: Texts) -> Finding:
    floor: dict[str, Script] = {
        "empty": lambda seen: "",
        "an echo": lambda seen: seen.conversation[-1].content,
        "junk": lambda seen: "lorem ipsum dolor sit amet",
    }
    for what, script in floor.items():
        for member in (await play(wired, tasks, script)).members:
            if member.reward.success is not False:
                success = "succeeds" if member.reward.success else "is not judged"
                return Finding(name=name, right=False, detail=f"{what} {success}: {_why(member)}")
    return Finding(name=name, right=True, detail=", ".join(floor))


async def _odd(name: str, wired: Wired, tasks: Sequence[Task], texts: Texts) -> Finding:
    for text in ODD:
        for member in (await play(wired, tasks[:3], lambda seen, text=text: text)).members:  # type: ignore[misc]
            if member.rollout.stop.failed or member.rollout.stop is Stop.TIMEOUT or member.reward.total is None:
                return Finding(name=name, right=False, detail=f"after {text!r:.40}: {_why(member)}")
    return Finding(name=name, right=True, detail=f"{len(ODD)} texts")


async def _demonstrations(name: str, wired: Wired, tasks: Sequence[Task], texts: Texts) -> Finding:
    found = list(islice(wired.catalogue.demonstrations("train"), 50))
    if not found:
        return Finding(name=name, right=None, detail="none")
    for demonstration in found:
        roles = [message.role for message in demonstration.messages]
        if "assistant" not in roles or not all(isinstance(m, Message) for m in demonstration.messages):
            return Finding(name=name, right=False, detail=f"one has nothing to imitate (roles: {', '.join(roles)})")
    return Finding(name=name, right=True, detail=f"{len(found)} looked at")


def _why(member: Scored) -> str:
    rollout = member.rollout
    lines = (rollout.error or "").strip().splitlines()
    verdicts = "; ".join(f"{v.verifier}: {v.reason} {v.detail:.200}".strip() for v in member.verdicts)
    return f"task '{rollout.task.id}' ended as {rollout.stop.value}; {lines[-1] if lines else verdicts}".strip("; ")


def _range(members: Sequence[Scored]) -> str:
    totals = [member.reward.total for member in members if member.reward.total is not None]
    return f"{min(totals):.3g} to {max(totals):.3g}" if totals else "unjudged"
