"""One rollout: reset, then reply and step until something ends it. The author's code sees messages only."""

from __future__ import annotations

import dataclasses
import json
import math
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from agentrl.api import (
    JSON,
    CallProblem,
    ConfigError,
    Env,
    History,
    Message,
    PluginError,
    Rollout,
    StepResult,
    Stop,
    ToolSpec,
    Turn,
    check_tool_calls,
    nearest,
    parse_tool_calls,
)
from agentrl.api.background import call
from agentrl.config import RolloutConfig
from agentrl.rollouts.history import FULL
from agentrl.rollouts.players import Attempt, Ended, EngineFailure, Players, Reply


async def run_rollout(
    attempt: Attempt, env: Env, players: Players, limits: RolloutConfig, history: History = FULL
) -> Rollout:
    """Run one attempt to its end; whatever the environment does, a rollout comes back and `close` was called."""
    return await _Run(attempt, env, players, limits, history).run()


class _Run:
    """The state of one rollout while it runs."""

    def __init__(self, attempt: Attempt, env: Env, players: Players, limits: RolloutConfig, history: History) -> None:
        self.attempt, self.env, self.limits, self.history = attempt, env, limits, history
        self.tool_format = players.tool_format
        self.player = players.make(attempt, time.monotonic() + limits.timeout_seconds)
        self.tools: Sequence[ToolSpec] = ()
        self.opening: tuple[Message, ...] = ()
        self.turns: list[Turn] = []
        self.problems = 0
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
            segments=self.player.segments(),
            stop=stop,
            evidence=self.evidence,
            error=error,
        )

    async def _attempt(self) -> tuple[Stop, str | None]:
        stop, error = Stop.ENV_ERROR, None
        try:
            await self._reset()
            stop = await self._turns()
        except Ended as ended:
            stop = ended.stop
        except TimeoutError:
            stop = Stop.TIMEOUT
        except (PluginError, ConfigError):
            raise  # the class breaks the contract: every rollout would fail alike
        except EngineFailure as failure:
            stop, error = Stop.ENGINE_ERROR, str(failure)
        except Exception:
            error = traceback.format_exc()
        if not stop.failed:
            try:
                self.evidence = plain_json(await self._call(self.env.evidence), "evidence")
            except Exception:
                stop, error = Stop.ENV_ERROR, traceback.format_exc()
        return stop, error

    async def _reset(self) -> None:
        task, seed = self.attempt.task, self.attempt.env_seed
        first, _ = await self._call(partial(self.env.reset, task=task, seed=seed))
        self.opening = checked_messages(first, "reset")
        self.tools = allowed_tools(self.env.tools, self.limits.tools)

    async def _turns(self) -> Stop:
        for turn in range(self.limits.max_turns):
            seen = checked_messages(self.history.view(self.opening, self.turns), "view")
            reply = await self.player.reply(seen, self.tools, turn)
            if reply.cut is not None:
                self._record(reply, Message(role="assistant", content=reply.text), StepResult())
                return reply.cut
            action, problem = self._read(reply.text, turn)
            result = await self._step(action) if problem is None else self._tell(problem, turn)
            self._record(reply, action, result)
            if result.terminated:
                return Stop.FINISHED
            if result.truncated:
                return Stop.ENV_TRUNCATED if problem is None else Stop.PARSE_ERROR
        return Stop.MAX_TURNS

    def _read(self, text: str, turn: int) -> tuple[Message, CallProblem | None]:
        """The message of a reply. Without tools it is the text; with a problem too, so that it can be read again."""
        plain = Message(role="assistant", content=text)
        if not self.tools:
            return plain, None
        reply = parse_tool_calls(text, self.tool_format, self.tools)
        problem = reply.problem or check_tool_calls(reply.calls, self.tools)
        if problem is not None:
            return plain, problem
        # Nine letters and digits: what the strictest chat template takes for an id.
        calls = tuple(dataclasses.replace(one, id=f"{turn:04d}{i:05d}") for i, one in enumerate(reply.calls))
        content, reasoning = reply.content, reply.reasoning
        return Message(role="assistant", content=content, reasoning=reasoning, tool_calls=calls), None

    def _tell(self, problem: CallProblem, turn: int) -> StepResult:
        """A call that cannot be carried out: the policy is told, up to a cap, or the rollout ends."""
        self.problems += 1
        ends = self.limits.on_parse_error == "stop" or self.problems > self.limits.max_parse_errors
        told = Message(role="tool", content=f"error: {problem.text}", tool_call_id=f"{turn:04d}00000")
        info = {"tool_problem": {"kind": problem.kind, "text": problem.text}}
        return StepResult(observation=() if ends else (told,), truncated=ends, info=info)

    async def _step(self, action: Message) -> StepResult:
        result = await self._call(partial(self.env.step, action))
        if not isinstance(result, StepResult):
            raise PluginError(f"{type(self.env).__name__}.step must return a StepResult, not {type(result).__name__}")
        if not math.isfinite(result.reward):
            raise ValueError(f"{type(self.env).__name__}.step gave the reward {result.reward}")
        observation = checked_messages(result.observation, "step")
        return dataclasses.replace(result, observation=observation, info=plain_json(dict(result.info), "step's info"))

    def _record(self, reply: Reply, action: Message, result: StepResult) -> None:
        self.turns.append(
            Turn(
                segment=reply.segment,
                span=reply.span,
                completion=reply.completion,
                action=action,
                observation=result.observation,
                env_reward=float(result.reward),
                info=result.info,
            )
        )

    async def _call(self, function: Callable[[], Any]) -> Any:
        return await call(function, self.limits.step_timeout_seconds)


def checked_messages(messages: Sequence[Message], where: str) -> tuple[Message, ...]:
    """An environment's messages. Raises TypeError for what is none, or has no text."""
    for message in messages:
        if not isinstance(message, Message):
            raise TypeError(f"{where} gave {type(message).__name__} where a Message belongs")
        if not isinstance(message.content, str):
            raise TypeError(f"{where} gave a message whose content is {type(message.content).__name__}, not text")
    return tuple(messages)


def plain_json(value: JSON, where: str) -> JSON:
    """A value as it is read back from the record, so that a verdict is the same then. Raises TypeError."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{where} cannot be written as JSON: {error}") from error


def allowed_tools(tools: Sequence[ToolSpec], allowed: Sequence[str] | None) -> Sequence[ToolSpec]:
    """The tools that `rollout.tools` lets the policy see. Raises ConfigError for a name that no tool has."""
    if allowed is None:
        return tools
    known = {one.name: one for one in tools}
    for name in allowed:
        if name not in known:
            there = f"the environment has {', '.join(known)}" if known else "the environment has none"
            raise ConfigError(f"rollout.tools names the tool '{name}'{nearest(name, known)}: {there}")
    return tuple(known[name] for name in allowed)
