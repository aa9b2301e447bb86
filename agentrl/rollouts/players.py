"""Who writes the policy's messages in a rollout: an engine over tokens, or anything that answers in words."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from agentrl.api import AgentRLError, Completion, Message, Segment, Stop, Task, ToolSpec, keyed_seed
from agentrl.config import RolloutConfig
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
class Reply:
    """What the policy wrote in one turn. `cut`: why it has no end; it is then not handed to the environment.

    Example: `Reply(text="The answer is 4.")` of a player without tokens.
    """

    text: str
    completion: Completion | None = None
    segment: int = 0
    span: tuple[int, int] = (0, 0)
    cut: Stop | None = None


class Ended(Exception):
    """Raised inside a rollout to end it with a stop reason."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.value)
        self.stop = stop


class EngineFailure(AgentRLError):
    """The engine raised; the text is its traceback."""


class Player(Protocol):
    """Writes the messages of one rollout."""

    async def reply(self, conversation: Sequence[Message], tools: Sequence[ToolSpec], turn: int) -> Reply:
        """The next message. Raises Ended when there is no room for one, EngineFailure, TimeoutError."""
        ...

    def segments(self) -> tuple[Segment, ...]:
        """The tokens of the rollout so far; none for a player without tokens."""
        ...


class Players(Protocol):
    """Makes a player for each rollout. `tool_format`: how they write tool calls."""

    @property
    def tool_format(self) -> str: ...

    def enter(self) -> None:
        """A slot opens that makes one rollout after the other."""
        ...

    def leave(self) -> None:
        """A slot closes for good."""
        ...

    def make(self, attempt: Attempt, deadline: float) -> Player:
        """A player for one rollout, which ends at `deadline` (seconds of `time.monotonic`)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all rollouts of an engine share. max_new_tokens: per turn. context: the model's longest sequence."""

    chat: ChatFormat
    limits: RolloutConfig
    max_new_tokens: int
    temperature: float
    context: int


@dataclass(frozen=True, slots=True)
class TokenPlayers:
    """Players that sample from an engine through a shared sampler."""

    sampler: Sampler
    settings: Settings

    @property
    def tool_format(self) -> str:
        return self.settings.chat.tool_format

    def enter(self) -> None:
        self.sampler.enter()

    def leave(self) -> None:
        self.sampler.leave()

    def make(self, attempt: Attempt, deadline: float) -> Player:
        return _TokenPlayer(self.sampler, self.settings, attempt, deadline)


class _TokenPlayer:
    def __init__(self, sampler: Sampler, settings: Settings, attempt: Attempt, deadline: float) -> None:
        self.sampler, self.settings, self.attempt, self.deadline = sampler, settings, attempt, deadline
        self.ledger = TokenLedger(settings.chat)
        self.sampled = 0

    def segments(self) -> tuple[Segment, ...]:
        return self.ledger.segments()

    async def reply(self, conversation: Sequence[Message], tools: Sequence[ToolSpec], turn: int) -> Reply:
        prompt = self.ledger.prompt(conversation, turn, tools)
        request = SampleRequest(
            prompt=prompt,
            seed=keyed_seed(*self.attempt.seed_key, turn),
            max_new_tokens=self._room(len(prompt)),
            temperature=self.settings.temperature,
            stop_ids=self.settings.chat.stop_ids,
            stop_strings=self.settings.chat.stop_strings,
            deadline=self.deadline,
        )
        async with asyncio.timeout(max(self.deadline - time.monotonic(), 0)):
            try:
                completion = await self.sampler.complete(self.attempt.key, request)
            except Exception as error:
                raise EngineFailure("".join(traceback.format_exception(error))) from error
        if not completion.token_ids:
            raise Ended(Stop.CANCELLED)
        segment, span = self.ledger.complete(completion, turn)
        cut = None if completion.finish == "stop" else self._cut(completion)
        self.sampled += len(completion.token_ids)
        text = self.settings.chat.text(completion)
        return Reply(text=text, completion=completion, segment=segment, span=span, cut=cut)

    def _room(self, prompt: int) -> int:
        """Tokens that this turn may sample; ends the rollout when there are none."""
        left = self.settings.limits.max_tokens - self.sampled
        context = self.settings.context - prompt
        if left < 1:
            raise Ended(Stop.BUDGET)
        if context < 1:
            raise Ended(Stop.CONTEXT)
        return min(self.settings.max_new_tokens, left, context)

    def _cut(self, completion: Completion) -> Stop:
        if completion.finish == "abort":
            return Stop.CANCELLED
        length = len(completion.token_ids)
        if length == self.settings.max_new_tokens:
            return Stop.LENGTH
        return Stop.BUDGET if self.sampled + length >= self.settings.limits.max_tokens else Stop.CONTEXT


Writer = Callable[[Attempt, Sequence[Message], Sequence[ToolSpec], int], Awaitable[str]]
"""Writes the message of a turn, given the attempt, the conversation so far, the tools and the turn's number."""


@dataclass(frozen=True, slots=True)
class WordPlayers:
    """Players that answer in words: a person, a script, a fixed text. Their rollouts have no tokens."""

    write: Writer
    tool_format: str = "hermes"

    def enter(self) -> None:
        """Nobody is waited for."""

    def leave(self) -> None:
        """Nobody is waited for."""

    def make(self, attempt: Attempt, deadline: float) -> Player:
        return _WordPlayer(self.write, attempt, deadline)


@dataclass(frozen=True, slots=True)
class _WordPlayer:
    write: Writer
    attempt: Attempt
    deadline: float

    def segments(self) -> tuple[Segment, ...]:
        return ()

    async def reply(self, conversation: Sequence[Message], tools: Sequence[ToolSpec], turn: int) -> Reply:
        async with asyncio.timeout(max(self.deadline - time.monotonic(), 0)):
            return Reply(text=await self.write(self.attempt, conversation, tools, turn))
