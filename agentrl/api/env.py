"""The environment contract: Gymnasium's five-tuple over chat messages.

The author works with messages; one adapter in `agentrl.rollouts` owns tokens, limits and time-outs. One instance
serves one rollout; one further instance, the catalogue, is asked for tasks and demonstrations. Every method may be
sync (it is then run off the event loop) or async.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from agentrl.api.services import Services
from agentrl.api.tools import Tool, carry_out, tools_of
from agentrl.api.types import JSON, Message, Task, ToolSpec


class Options(BaseModel):
    """Base of a plugin's options: frozen, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What one action led to. `observation` holds only the new messages.

    Example: `StepResult(observation=(Message(role="user", content="f(2) returned 3, expected 4"),))`.
    """

    observation: tuple[Message, ...] = ()
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A conversation to imitate; the loss is on its assistant messages.

    Example: `Demonstration(messages=(Message(role="user", content="..."), Message(role="assistant", content="...")))`.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()


class Env:
    """Base class of environments. Override `tasks`, `reset` and `step`; the rest has working defaults."""

    Options: ClassVar[type[BaseModel]] = Options
    needs: ClassVar[frozenset[str]] = frozenset()
    splits: ClassVar[tuple[str, ...]] = ("train", "validation", "test")
    default_reward: ClassVar[Mapping[str, JSON]] = {}
    """The reward of DESIGN section 6 as a mapping; configuration overrides it part by part."""
    tools: Sequence[ToolSpec] = ()
    """What the policy may call; read after `reset`. Methods marked `@tool` are collected by themselves."""
    _own_tools: ClassVar[Mapping[str, Tool]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._own_tools = tools_of(cls)
        if cls._own_tools and "tools" not in vars(cls):
            cls.tools = tuple(one.spec for one in cls._own_tools.values())

    @classmethod
    def needs_for(cls, options: BaseModel) -> frozenset[str]:
        """The services that `options` ask for, of those in `needs`; all of them unless overridden."""
        return cls.needs

    def __init__(self, options: BaseModel, services: Services) -> None:
        self.options = options
        self.services = services

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of a split, always in the same order. Asked of the catalogue instance."""
        raise NotImplementedError(f"{type(self).__name__}.tasks")

    def reset(
        self, *, task: Task, seed: int
    ) -> tuple[list[Message], dict[str, JSON]] | Awaitable[tuple[list[Message], dict[str, JSON]]]:
        """Begin an attempt; returns the first prompt and an info mapping. Same seed, same start."""
        raise NotImplementedError(f"{type(self).__name__}.reset")

    def step(self, action: Message) -> StepResult | Awaitable[StepResult]:
        """Take the policy's message. Same seed and same actions give the same observations.

        An environment with `@tool` methods need not write it: calls are carried out, and a message without a call ends
        the rollout.
        """
        if not self._own_tools:
            raise NotImplementedError(f"{type(self).__name__}.step")
        return self._tool_step(action)

    async def _tool_step(self, action: Message) -> StepResult:
        return await self.call_tools(action) if action.tool_calls else StepResult(terminated=True)

    async def call_tools(self, action: Message) -> StepResult:
        """Carry out the calls of a message, one after the other, for a `step` of one's own.

        What a tool raises is told to the policy; with `snapshot` and `restore` the world is first put back to where it
        was before that call. `info` counts `tool_calls` and `tool_errors`.
        """
        messages, errors = [], 0
        for called in action.tool_calls:
            before = self.snapshot()
            message, fine = await carry_out(self, self._own_tools, called)
            if not fine:
                errors += 1
                if before is not None:
                    self.restore(before)
            messages.append(message)
        return StepResult(
            observation=tuple(messages), info={"tool_calls": len(action.tool_calls), "tool_errors": errors}
        )

    def snapshot(self) -> object | None:
        """The state of the world, which `restore` takes; None where the world cannot be put back."""
        return None

    def restore(self, state: object) -> None:
        """Put the world back to a `snapshot`."""
        raise NotImplementedError(f"{type(self).__name__}.restore")

    def evidence(self) -> JSON | Awaitable[JSON]:
        """What a verifier must know beyond the messages (final state, files); called before `close`."""
        return None

    def close(self) -> Awaitable[None] | None:
        """Free what `reset` took; always called, also after errors."""
        return None

    def gold(self, task: Task) -> Sequence[Message] | None:
        """A right attempt as assistant messages, or None when the environment knows none."""
        return None

    def demonstrations(self, split: str) -> Iterable[Demonstration]:
        """Conversations to imitate, for `agentrl sft`."""
        return ()
