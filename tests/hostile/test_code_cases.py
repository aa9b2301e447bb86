"""Hostile and awkward programs with the right verdict, every line through the verifier as `agentrl verify` would."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentrl.api import Message, Options, Rollout, Services, Stop, Task, Turn, Verdict
from agentrl.sandbox import open_sandbox
from agentrl_verifiers.code_tests import CodeTests

LINES = [json.loads(line) for line in Path(__file__).with_name("code_cases.jsonl").read_text().splitlines()]
QUICKER = {"cpu_seconds": 3, "seconds": 8}


def rollout_of(line: dict[str, Any]) -> Rollout:
    """The rollout that a line stands for; hanging programs need not hang for the whole default limit."""
    task = line["task"] | {"limits": QUICKER | line["task"].get("limits", {})}
    turns: tuple[Turn, ...] = ()
    if "response" in line:
        action = Message(role="assistant", content=line["response"])
        turns = (Turn(segment=0, span=(0, 0), completion=None, action=action),)
    return Rollout(
        task=Task(id=line["id"], messages=(), data=task),
        index=0,
        seed=0,
        turns=turns,
        segments=(),
        stop=Stop.FINISHED,
        evidence={"program": line["program"]} if "program" in line else None,
    )


async def judge(lines: list[dict[str, Any]]) -> list[Verdict]:
    sandbox = open_sandbox(workers=4)
    verifier = CodeTests(Options(), Services(available={"sandbox": sandbox}))
    try:
        return await asyncio.gather(*(verifier.verify(rollout_of(line)) for line in lines))
    finally:
        await sandbox.close()


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    return dict(zip((line["id"] for line in LINES), asyncio.run(judge(LINES)), strict=True))


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_case(line: dict[str, Any], verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[line["id"]]
    assert verdict.passed is line["right"]["passed"], f"{verdict.reason}: {verdict.detail} ({line['why']})"
    assert verdict.score == float(line["right"]["passed"])


def test_nothing_is_left_on_the_host(verdicts: dict[str, Verdict]) -> None:
    """Daemons, killers and stopped programs among the cases are gone, and so is every worker."""
    assert verdicts
    assert not any(is_worker(int(name)) for name in os.listdir("/proc") if name.isdigit())


def is_worker(pid: int) -> bool:
    """Whether a process is a sandbox worker of this process or was left by one."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    parent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    return b"agentrl.sandbox.inside" in command and int(parent) in (os.getpid(), 1)
