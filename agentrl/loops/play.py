"""`agentrl env play`: one rollout in sight, written by a person, the gold, a random hand, or the model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from agentrl.api import ConfigError, DataError, Message, Scored, Task, nearest
from agentrl.api.background import call, run_loop
from agentrl.loops.hacks import random_text
from agentrl.loops.resolve import Resolved
from agentrl.loops.wiring import Wired, wire
from agentrl.loops.words import Script, Seen, golds, recite
from agentrl.loops.words import play as play_words

POLICIES = ("human", "gold", "random", "model")
Show = Callable[[str], None]


def play(
    resolved: Resolved, *, policy: str, split: str, task_id: str | None, show: Show, ask: Callable[[], str]
) -> Scored:
    """Play one task. show: prints a text. ask: the next message of a person."""
    if policy not in POLICIES:
        raise ConfigError(f"--policy {policy}: unknown{nearest(policy, POLICIES)}; {', '.join(POLICIES)}")
    return run_loop(_play(resolved, policy, split, task_id, show, ask))


async def _play(
    resolved: Resolved, policy: str, split: str, task_id: str | None, show: Show, ask: Callable[[], str]
) -> Scored:
    async with wire(resolved) as wired:
        task = _task(wired.tasks(split), task_id)
        show(f"task {task.id}")
        if policy == "model":
            scored = await _by_model(wired, task)
            _show_rollout(scored, show)
        else:
            script = await _script(wired, task, policy, ask)
            scored = (await play_words(wired, [task], _Watched(script, show).write)).members[0]
            for message in scored.rollout.turns[-1].observation if scored.rollout.turns else ():
                show(shown(message))
        _show_result(scored, show)
        return scored


def _task(tasks: Sequence[Task], task_id: str | None) -> Task:
    known = {task.id: task for task in tasks}
    if task_id is None:
        return tasks[0]
    if task_id not in known:
        raise DataError(f"--task {task_id}: no such task{nearest(task_id, known)}")
    return known[task_id]


async def _script(wired: Wired, task: Task, policy: str, ask: Callable[[], str]) -> Script:
    if policy == "gold":
        texts = await golds(wired, [task])
        if not texts:
            raise ConfigError(f"--policy gold: the environment knows no attempt at '{task.id}' (its gold() gave None)")
        return recite(texts)
    if policy == "random":
        return lambda seen: random_text(seen, wired.resolved.config.seed, words=True)
    return lambda seen: call(ask, None)


class _Watched:
    """Shows what is new to the policy, then what it writes."""

    def __init__(self, script: Script, show: Show) -> None:
        self.script, self.show, self.seen = script, show, 0

    async def write(self, seen: Seen) -> str:
        if seen.turn == 0 and seen.tools:
            self.show(
                "[tools]\n" + "\n".join(f"{t.name}: {t.description} {json.dumps(t.parameters)}" for t in seen.tools)
            )
        for message in seen.conversation[self.seen :]:
            if message.role != "assistant":
                self.show(shown(message))
        self.seen = len(seen.conversation)
        said = self.script(seen)
        text = said if isinstance(said, str) else await said
        self.show(f"[assistant]\n{text}")
        return text


def shown(message: Message) -> str:
    """A message for people."""
    return f"[{message.role}]\n{message.content}"


async def _by_model(wired: Wired, task: Task) -> Scored:
    from agentrl.learning.models import load_policy
    from agentrl.loops.display import Display
    from agentrl.loops.evaluate import make_sampling
    from agentrl.loops.resolve import model_folder

    config = wired.resolved.config
    sampling = make_sampling(config, load_policy(config.model, model_folder(config.model)))
    groups = await sampling.groups(
        wired,
        [task],
        1,
        phase=("play",),
        temperature=config.engine.temperature,
        display=Display(quiet=True),
        label="play",
    )
    return groups[0].members[0]


def _show_rollout(scored: Scored, show: Show) -> None:
    for message in scored.rollout.task.messages:
        show(shown(message))
    for turn in scored.rollout.turns:
        show(shown(turn.action))
        for message in turn.observation:
            show(shown(message))


def _show_result(scored: Scored, show: Show) -> None:
    rollout = scored.rollout
    show(f"\nended: {rollout.stop.value} after {len(rollout.turns)} turns")
    if rollout.error is not None:
        show(rollout.error.rstrip())
    for verdict in scored.verdicts:
        show(f"verdict of {verdict.verifier}: {verdict.score} {verdict.reason} {verdict.detail}".rstrip())
    for part in scored.reward.parts:
        show(f"part {part.name}: raw {part.raw}, weight {part.weight}, value {part.value}")
    show(f"reward {scored.reward.total}, success {scored.reward.success}")
