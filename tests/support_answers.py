"""Judging answers in tests: rollouts from texts, and verifiers with a running pool of workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from agentrl.api import Message, Rollout, Services, Stop, Task, Turn, Verdict, Verifier
from agentrl.sandbox import open_workers


def rollout_of(response: str, answer: Any) -> Rollout:
    """A rollout of one turn."""
    turn = Turn(segment=0, span=(0, 0), completion=None, action=Message(role="assistant", content=response))
    task = Task(id="t", messages=(), data={"answer": answer})
    return Rollout(task=task, index=0, seed=0, turns=(turn,), segments=(), stop=Stop.FINISHED)


def judge_all(
    plugin: type[Verifier], pairs: Iterable[tuple[str, Any]], *, workers: int = 2, **options: Any
) -> list[Verdict]:
    """Verdicts on (response, gold) pairs by one verifier, many at once."""

    async def main() -> list[Verdict]:
        pool = open_workers(workers=workers)
        verifier = plugin(plugin.Options(**options), Services(available={"workers": pool}))
        try:
            return [await verdict(verifier, rollout_of(*pair)) for pair in pairs]
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
