"""`agentrl verifier check`: a verifier against its own examples, answers that must never score, and the clock."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agentrl.api import JSON, Example, Message, PluginError, Rollout, Stop, Task, Turn, Verdict, Verifier
from agentrl.api.background import run_loop
from agentrl.config import JudgeConfig, SandboxConfig, parse_options
from agentrl.loops.wiring import close_services, services_for, start_services
from agentrl.plugins import load_verifier
from agentrl.rollouts.scoring import judge, judge_group

FLOOR = {
    "empty": "",
    "blanks": " \n\t ",
    "empty box": r"\boxed{}",
    "zero": "0",
    "boxed zero": r"\boxed{0}",
    "early exit": "```python\nimport sys\nsys.exit(0)\n```",
    "prose": "I am confident that this is the correct and complete answer.",
    "long": "lorem ipsum " * 10_000,
}
"""Responses that no verifier of correctness may score, whatever its task."""
TIMED = 200
TIMED_ASKS = 8
"""Verdicts that are timed: fewer where each asks a model that may cost money."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One judged response. Example: `Check(kind="gold", response="B", expected=True, passed=True, reason="passed")`."""

    kind: str
    response: str
    expected: bool | None
    passed: bool | None
    reason: str
    detail: str

    @property
    def right(self) -> bool:
        """Whether it was judged, and as it has to be; `expected` None asks for a judgement only."""
        return self.passed is not None and self.expected in (None, self.passed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a check found. rate: verdicts per second; median and slowest: seconds of one, measured one at a time.

    Example: `Report(checks=(...), rate=900.0, median=0.001, slowest=0.02)`.
    """

    checks: tuple[Check, ...]
    rate: float
    median: float
    slowest: float

    @property
    def exit_code(self) -> int:
        """0 when every response was judged as it has to be, else 3."""
        return 0 if all(check.right for check in self.checks) else 3


def check_verifier(
    name: str, *, sandbox: SandboxConfig, judge_config: JudgeConfig | None = None, options: Mapping[str, Any]
) -> Report:
    """Check an installed verifier or `file.py:Class`. Raises PluginError for one that offers no examples.

    One that judges groups judges a response among the `others` of its example, junk among those of the task's gold.
    """
    plugin = load_verifier(name)
    examples = plugin.examples()
    if not any(example.passes for example in examples):
        raise PluginError(
            f"the verifier '{name}' offers nothing to check: its `examples()` must hold a gold response at least"
        )
    parsed = parse_options(plugin.Options, options, "options")
    return run_loop(_check(plugin, examples, sandbox, judge_config or JudgeConfig(), parsed))


async def _check(
    plugin: type[Verifier], examples: Sequence[Example], sandbox: SandboxConfig, judge_config: JudgeConfig, options: Any
) -> Report:
    services = start_services(plugin.needs, sandbox, plugin.name, judge_config)
    try:
        verifier = plugin(options, services_for(plugin.needs, services))
        checks = [await _judge(verifier, example.kind, _group(example), example.passes) for example in examples]
        for task in _tasks(examples):
            golds = {
                example.response: example.others for example in examples if example.passes and example.task is task
            }
            others = next(iter(golds.values()), ())
            echo = " ".join(str(value) for key, value in task.items() if key not in ("answer", "expected"))
            for kind, response in (FLOOR | {"echo of the task": echo}).items():
                if response not in golds:
                    expected = False if plugin.correctness else None
                    group = [_rollout(task, text, index) for index, text in enumerate((response, *others))]
                    checks.append(await _judge(verifier, kind, group, expected))
        gold = next(example for example in examples if example.passes)
        return Report(
            checks=tuple(checks), **await _measure(verifier, gold, TIMED_ASKS if "judge" in plugin.needs else TIMED)
        )
    finally:
        await close_services(services)


def _tasks(examples: Sequence[Example]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for example in examples:
        if not any(example.task is task for task in found):
            found.append(example.task)
    return found


async def _judge(verifier: Verifier, kind: str, rollouts: Sequence[Rollout], expected: bool | None) -> Check:
    """Judge the first of `rollouts`; the others are the rest of its group, for a verifier that judges groups."""
    verifier.check_task(rollouts[0].task)
    verdict = await _verdict(verifier, rollouts)
    passed = verdict.passed if verdict.score is not None else None
    if passed is None and verdict.score is not None:
        passed = verdict.score > 0
    response = rollouts[0].turns[0].action.content
    return Check(
        kind=kind, response=response, expected=expected, passed=passed, reason=verdict.reason, detail=verdict.detail
    )


async def _verdict(verifier: Verifier, rollouts: Sequence[Rollout]) -> Verdict:
    """The verdict on the first rollout."""
    if verifier.scope == "group":
        return (await judge_group(verifier, rollouts))[0]
    return await judge(verifier, rollouts[0])


async def _measure(verifier: Verifier, gold: Example, timed: int) -> dict[str, float]:
    """Speed on the gold response, made different each time by blanks or a comment, so that nothing is remembered."""
    number = 0

    def another() -> list[Rollout]:
        nonlocal number
        number += 1
        fence = gold.response.rfind("\n```")
        if fence > 0:
            response = f"{gold.response[:fence]}\n# {number}{gold.response[fence:]}"
        else:
            response = gold.response + " " * (number % 64) + "\n" * (number // 64)
        return _group(replace(gold, response=response))

    taken = []
    for _ in range(max(timed // 10, 1)):
        began = time.perf_counter()
        await _verdict(verifier, another())
        taken.append(time.perf_counter() - began)
    began = time.perf_counter()
    await asyncio.gather(*(_verdict(verifier, another()) for _ in range(timed)))
    rate = timed / (time.perf_counter() - began)
    return {"rate": rate, "median": statistics.median(taken), "slowest": max(taken)}


def _group(example: Example) -> list[Rollout]:
    """The group of an example, its own response first."""
    return [
        _rollout(example.task, response, index, example.evidence)
        for index, response in enumerate((example.response, *example.others))
    ]


def _rollout(task: Mapping[str, Any], response: str, index: int, evidence: JSON = None) -> Rollout:
    turn = Turn(segment=0, span=(0, 0), completion=None, action=Message(role="assistant", content=response))
    made = Task(id="check", messages=(), answer=task.get("answer"), data=dict(task))
    return Rollout(task=made, index=index, seed=0, turns=(turn,), segments=(), stop=Stop.FINISHED, evidence=evidence)
