"""Many rollouts at once: one event loop drives them all; they finish in any order and come back sorted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import groupby

from agentrl.api import ConfigError, Env, Group, History, Rollout, Scored, Stop, Task, TooManyFailures, keyed_seed
from agentrl.config import RolloutConfig
from agentrl.rollouts.history import FULL
from agentrl.rollouts.players import Attempt, Players
from agentrl.rollouts.runner import run_rollout
from agentrl.rollouts.sampling import Key
from agentrl.rollouts.scoring import GroupScoring, Scorer


def plan(tasks: Sequence[Task], samples: int, *, seed: int, phase: tuple[int | str, ...]) -> list[Attempt]:
    """`samples` attempts at each task. Members of a group share the environment's seed, not the sampling seed.

    phase: what the rollouts are for, such as `("train", 12)` or `("eval", "test")`; part of every key.
    """
    return [
        Attempt(
            task=task,
            index=index,
            key=(place, index),
            env_seed=keyed_seed(seed, "env", *phase, task.id) >> 32,  # many libraries take 32-bit seeds only
            seed_key=(seed, "sample", *phase, task.id, index),
        )
        for place, task in enumerate(tasks)
        for index in range(samples)
    ]


async def collect(
    attempts: Sequence[Attempt],
    *,
    make_env: Callable[[], Env],
    players: Players,
    limits: RolloutConfig,
    scorer: Scorer,
    progress: Callable[[Scored], None],
    history: History = FULL,
) -> list[Group]:
    """Run and judge all attempts, at most `rollout.concurrency` at once; groups in the order of the attempts.

    A slot that has finished a rollout goes on with the next one and leaves the judging to a task of its own, so that
    a slow verifier never holds up sampling. A verifier of whole groups is asked when the last member is there.
    """
    sizes = Counter(attempt.key[0] for attempt in attempts)
    scorings = {place: scorer.group(size) for place, size in sizes.items()}
    waiting = iter(attempts)
    judging: dict[Key, asyncio.Task[Scored]] = {}

    async def slot() -> None:
        try:
            for attempt in waiting:  # one iterator for all slots: the next attempt goes to the slot that is free
                rollout = await run_rollout(attempt, make_env(), players, limits, history)
                judging[attempt.key] = asyncio.create_task(_scored(scorings[attempt.key[0]], rollout, progress))
        finally:
            players.leave()

    slots = [asyncio.create_task(slot()) for _ in range(min(limits.concurrency, len(attempts)))]
    for _ in slots:
        players.enter()
    try:
        await asyncio.gather(*slots)
        scored = await asyncio.gather(*(judging[attempt.key] for attempt in attempts))
    finally:
        for task in (*slots, *judging.values()):
            task.cancel()
    places = groupby(zip(attempts, scored, strict=True), key=lambda pair: pair[0].key[0])
    return [_group([member for _, member in pairs]) for _, pairs in places]


async def _scored(scoring: GroupScoring, rollout: Rollout, progress: Callable[[Scored], None]) -> Scored:
    scored = await scoring.score(rollout)
    progress(scored)
    return scored


def _group(members: Sequence[Scored]) -> Group:
    return Group(task=members[0].rollout.task, members=tuple(members))


def refuse_failures(groups: Sequence[Group], max_share: float) -> None:
    """Stop the run when too many rollouts failed or could not be judged, with the first reason."""
    members = [member for group in groups for member in group.members]
    bad = [m for m in members if m.reward.total is None]
    if len(bad) <= max_share * len(members):
        return
    first = bad[0]
    reason = first.rollout.error or next(
        (f"{v.verifier}: {v.reason}: {v.detail}" for v in first.verdicts if v.score is None), "no verdict"
    )
    raise TooManyFailures(
        f"{len(bad)} of {len(members)} rollouts failed or could not be judged "
        f"(rollout.max_failed_share = {max_share}); the first: {reason.strip()}"
    )


def refuse_full_contexts(groups: Sequence[Group], context: int) -> None:
    """Stop the run when no rollout had room for a single token: it would go on for hours and learn nothing."""
    rollouts = [member.rollout for group in groups for member in group.members]
    if rollouts and all(rollout.stop is Stop.CONTEXT and not rollout.turns for rollout in rollouts):
        raise ConfigError(
            f"the first prompt of each of {len(rollouts)} rollouts fills the model's context of {context} tokens: take "
            "a model with a longer one, or shorten the prompt (tasks, chat.system, chat.template, fewer tools, "
            "chat.show_tools=false for a policy that learned its tools from demonstrations)"
        )
