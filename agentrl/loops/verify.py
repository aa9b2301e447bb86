"""`agentrl verify`: judge saved programs or responses, many at once, in input order."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentrl.api import DataError, Message, Rollout, Stop, Task, Turn, Verdict, Verifier
from agentrl.api.background import run_loop
from agentrl.config import JudgeConfig, SandboxConfig, parse_options
from agentrl.loops.wiring import close_services, services_for, start_services
from agentrl.plugins import load_verifier
from agentrl.rollouts.scoring import judge, judge_group

Take = Callable[[Any, Verdict], None]
RefuseLine = Callable[[int, DataError], None]
IN_FLIGHT_PER_WORKER = 8
"""Lines that are read ahead for each sandbox worker: enough to keep it busy, few enough to hold in memory."""


@dataclass(slots=True)
class Outcome:
    """What became of a file: lines judged, unjudged, and refused with their messages."""

    judged: int = 0
    passed: int = 0
    unjudged: int = 0
    refused: int = 0
    tier: str | None = None

    @property
    def exit_code(self) -> int:
        """2 for bad input, 3 when some lines were unjudged, 0 otherwise."""
        return 2 if self.refused else 3 if self.unjudged else 0


def verify_file(
    name: str,
    path: str,
    *,
    sandbox: SandboxConfig,
    judge_config: JudgeConfig | None = None,
    options: Mapping[str, Any] | None = None,
    write: Callable[[dict[str, Any]], None],
    refuse: Callable[[str], None],
) -> Outcome:
    """Judge every line of a JSONL file; lines of one group together, when the verifier judges groups.

    `write` gets one object per judged line, `refuse` one text per bad line.
    """
    plugin = load_verifier(name)
    parsed = parse_options(plugin.Options, options or {}, "options")
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    return run_loop(_verify(plugin, parsed, Path(path), sandbox, judge_config or JudgeConfig(), write, refuse))


async def _verify(
    plugin: type[Verifier],
    options: BaseModel,
    path: Path,
    config: SandboxConfig,
    judge_config: JudgeConfig,
    write: Callable[[dict[str, Any]], None],
    refuse: Callable[[str], None],
) -> Outcome:
    services = start_services(plugin.needs, config, plugin.name, judge_config)
    outcome = Outcome()
    if "sandbox" in services.available:
        outcome.tier = services.sandbox.tier
    width = IN_FLIGHT_PER_WORKER * (config.workers or 4)

    def take(identity: Any, verdict: Verdict) -> None:
        outcome.judged += verdict.score is not None
        outcome.unjudged += verdict.score is None
        outcome.passed += bool(verdict.passed)
        write(_line(identity, verdict, outcome.tier))

    def refuse_line(number: int, error: DataError) -> None:
        outcome.refused += 1
        refuse(f"{path}, line {number}: {error}")

    try:
        verifier = plugin(options, services_for(plugin.needs, services))
        judge_lines = _by_group if plugin.scope == "group" else _one_by_one
        await judge_lines(verifier, path, width, take, refuse_line)
    finally:
        await close_services(services)
    return outcome


async def _one_by_one(verifier: Verifier, path: Path, width: int, take: Take, refuse: RefuseLine) -> None:
    """Judge each line by itself, `width` at once."""
    running: list[tuple[Any, asyncio.Task[Verdict]]] = []
    try:
        for number, line in _lines(path):
            try:
                identity, rollout = read_line(line)
                verifier.check_task(rollout.task)
            except DataError as error:
                refuse(number, error)
                continue
            running.append((identity, asyncio.create_task(judge(verifier, rollout))))
            if len(running) >= width:
                take(running[0][0], await running[0][1])
                del running[0]
        for identity, task in running:
            take(identity, await task)
    finally:
        for _, task in running:
            task.cancel()


async def _by_group(verifier: Verifier, path: Path, width: int, take: Take, refuse: RefuseLine) -> None:
    """Judge the lines of each group together, `width` groups at once.

    All lines are read first, as the members of a group may stand anywhere. A line that is refused is as a member that
    failed: the others are judged without it.
    """
    groups: dict[str, list[Rollout]] = {}
    order: list[tuple[Any, str, int]] = []
    for number, line in _lines(path):
        try:
            identity, rollout, name = read_member(line)
            members = groups.setdefault(name, [])
            if members and members[0].task.data != rollout.task.data:
                raise DataError(f"the task is not that of the other lines of the group {name}")
            verifier.check_task(rollout.task)
        except DataError as error:
            refuse(number, error)
            continue
        order.append((identity, name, len(members)))
        members.append(dataclasses.replace(rollout, index=len(members)))
    slots = asyncio.Semaphore(width)

    async def judged(members: Sequence[Rollout]) -> Sequence[Verdict]:
        async with slots:
            return await judge_group(verifier, members)

    tasks = {name: asyncio.create_task(judged(members)) for name, members in groups.items() if members}
    try:
        for identity, name, place in order:
            take(identity, (await tasks[name])[place])
    finally:
        for task in tasks.values():
            task.cancel()


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def read_line(line: str) -> tuple[Any, Rollout]:
    """A line `{"id", "response" | "program", "task": {...}}` as its id and a rollout of one turn."""
    data = _read_object(line)
    return data["id"], _rollout(data)


def read_member(line: str) -> tuple[Any, Rollout, str]:
    """A line with a `"group"` too, as its id, a rollout, and the group's name as JSON text."""
    data = _read_object(line)
    name = data.get("group")
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise DataError("this verifier judges groups: 'group' must be the text or integer that names the line's group")
    return data["id"], _rollout(data), json.dumps(name)


def _read_object(line: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error}") from error
    if not isinstance(data, dict) or "id" not in data:
        raise DataError("an object with 'id', 'task' and 'response' or 'program' is expected")
    return data


def _rollout(data: dict[str, Any]) -> Rollout:
    if ("response" in data) == ("program" in data):
        raise DataError("give either 'response' (text to extract from) or 'program' (run as it is)")
    text = data.get("response", data.get("program"))
    if not isinstance(text, str) or not isinstance(data.get("task"), dict):
        raise DataError("'response' or 'program' must be text and 'task' an object")
    task = Task(id=str(data["id"]), messages=(), answer=data["task"].get("answer"), data=data["task"])
    turn = Turn(segment=0, span=(0, 0), completion=None, action=Message(role="assistant", content=text))
    evidence = {"program": text} if "program" in data else None
    return Rollout(task=task, index=0, seed=0, turns=(turn,), segments=(), stop=Stop.FINISHED, evidence=evidence)


def _line(identity: Any, verdict: Verdict, tier: str | None) -> dict[str, Any]:
    line = {
        "id": identity,
        "passed": verdict.passed if verdict.score is not None else None,
        "score": verdict.score,
        "reason": verdict.reason,
        "detail": verdict.detail,
        "seconds": round(verdict.seconds, 6),
    }
    return line if tier is None else line | {"tier": tier}
