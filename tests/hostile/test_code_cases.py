"""Hostile and awkward programs with the right verdict, every line through the verifier as `agentrl verify` would."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from agentrl_verifiers.code_tests import CodeTests

from agentrl.api import Message, Options, Rollout, Services, Stop, Task, Turn, Verdict
from agentrl.sandbox import open_sandbox
from tests.processes import BACKENDS, command_of, descendants, need_backend

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


async def judge(lines: list[dict[str, Any]], backend: str) -> list[Verdict]:
    sandbox = open_sandbox(backend=backend, workers=4)
    verifier = CodeTests(Options(), Services(available={"sandbox": sandbox}))
    try:
        return await asyncio.gather(*(verifier.verify(rollout_of(line)) for line in lines))
    finally:
        await sandbox.close()


@pytest.fixture(scope="module", params=BACKENDS)
def verdicts(request: pytest.FixtureRequest) -> dict[str, Verdict]:
    need_backend(request.param)
    return dict(zip((line["id"] for line in LINES), asyncio.run(judge(LINES, request.param)), strict=True))


@pytest.mark.parametrize("line", LINES, ids=[line["id"] for line in LINES])
def test_case(line: dict[str, Any], verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[line["id"]]
    assert verdict.passed is line["right"]["passed"], f"{verdict.reason}: {verdict.detail} ({line['why']})"
    assert verdict.score == (1.0 if line["right"]["passed"] else 0.0)


def test_nothing_is_left_on_the_host(verdicts: dict[str, Verdict]) -> None:
    """Daemons, killers and stopped programs among the cases are gone, and so is every worker."""
    assert verdicts
    commands = [command_of(pid) for pid in descendants(os.getpid())]
    assert [command for command in commands if "bwrap" in command or "attach" in command] == []
