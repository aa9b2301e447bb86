"""One rollout: reset, then sample and step until something ends it. The author's code sees messages only."""

from __future__ import annotations

import asyncio
import math
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from agentrl.api import (
    JSON,
    AgentRLError,
    Completion,
    Env,
    Message,
    PluginError,
    Rollout,
    StepResult,
    Stop,
    Task,
    Turn,
    keyed_seed,
)
from agentrl.config import RolloutConfig
from agentrl.rollouts.authors import call
from agentrl.rollouts.chat import ChatFormat, TokenLedger
from agentrl.rollouts.engines.base import SampleRequest
from agentrl.rollouts.sampling import Key, Sampler


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One rollout to be made.

    key: place in the fixed order (task's place, index). seed_key: what its draws are keyed by, the turn apart.

    Example: `Attempt(task=task, index=2, key=(0, 2), env_seed=17, seed_key=(0, "sample", "train", 3, task.id, 2))`.
    """

    task: Task
    index: int
    key: Key
    env_seed: int
    seed_key: tuple[int | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all rollouts of a collection share. max_new_tokens: per turn. context: the model's longest sequence."""

    chat: ChatFormat
    limits: RolloutConfig
    max_new_tokens: int
    temperature: float
    context: int


class _Ended(Exception):
    """Raised inside a rollout to end it with a stop reason."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.value)
        self.stop = stop


async def run_rollout(attempt: Attempt, env: Env, sampler: Sampler, settings: Settings) -> Rollout:
    """Run one attempt to its end; whatever the environment does, a rollout comes back and `close` was called."""
    return await _Run(attempt, env, sampler, settings).run()


class _Run:
    """The state of one rollout while it runs."""

    def __init__(self, attempt: Attempt, env: Env, sampler: Sampler, settings: Settings) -> None:
        self.attempt, self.env, self.sampler, self.settings = attempt, env, sampler, settings
        self.ledger = TokenLedger(settings.chat)
        self.conversation: list[Message] = []
        self.turns: list[Turn] = []
        self.deadline = time.monotonic() + settings.limits.timeout_seconds
        self.evidence: JSON = None

    async def run(self) -> Rollout:
        stop, error = await self._attempt()
        try:
            await self._call(self.env.close)
        except Exception:
            error = error or traceback.format_exc()
            stop = Stop.ENV_ERROR
        return Rollout(
            task=self.attempt.task,
            index=self.attempt.index,
            seed=self.attempt.env_seed,
            turns=tuple(self.turns),
            segments=self.ledger.segments(),
            stop=stop,
            evidence=self.evidence,
            error=error,
        )

    async def _attempt(self) -> tuple[Stop, str | None]:
        stop, error = Stop.ENV_ERROR, None
        try:
            await self._reset()
            stop = await self._turns()
        except _Ended as ended:
            stop = ended.stop
        except TimeoutError:
            stop = Stop.TIMEOUT
        except PluginError:
            raise  # the class breaks the contract: every rollout would fail alike
        except _EngineFailure as failure:
            stop, error = Stop.ENGINE_ERROR, str(failure)
        except Exception:
            error = traceback.format_exc()
        if not stop.failed:
            try:
                self.evidence = await self._call(self.env.evidence)
            except Exception:
                stop, error = Stop.ENV_ERROR, traceback.format_exc()
        return stop, error

    async def _reset(self) -> None:
        task, seed = self.attempt.task, self.attempt.env_seed
        first, _ = await self._call(partial(self.env.reset, task=task, seed=seed))
        self.conversation = list(first)
        if self.env.tools:
            raise PluginError(f"{type(self.env).__name__} offers tools, which rollouts do not carry yet")

    async def _turns(self) -> Stop:
        for turn in range(self.settings.limits.max_turns):
            completion, place = await self._sample(turn)
            action = self.settings.chat.action(completion)
            if completion.finish != "stop":
                self._record(place, completion, action, StepResult())
                return self._cut(completion)
            result = await self._call(partial(self.env.step, action))
            if not isinstance(result, StepResult):
                raise PluginError(
                    f"{type(self.env).__name__}.step must return a StepResult, not {type(result).__name__}"
                )
            if not math.isfinite(result.reward):
                raise ValueError(f"{type(self.env).__name__}.step gave the reward {result.reward}")
            self._record(place, completion, action, result)
            if result.terminated:
                return Stop.FINISHED
            if result.truncated:
                return Stop.ENV_TRUNCATED
            self.conversation += [action, *result.observation]
        return Stop.MAX_TURNS

    async def _sample(self, turn: int) -> tuple[Completion, tuple[int, tuple[int, int]]]:
        prompt = self.ledger.prompt(self.conversation, turn)
        room = self._room(len(prompt))
        request = SampleRequest(
            prompt=prompt,
            seed=keyed_seed(*self.attempt.seed_key, turn),
            max_new_tokens=room,
            temperature=self.settings.temperature,
            stop_ids=self.settings.chat.stop_ids,
            deadline=self.deadline,
        )
        async with asyncio.timeout(max(self.deadline - time.monotonic(), 0)):
            try:
                completion = await self.sampler.complete(self.attempt.key, request)
            except Exception as error:
                raise _EngineFailure("".join(traceback.format_exception(error))) from error
        if not completion.token_ids:
            raise _Ended(Stop.CANCELLED)
        return completion, self.ledger.complete(completion, turn)

    def _room(self, prompt: int) -> int:
        """Tokens that this turn may sample; ends the rollout when there are none."""
        left = self.settings.limits.max_tokens - sum(t.span[1] - t.span[0] for t in self.turns)
        context = self.settings.context - prompt
        if left < 1:
            raise _Ended(Stop.BUDGET)
        if context < 1:
            raise _Ended(Stop.CONTEXT)
        return min(self.settings.max_new_tokens, left, context)

    def _cut(self, completion: Completion) -> Stop:
        """Why a completion has no end of turn: it is not handed to the environment."""
        if completion.finish == "abort":
            return Stop.CANCELLED
        if len(completion.token_ids) == self.settings.max_new_tokens:
            return Stop.LENGTH
        sampled = sum(t.span[1] - t.span[0] for t in self.turns)
        return Stop.BUDGET if sampled >= self.settings.limits.max_tokens else Stop.CONTEXT

    def _record(
        self, place: tuple[int, tuple[int, int]], completion: Completion, action: Message, result: StepResult
    ) -> None:
        self.turns.append(
            Turn(
                segment=place[0],
                span=place[1],
                completion=completion,
                action=action,
                observation=tuple(result.observation),
                env_reward=float(result.reward),
                info=result.info,
            )
        )

    async def _call(self, function: Callable[[], Any]) -> Any:
        return await call(function, self.settings.limits.step_timeout_seconds)


class _EngineFailure(AgentRLError):
    """The engine raised; the text is its traceback."""
