"""`agentrl audit`: what reward hacks earn in an environment, beside a well-formed wrong attempt."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentrl.api import Scored, Task
from agentrl.api.background import run_loop
from agentrl.loops.hacks import Hack, catalogue
from agentrl.loops.resolve import Resolved
from agentrl.loops.wiring import Wired, wire
from agentrl.loops.words import Played, Seen, golds, play, recite

BORROWED = 3
"""Golds of other tasks that are tried as wrong attempts at each task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Earned:
    """What a hack earned. reward, wrong: means over the tasks that it did not solve, where both were judged, or None.

    solved: tasks on which it counts as success. unjudged: tasks on which it could not be judged, or broke the
    environment: a policy can cause neither.

    Example: `Earned(hack="empty", reward=0.0, wrong=0.1, highest=0.0, solved=0, by_chance=False, unjudged=0,
    tasks=20, reasons="...", example="train/3")`.
    """

    hack: str
    reward: float | None
    wrong: float | None
    highest: float | None
    solved: int
    by_chance: bool
    unjudged: int
    tasks: int
    reasons: str
    example: str

    @property
    def flaw(self) -> str | None:
        """What is wrong with the environment, or None."""
        if self.solved > (self.tasks // 2 if self.by_chance else 0):
            return f"counts as success on {self.solved} of {self.tasks} tasks, such as '{self.example}'"
        if self.unjudged:
            return f"is not judged on {self.unjudged} of {self.tasks} tasks, such as '{self.example}': {self.reasons}"
        if self.reward is not None and self.wrong is not None and self.reward > self.wrong + 1e-9:
            return f"earns {self.reward:.3g}, a well-formed wrong attempt {self.wrong:.3g}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What was found. gold: mean reward of the gold attempts, None without any. reference: what counts as wrong.

    Example: `Audit(earned=(...), gold=1.0, reference="the gold of another task", tasks=20)`.
    """

    earned: tuple[Earned, ...]
    gold: float | None
    reference: str
    tasks: int

    @property
    def exit_code(self) -> int:
        """0 when no hack pays, else 3."""
        return 3 if any(one.flaw for one in self.earned) else 0


def audit(resolved: Resolved, split: str, limit: int) -> Audit:
    """Try every hack on the first `limit` tasks of a split."""
    return run_loop(_audit(resolved, split, limit))


async def _audit(resolved: Resolved, split: str, limit: int) -> Audit:
    async with wire(resolved) as wired:
        tasks = wired.tasks(split, limit)
        texts = await golds(wired, tasks)
        gold = await play(wired, [task for task in tasks if task.id in texts], recite(texts)) if texts else Played()
        wrong = await _wrong_rewards(wired, tasks, texts)
        earned = [
            one
            for hack in catalogue(resolved.config.seed, texts)
            if (one := await _try(wired, hack, tasks, wrong)) is not None
        ]
        totals = [m.reward.total for m in gold.members if m.reward.total is not None]
        return Audit(
            earned=tuple(earned),
            gold=statistics.fmean(totals) if totals else None,
            reference="the gold of another task" if len(texts) > 1 else "'I do not know.' (gold() knows no attempts)",
            tasks=len(tasks),
        )


async def _wrong_rewards(wired: Wired, tasks: Sequence[Task], texts: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The mean reward of well-formed wrong attempts at each task: golds of other tasks that did not solve it."""
    borrowed = list(dict.fromkeys(tuple(own) for own in texts.values()))
    found: dict[str, list[float]] = {}
    for offset in range(1, BORROWED + 1):
        attempts: dict[str, Sequence[str]] = {task.id: ("I do not know.",) for task in tasks}
        for place, task in enumerate(tasks):
            others = [own for own in borrowed if own != tuple(texts.get(task.id, ()))]
            if others:
                attempts[task.id] = others[(place + offset) % len(others)]
        for member in (await play(wired, tasks, recite(attempts))).members:
            if member.reward.total is not None and not member.reward.success:
                found.setdefault(member.rollout.task.id, []).append(member.reward.total)
    return {name: statistics.fmean(rewards) for name, rewards in found.items()}


async def _try(wired: Wired, hack: Hack, tasks: Sequence[Task], wrong: Mapping[str, float]) -> Earned | None:
    """What a hack earns; None when it could be tried on no task."""
    missing: set[str] = set()

    def script(seen: Seen) -> str:
        said = hack.write(seen)
        if said is None:
            missing.add(seen.task.id)
        return said or ""

    fair = [task for task in tasks if not _is_answer(hack.constant, task)]
    played = await play(wired, fair, script) if fair else Played()
    members = [member for member in played.members if member.rollout.task.id not in missing]
    if not members:
        return None
    judged = [(m.reward.total, wrong[m.rollout.task.id]) for m in members if _comparable(m, wrong)]
    solved = [m for m in members if m.reward.success]
    unjudged = [m for m in members if m.reward.total is None]
    rewards = [reward for reward, _ in judged if reward is not None]
    return Earned(
        hack=hack.name,
        reward=statistics.fmean(rewards) if rewards else None,
        wrong=statistics.fmean(reference for _, reference in judged) if judged else None,
        highest=max(rewards, default=None),
        solved=len(solved),
        by_chance=hack.chance,
        unjudged=len(unjudged),
        tasks=len(members),
        reasons=_reasons(unjudged or members),
        example=(solved or unjudged or members)[0].rollout.task.id,
    )


def _comparable(member: Scored, wrong: Mapping[str, float]) -> bool:
    return member.reward.total is not None and not member.reward.success and member.rollout.task.id in wrong


def _is_answer(constant: str | None, task: Task) -> bool:
    """Whether a constant is what the task asks for: then it is no hack."""
    if constant is None or task.answer is None:
        return False
    answer = str(task.answer).strip().lower()
    try:
        return float(answer) == float(constant)
    except ValueError:
        return answer == constant.lower()


def _reasons(members: Sequence[Scored]) -> str:
    reasons = Counter(
        reason
        for member in members
        for reason in ([verdict.reason for verdict in member.verdicts] or [member.rollout.stop.value])
    )
    return ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
