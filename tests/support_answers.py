"""Judging answers in tests: rollouts from texts, and verifiers with a running pool of workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agentrl.api import Message, Rollout, Services, Stop, Task, Turn, Verdict, Verifier
from agentrl.sandbox import open_workers


def rollout_of(response: str, answer: Any) -> Rollout:
    """A rollout of one turn."""
    return reply_to({"answer": answer}, response)


def reply_to(data: Mapping[str, Any], *responses: str) -> Rollout:
    """A rollout of a turn for each response, at a task with this data."""
    turns = tuple(
        Turn(segment=0, span=(0, 0), completion=None, action=Message(role="assistant", content=response))
        for response in responses
    )
    task = Task(id="t", messages=(), data=data)
    return Rollout(task=task, index=0, seed=0, turns=turns, segments=(), stop=Stop.FINISHED)


def judge_all(
    plugin: type[Verifier], pairs: Iterable[tuple[str, Any]], *, workers: int = 2, **options: Any
) -> list[Verdict]:
    """Verdicts on (response, gold) pairs by one verifier."""
    return judge_rollouts(plugin, [rollout_of(*pair) for pair in pairs], workers=workers, **options)


def judge_rollouts(
    plugin: type[Verifier], rollouts: Sequence[Rollout], *, workers: int = 2, **options: Any
) -> list[Verdict]:
    """Verdicts on rollouts by one verifier with a pool of worker processes, one after the other."""

    async def main() -> list[Verdict]:
        pool = open_workers(workers=workers)
        verifier = plugin(plugin.Options(**options), Services(available={"workers": pool}))
        try:
            return [await verdict(verifier, rollout) for rollout in rollouts]
        finally:
            await pool.close()

    return asyncio.run(main())


async def verdict(verifier: Verifier, rollout: Rollout) -> Verdict:
    """One verdict; `verify` may be sync or async."""
    found = verifier.verify(rollout)
    return found if isinstance(found, Verdict) else await found


def passed(plugin: type[Verifier], pairs: Sequence[tuple[str, Any]], **options: Any) -> list[bool]:
    """Whether each pair passes."""
    return [bool(found.passed) for found in judge_all(plugin, pairs, **options)]
