"""Verifiers of whole groups: asked once, when the last member is there; the others are not held up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from agentrl.api import (
    DataError,
    Group,
    Message,
    Options,
    Rollout,
    Scored,
    Services,
    StepResult,
    Stop,
    Verdict,
    Verifier,
)
from agentrl.config import RewardConfig
from agentrl.records.serial import scored_from_json, scored_to_json
from agentrl.rollouts.chat import ChatFormat
from agentrl.rollouts.collect import collect, plan
from agentrl.rollouts.players import TokenPlayers
from agentrl.rollouts.sampling import SCHEDULES
from agentrl.rollouts.scoring import Scorer, judge_group
from tests.support import Guess, ScriptedEngine, guess_task, make_settings
from tests.support_answers import rollout_of

REWARD = RewardConfig.model_validate(
    {
        "success": {"part": "ended"},
        "parts": [{"name": "ended", "verifier": "a:B"}, {"name": "longest", "verifier": "c:D", "weight": 0.5}],
    }
)


class Ended(Verifier):
    """Passes each rollout by itself; notes when it was asked."""

    name = "ended"

    def __init__(self, log: list[Any]) -> None:
        super().__init__(Options(), Services())
        self.log = log

    async def verify(self, rollout: Rollout) -> Verdict:  # type: ignore[override]
        self.log.append(("alone", rollout.task.id))
        return Verdict(verifier=self.name, score=1.0, passed=True, reason="passed")


class Longest(Verifier):
    """The share of members that took no more turns; notes whom it was asked about."""

    name = "longest"
    scope: ClassVar[str] = "group"

    def __init__(self, log: list[Any], say: Callable[[Sequence[Rollout]], Any] | None = None) -> None:
        super().__init__(Options(), Services())
        self.log, self.say = log, say

    async def verify_group(self, rollouts: Sequence[Rollout]) -> Any:  # type: ignore[override]
        self.log.append(("group", rollouts[0].task.id, [rollout.index for rollout in rollouts]))
        if self.say is not None:
            returned = self.say(rollouts)
            return await returned if asyncio.iscoroutine(returned) else returned
        lengths = [len(rollout.turns) for rollout in rollouts]
        return [verdict(sum(other <= own for other in lengths) / len(lengths)) for own in lengths]


def verdict(score: float) -> Verdict:
    return Verdict(verifier="longest", score=score, reason="scored")


def gather(
    chat: ChatFormat, verifiers: dict[str, Verifier], env: type[Guess], log: list[Any], *, concurrency: int = 100
) -> list[Group]:
    engine = ScriptedEngine(chat, lambda request: str(request.seed % 9))
    settings = make_settings(chat, concurrency=concurrency)

    async def scenario() -> list[Group]:
        return await collect(
            plan([guess_task(number) for number in range(4)], 3, seed=3, phase=("train", 1)),
            make_env=env,
            players=TokenPlayers(SCHEDULES["throughput"](engine), settings),
            limits=settings.limits,
            scorer=Scorer(REWARD, verifiers, 5.0),
            progress=lambda scored: log.append(("scored", scored.rollout.task.id)),
        )

    return asyncio.run(scenario())


class Faulty(Guess):
    """Fails one member of task 1 and all members of task 2."""

    started: ClassVar[dict[int, int]] = {}

    def step(self, action: Message) -> StepResult:
        if self.number == 2:
            raise RuntimeError("planted")
        if self.number == 1 and not self.said:
            self.started[1] = self.started.get(1, 0) + 1
            if self.started[1] == 2:
                raise RuntimeError("planted")
        return super().step(action)


@pytest.mark.parametrize("concurrency", [1, 100])
def test_a_group_is_asked_once_with_the_members_that_did_not_fail(chat: ChatFormat, concurrency: int) -> None:
    Faulty.started = {}
    log: list[Any] = []
    groups = gather(chat, {"ended": Ended(log), "longest": Longest(log)}, Faulty, log, concurrency=concurrency)
    asked = {task: indices for kind, task, *rest in log if kind == "group" for indices in rest}
    failed = [[m.rollout.index for m in g.members if m.rollout.stop is Stop.ENV_ERROR] for g in groups]
    assert [len(indices) for indices in failed] == [0, 1, 3, 0]
    assert sum(entry[0] == "group" for entry in log) == 3
    assert asked == {f"guess/{n}": [index for index in range(3) if index not in failed[n]] for n in range(4) if n != 2}
    for group in groups:
        judged = [m for m in group.members if not m.rollout.stop.failed]
        turns = [len(m.rollout.turns) for m in judged]
        for member, own in zip(judged, turns, strict=True):
            share = sum(other <= own for other in turns) / len(turns)
            assert [v.score for v in member.verdicts] == [1.0, share]
            assert member.reward.total == pytest.approx(1.0 + 0.5 * share)
        assert all(m.verdicts == () and m.reward.total is None for m in group.members if m.rollout.stop.failed)
    assert sum(entry[0] == "scored" for entry in log) == 12


def test_single_verifiers_do_not_wait_for_the_group_and_other_groups_do_not_either(chat: ChatFormat) -> None:
    log: list[Any] = []
    others_judged = asyncio.Event()

    class Slow(Guess):
        """The members of task 3 go on only when every other group was judged."""

        async def step(self, action: Message) -> StepResult:  # type: ignore[override]
            if self.number == 3:
                await others_judged.wait()
            return super().step(action)

    class Watch(Longest):
        async def verify_group(self, rollouts: Sequence[Rollout]) -> Any:  # type: ignore[override]
            found = await super().verify_group(rollouts)
            if sum(entry[0] == "group" for entry in log) == 3:
                others_judged.set()
            return found

    gather(chat, {"ended": Ended(log), "longest": Watch(log)}, Slow, log)
    tasks = [entry[1] for entry in log if entry[0] == "group"]
    assert tasks[-1] == "guess/3"
    assert log.index(("alone", "guess/3")) > log.index(next(e for e in log if e[:2] == ("group", "guess/0")))


def test_the_same_verdicts_whoever_comes_first() -> None:
    rollouts = [rollout_of(text, None) for text in ("a", "b", "c")]
    members = [
        Rollout(task=r.task, index=i, seed=0, turns=r.turns, segments=(), stop=r.stop) for i, r in enumerate(rollouts)
    ]

    def place(group: Sequence[Rollout]) -> list[Verdict]:
        return [verdict(float(number)) for number, _ in enumerate(group)]

    async def scored(order: list[int]) -> list[Scored]:
        group = Scorer(REWARD, {"ended": Ended([]), "longest": Longest([], place)}).group(3)
        return list(await asyncio.gather(*(group.score(members[index]) for index in order)))

    for order in ([0, 1, 2], [2, 0, 1]):
        found = asyncio.run(scored(order))
        assert [one.verdicts[1].score for one in found] == [float(index) for index in order]
        again = scored_from_json(scored_to_json(found[0]))
        assert again.verdicts == found[0].verdicts


async def hang(rollouts: Sequence[Rollout]) -> Any:
    await asyncio.Event().wait()


def fails(rollouts: Sequence[Rollout]) -> Any:
    raise DataError("no key 'x'")


@pytest.mark.parametrize(
    ("say", "reason", "detail"),
    [
        (lambda rollouts: [verdict(1.0)], "verifier_error", "verify_group must return 2 verdicts, one for each"),
        (lambda rollouts: [verdict(1.0)] * 3, "verifier_error", "not 3"),
        (lambda rollouts: None, "verifier_error", "not NoneType"),
        (lambda rollouts: [verdict(1.0), 1.0], "verifier_error", "must return a Verdict, not float"),
        (lambda rollouts: [verdict(1.0), verdict(float("nan"))], "verifier_error", "finite"),
        (lambda rollouts: 1 / 0, "verifier_error", "ZeroDivisionError"),
        (fails, "verifier_error", "no key 'x'"),
        (hang, "verifier_timeout", "after 0.05 s"),
    ],
)
def test_what_goes_wrong_makes_the_members_unjudged(say: Any, reason: str, detail: str) -> None:
    rollouts = [rollout_of("a", None), rollout_of("b", None)]
    found = asyncio.run(judge_group(Longest([], say), rollouts, 0.05))
    assert [(one.verifier, one.score, one.passed, one.reason) for one in found] == [("longest", None, None, reason)] * 2
    assert all(detail in one.detail for one in found)


def test_a_broken_group_verifier_leaves_the_other_verdicts() -> None:
    scorer = Scorer(REWARD, {"ended": Ended([]), "longest": Longest([], fails)})
    scored = asyncio.run(scored_alone(scorer))
    assert [one.score for one in scored.verdicts] == [1.0, None]
    assert (scored.reward.total, scored.reward.success) == (None, True)


async def scored_alone(scorer: Scorer) -> Scored:
    return await scorer.score(rollout_of("a", None))
