"""Many rollouts: fixed order whatever finishes first, keyed seeds, failures counted."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from typing import Any

import pytest

from agentrl.api import ConfigError, Group, Message, Rollout, StepResult, Stop, TooManyFailures, Verdict, Verifier
from agentrl.config import RewardConfig
from agentrl.rollouts.chat import ChatFormat
from agentrl.rollouts.collect import collect, plan, refuse_failures, refuse_full_contexts
from agentrl.rollouts.engines.base import SampleRequest
from agentrl.rollouts.players import TokenPlayers
from agentrl.rollouts.sampling import SCHEDULES
from agentrl.rollouts.scoring import Scorer
from tests.support import Guess, ScriptedEngine, guess_task, make_settings

REWARD = RewardConfig.model_validate(
    {"success": {"part": "hit"}, "parts": [{"name": "hit", "verifier": "a:B"}], "on_truncated": "keep"}
)


class Hit(Verifier):
    name = "hit"

    def verify(self, rollout: Rollout) -> Verdict:
        hit = rollout.stop is Stop.FINISHED
        return Verdict(verifier=self.name, score=float(hit), passed=hit, reason="passed" if hit else "wrong_answer")


class Jittery(Guess):
    """Answers after a random while, so that rollouts overtake each other."""

    async def step(self, action: Message) -> StepResult:  # type: ignore[override]
        await asyncio.sleep(random.random() * 0.01)
        return super().step(action)


def scorer(verifier: type[Verifier] = Hit) -> Scorer:
    return Scorer(REWARD, {"hit": verifier(None, None)}, timeout=5.0)  # type: ignore[arg-type]


def answer(request: SampleRequest) -> str:
    return str(request.seed % 9)


def gather(
    chat: ChatFormat, schedule: str, concurrency: int, env: type[Guess] = Jittery, **changes: Any
) -> tuple[list[Group], ScriptedEngine]:
    engine = ScriptedEngine(chat, answer)
    tasks = [guess_task(number) for number in range(6)]

    settings = make_settings(chat, concurrency=concurrency, **changes)

    async def scenario() -> list[Group]:
        return await collect(
            plan(tasks, 4, seed=3, phase=("train", 1)),
            make_env=env,
            players=TokenPlayers(SCHEDULES[schedule](engine), settings),
            limits=settings.limits,
            scorer=scorer(),
            progress=lambda scored: None,
        )

    return asyncio.run(scenario()), engine


def said(groups: list[Group]) -> list[list[str]]:
    return [[t.action.content for t in m.rollout.turns] for group in groups for m in group.members]


@pytest.mark.parametrize("schedule", ["deterministic", "throughput"])
@pytest.mark.parametrize("concurrency", [1, 5, 100])
def test_the_same_rollouts_in_every_schedule_and_at_every_concurrency(
    chat: ChatFormat, schedule: str, concurrency: int
) -> None:
    groups, _ = gather(chat, schedule, concurrency)
    reference, _ = gather(chat, "deterministic", 24)
    assert said(groups) == said(reference)
    assert [g.task.id for g in groups] == [f"guess/{n}" for n in range(6)]
    assert [m.rollout.index for g in groups for m in g.members] == [0, 1, 2, 3] * 6


def test_the_turn_barrier_batches_the_same_requests_whoever_was_faster(chat: ChatFormat) -> None:
    batches = []
    for seed in range(3):
        random.seed(seed)
        _, engine = gather(chat, "deterministic", 7)
        batches.append([[r.prompt for r in batch] for batch in engine.batches])
    assert batches[0] == batches[1] == batches[2]
    _, engine = gather(chat, "deterministic", 24)
    assert len(engine.batches[0]) == 24


def test_members_share_the_environment_s_seed_and_not_the_sampling_seed() -> None:
    attempts = plan([guess_task(1), guess_task(2)], 3, seed=0, phase=("train", 5))
    assert len({a.env_seed for a in attempts[:3]}) == 1
    assert attempts[0].env_seed != attempts[3].env_seed
    assert len({a.seed_key for a in attempts}) == 6
    assert plan([guess_task(1)], 3, seed=0, phase=("train", 6))[0].env_seed != attempts[0].env_seed


def test_a_rollout_that_times_out_does_not_hold_the_others_up(chat: ChatFormat) -> None:
    class Stuck(Guess):
        async def step(self, action: Message) -> StepResult:  # type: ignore[override]
            if self.number == 2:
                await asyncio.sleep(60)
            return super().step(action)

    groups, _ = gather(chat, "deterministic", 24, Stuck, step_timeout_seconds=0.2)
    stops = {g.task.id: {m.rollout.stop for m in g.members} for g in groups}
    assert Stop.TIMEOUT in stops["guess/2"]
    assert all(Stop.TIMEOUT not in found for task, found in stops.items() if task != "guess/2")


def test_too_many_failures_stop_the_run_with_the_first_traceback(chat: ChatFormat) -> None:
    class Broken(Guess):
        def step(self, action: Message) -> StepResult:
            if self.number < 3:
                raise RuntimeError("planted in step")
            return super().step(action)

    groups, _ = gather(chat, "deterministic", 24, Broken)
    refuse_failures(groups, 0.5)
    with pytest.raises(TooManyFailures, match=r"(?s)12 of 24 rollouts failed.*planted in step"):
        refuse_failures(groups, 0.4)
    failed = [m for g in groups for m in g.members if m.rollout.stop is Stop.ENV_ERROR]
    assert all(m.reward.total is None and m.reward.success is None and m.verdicts == () for m in failed)


def test_a_step_without_room_for_a_single_token_stops_the_run(chat: ChatFormat) -> None:
    groups, _ = gather(chat, "deterministic", 24)
    refuse_full_contexts(groups, 256)
    full = [
        dataclasses.replace(m, rollout=dataclasses.replace(m.rollout, turns=(), stop=Stop.CONTEXT))
        for g in groups
        for m in g.members
    ]
    one_has_room = [dataclasses.replace(groups[0], members=(*full, *groups[0].members))]
    refuse_full_contexts(one_has_room, 256)
    with pytest.raises(ConfigError, match=r"each of 24 rollouts fills the model's context of 256 tokens"):
        refuse_full_contexts([dataclasses.replace(groups[0], members=tuple(full))], 256)


def test_a_verifier_that_raises_makes_the_rollout_unjudged_and_never_wrong(chat: ChatFormat) -> None:
    class Raises(Hit):
        async def verify(self, rollout: Rollout) -> Verdict:  # type: ignore[override]
            raise ZeroDivisionError("planted")

    class Hangs(Hit):
        async def verify(self, rollout: Rollout) -> Verdict:  # type: ignore[override]
            await asyncio.sleep(60)
            raise AssertionError

    groups, _ = gather(chat, "deterministic", 24)
    rollout = groups[0].members[0].rollout
    scored = asyncio.run(scorer(Raises).score(rollout))
    assert (scored.reward.total, scored.verdicts[0].reason) == (None, "verifier_error")
    assert "planted" in scored.verdicts[0].detail
    impatient = Scorer(REWARD, {"hit": Hangs(None, None)}, timeout=0.05)  # type: ignore[arg-type]
    assert asyncio.run(impatient.score(rollout)).verdicts[0].reason == "verifier_timeout"
