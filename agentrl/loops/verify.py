"""`agentrl verify`: judge saved programs or responses, many at once, in input order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentrl.api import DataError, Message, Rollout, Stop, Task, Turn, Verdict, Verifier
from agentrl.api.background import run_loop
from agentrl.config import SandboxConfig, parse_options
from agentrl.loops.wiring import close_services, services_for, start_services
from agentrl.plugins import load_verifier
from agentrl.rollouts.scoring import judge

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
    options: Mapping[str, Any] | None = None,
    write: Callable[[dict[str, Any]], None],
    refuse: Callable[[str], None],
) -> Outcome:
    """Judge every line of a JSONL file. `write` gets one object per judged line, `refuse` one text per bad line."""
    plugin = load_verifier(name)
    parsed = parse_options(plugin.Options, options or {}, "options")
    if not Path(path).is_file():
        raise DataError(f"{path}: no such file")
    return run_loop(_verify(plugin, parsed, Path(path), sandbox, write, refuse))


async def _verify(
    plugin: type[Verifier],
    options: BaseModel,
    path: Path,
    config: SandboxConfig,
    write: Callable[[dict[str, Any]], None],
    refuse: Callable[[str], None],
) -> Outcome:
    services = start_services(plugin.needs, config, plugin.name)
    outcome = Outcome()
    if "sandbox" in services.available:
        outcome.tier = services.sandbox.tier
    verifier = plugin(options, services_for(plugin.needs, services))
    width = IN_FLIGHT_PER_WORKER * (config.workers or 4)
    running: list[tuple[str, asyncio.Task[Verdict]]] = []

    async def finish_first() -> None:
        identity, task = running.pop(0)
        verdict = await task
        outcome.judged += verdict.score is not None
        outcome.unjudged += verdict.score is None
        outcome.passed += bool(verdict.passed)
        write(_line(identity, verdict, outcome.tier))

    try:
        for number, line in _lines(path):
            try:
                identity, rollout = read_line(line)
                verifier.check_task(rollout.task)
            except DataError as error:
                outcome.refused += 1
                refuse(f"{path}, line {number}: {error}")
                continue
            running.append((identity, asyncio.create_task(judge(verifier, rollout))))
            if len(running) >= width:
                await finish_first()
        while running:
            await finish_first()
    finally:
        for _, task in running:
            task.cancel()
        await close_services(services)
    return outcome


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def read_line(line: str) -> tuple[str, Rollout]:
    """A line `{"id", "response" | "program", "task": {...}}` as a rollout of one turn."""
    try:
        data = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error}") from error
    if not isinstance(data, dict) or "id" not in data:
        raise DataError("an object with 'id', 'task' and 'response' or 'program' is expected")
    if ("response" in data) == ("program" in data):
        raise DataError("give either 'response' (text to extract from) or 'program' (run as it is)")
    text = data.get("response", data.get("program"))
    if not isinstance(text, str) or not isinstance(data.get("task"), dict):
        raise DataError("'response' or 'program' must be text and 'task' an object")
    task = Task(id=str(data["id"]), messages=(), answer=data["task"].get("answer"), data=data["task"])
    turn = Turn(segment=0, span=(0, 0), completion=None, action=Message(role="assistant", content=text))
    evidence = {"program": text} if "program" in data else None
    rollout = Rollout(task=task, index=0, seed=0, turns=(turn,), segments=(), stop=Stop.FINISHED, evidence=evidence)
    return data["id"], rollout


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
