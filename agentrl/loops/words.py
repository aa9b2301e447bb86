"""Rollouts without a model: the gold, a fixed text, a person or a random hand writes the policy's messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agentrl.api import Message, PluginError, Scored, Task, ToolSpec, write_tool_calls
from agentrl.api.background import call
from agentrl.loops.wiring import Wired
from agentrl.rollouts.collect import collect, plan
from agentrl.rollouts.players import Attempt, WordPlayers

TOOL_FORMAT = "hermes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the writer of a turn can see. opening: the messages that `reset` gave.

    Example: `Seen(task=task, conversation=(Message(role="user", content="2+2=?"),), tools=(), turn=0, index=0)`.
    """

    task: Task
    conversation: Sequence[Message]
    tools: Sequence[ToolSpec]
    turn: int
    index: int


Script = Callable[[Seen], str | Awaitable[str]]
"""Writes the message of a turn."""


@dataclass(slots=True, kw_only=True)
class Played:
    """What came of it. openings: the first prompt of each rollout by (task id, index): a rollout does not keep it.

    Example: `Played(members=(scored,), openings={("basic/train/0", 0): (Message(role="user", content="..."),)})`.
    """

    members: tuple[Scored, ...] = ()
    openings: dict[tuple[str, int], tuple[Message, ...]] = field(default_factory=dict)


async def play(
    wired: Wired, tasks: Sequence[Task], script: Script, *, samples: int = 1, concurrency: int | None = None
) -> Played:
    """Rollouts of `script` on every task, judged by the environment's own reward."""
    played = Played()

    async def write(attempt: Attempt, conversation: Sequence[Message], tools: Sequence[ToolSpec], turn: int) -> str:
        if turn == 0:
            played.openings[(attempt.task.id, attempt.index)] = tuple(conversation)
        said = script(Seen(task=attempt.task, conversation=conversation, tools=tools, turn=turn, index=attempt.index))
        return said if isinstance(said, str) else await said

    limits = wired.resolved.config.rollout
    if concurrency is not None:
        limits = limits.model_copy(update={"concurrency": concurrency})
    groups = await collect(
        plan(tasks, samples, seed=wired.resolved.config.seed, phase=("words",)),
        make_env=wired.make_env,
        players=WordPlayers(write, TOOL_FORMAT),
        limits=limits,
        scorer=wired.scorer,
        progress=lambda scored: None,
    )
    played.members = tuple(member for group in groups for member in group.members)
    return played


async def golds(wired: Wired, tasks: Sequence[Task]) -> dict[str, tuple[str, ...]]:
    """The gold attempt of each task that has one, as the texts of its turns."""
    found = {}
    for task in tasks:
        messages = await call(lambda task=task: wired.catalogue.gold(task), None)  # type: ignore[misc]
        if messages is None:
            continue
        for message in messages:
            if not isinstance(message, Message) or message.role != "assistant":
                raise PluginError(f"gold('{task.id}') must hold assistant messages, not {message!r:.80}")
        found[task.id] = tuple(map(written, messages))
    return found


def written(message: Message) -> str:
    """A message of the policy as the text that it would sample."""
    parts = [message.content, write_tool_calls(message.tool_calls, TOOL_FORMAT) if message.tool_calls else ""]
    text = "\n".join(part for part in parts if part)
    return text if message.reasoning is None else f"<think>\n{message.reasoning}\n</think>\n\n{text}"


def recite(texts: Mapping[str, Sequence[str]]) -> Script:
    """Plays each task's texts, one a turn; says nothing more when they are used up."""

    def script(seen: Seen) -> str:
        own = texts.get(seen.task.id, ())
        return own[seen.turn] if seen.turn < len(own) else ""

    return script


def spread(wired: Wired, limit: int) -> list[Task]:
    """About `limit` tasks, evenly over the splits and over each split."""
    splits = wired.resolved.env.splits
    found: list[Task] = []
    for split in splits:
        tasks = wired.tasks(split)
        share = max(1, limit // len(splits))
        stride = max(1, len(tasks) // share)
        found += tasks[::stride][:share]
    return found
