"""Whatever an environment, an engine or a policy does, a rollout comes back with its own stop, and close is called."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from agentrl.api import Message, PluginError, Rollout, StepResult, Stop, sampled_ids
from agentrl.rollouts.chat import ChatFormat
from agentrl.rollouts.collect import plan
from agentrl.rollouts.engines.base import SampleRequest
from agentrl.rollouts.players import Settings, TokenPlayers
from agentrl.rollouts.runner import run_rollout
from agentrl.rollouts.sampling import TurnBarrier
from tests.support import Guess, ScriptedEngine, guess_task, make_settings


def run(
    chat: ChatFormat,
    env: Guess,
    answer: Callable[[SampleRequest], str],
    settings: Settings | None = None,
    context: int = 4096,
) -> tuple[Rollout, ScriptedEngine]:
    engine = ScriptedEngine(chat, answer, context)

    async def scenario() -> Rollout:
        sampler = TurnBarrier(engine)
        sampler.enter()
        (attempt,) = plan([guess_task()], 1, seed=0, phase=("test",))
        chosen = settings or make_settings(chat)
        return await run_rollout(attempt, env, TokenPlayers(sampler, chosen), chosen.limits)

    return asyncio.run(scenario()), engine


def answers(*texts: str) -> Callable[[SampleRequest], str]:
    iterator = iter(texts)
    return lambda request: next(iterator)


def test_a_hit_in_the_third_turn(chat: ChatFormat) -> None:
    env = Guess(reward=0.25)
    rollout, engine = run(chat, env, answers("5", "9", "7"))
    assert rollout.stop is Stop.FINISHED
    assert [turn.action.content for turn in rollout.turns] == ["5", "9", "7"]
    assert [turn.env_reward for turn in rollout.turns] == [0.25] * 3
    assert rollout.evidence == {"said": ["5", "9", "7"]}
    assert env.was_closed
    (segment,) = rollout.segments
    assert segment.turn.tolist() == sorted(segment.turn.tolist())
    assert [list(c.token_ids) for t in rollout.turns if (c := t.completion)] == [
        segment.ids[slice(*turn.span)].tolist() for turn in rollout.turns
    ]
    prompts = [batch[0].prompt for batch in engine.batches]
    for prompt, turn in zip(prompts, rollout.turns, strict=True):
        assert tuple(segment.ids[: turn.span[0]].tolist()) == prompt
    assert len(sampled_ids(rollout)) == rollout.sampled_tokens == sum(b - a for a, b in (t.span for t in rollout.turns))


def test_turns_are_limited(chat: ChatFormat) -> None:
    rollout, _ = run(chat, Guess(), lambda r: "5", make_settings(chat, max_turns=2))
    assert rollout.stop is Stop.MAX_TURNS
    assert len(rollout.turns) == 2
    assert rollout.evidence == {"said": ["5", "5"]}


def test_a_turn_without_an_end_is_cut_and_not_handed_to_the_environment(chat: ChatFormat) -> None:
    env = Guess()
    rollout, _ = run(chat, env, lambda r: "x" * 100, make_settings(chat, max_new_tokens=10))
    assert rollout.stop is Stop.LENGTH
    assert rollout.stop.truncated
    assert rollout.sampled_tokens == 10
    assert env.said == []
    assert env.was_closed


def test_a_rollout_s_budget_of_tokens(chat: ChatFormat) -> None:
    settings = make_settings(chat, max_tokens=12, max_new_tokens=12)
    rollout, engine = run(chat, Guess(), lambda r: "z" * 7, settings)
    assert rollout.stop is Stop.BUDGET
    assert rollout.sampled_tokens == 12
    assert [batch[0].max_new_tokens for batch in engine.batches] == [12, 4]


def test_no_room_in_the_context(chat: ChatFormat) -> None:
    rollout, _ = run(chat, Guess(), lambda r: "5", make_settings(chat, context=60))
    assert rollout.stop is Stop.CONTEXT
    assert max(len(s) for s in rollout.segments) <= 60 + 60  # the prompt that did not fit was never sampled from
    assert rollout.turns


@pytest.mark.parametrize("fault", ["reset", "step", "evidence", "close"])
def test_a_bug_of_the_environment_is_recorded_on_its_rollout(chat: ChatFormat, fault: str) -> None:
    env = Guess(fault)
    rollout, _ = run(chat, env, lambda r: "7")
    assert rollout.stop is Stop.ENV_ERROR
    assert rollout.stop.failed
    assert rollout.error is not None
    assert f"planted in {fault}" in rollout.error
    assert env.was_closed


def test_truncation_by_the_environment(chat: ChatFormat) -> None:
    rollout, _ = run(chat, Guess("truncate"), lambda r: "5")
    assert rollout.stop is Stop.ENV_TRUNCATED


def test_a_failing_engine_is_not_the_policy_s_fault(chat: ChatFormat) -> None:
    def fail(request: SampleRequest) -> str:
        raise ValueError("no weights")

    env = Guess()
    rollout, _ = run(chat, env, fail)
    assert rollout.stop is Stop.ENGINE_ERROR
    assert "no weights" in (rollout.error or "")
    assert env.was_closed


def test_a_step_that_hangs_is_given_up(chat: ChatFormat) -> None:
    class Slow(Guess):
        async def step(self, action: Message) -> StepResult:  # type: ignore[override]
            await asyncio.sleep(30)
            return StepResult()

    start = time.monotonic()
    rollout, _ = run(chat, Slow(), lambda r: "5", make_settings(chat, step_timeout_seconds=0.1))
    assert rollout.stop is Stop.TIMEOUT
    assert time.monotonic() - start < 20


def test_a_step_of_the_wrong_type_stops_the_run(chat: ChatFormat) -> None:
    class Wrong(Guess):
        def step(self, action: Message) -> StepResult:
            return ("observation", 0.0, True, False, {})  # type: ignore[return-value]

    with pytest.raises(PluginError, match=r"Wrong\.step must return a StepResult, not tuple"):
        run(chat, Wrong(), lambda r: "5")


def test_synchronous_code_does_not_hold_up_the_loop(chat: ChatFormat) -> None:
    class Sleepy(Guess):
        def step(self, action: Message) -> StepResult:
            time.sleep(0.2)
            return super().step(action)

    async def scenario() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        sampler = TurnBarrier(ScriptedEngine(chat, lambda r: "7"))
        sampler.enter()
        (attempt,) = plan([guess_task()], 1, seed=0, phase=("test",))
        settings = make_settings(chat)
        await run_rollout(attempt, Sleepy(), TokenPlayers(sampler, settings), settings.limits)
        ticking.cancel()
        return ticks

    assert asyncio.run(scenario()) >= 3
