"""Judging: what goes wrong in a verifier is unjudged, never a zero and never the end of the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agentrl.api import (
    DataError,
    Message,
    Options,
    Rollout,
    SandboxUnavailable,
    Scored,
    Services,
    Step,
    Stop,
    Task,
    Turn,
    Verdict,
    Verifier,
)
from agentrl.config import PartConfig, RewardConfig, SuccessConfig
from agentrl.records.serial import scored_from_json, scored_to_json
from agentrl.rollouts.scoring import Scorer, judge

ACTION = Message(role="assistant", content="x")
ROLLOUT = Rollout(
    task=Task(id="t", messages=()),
    index=0,
    seed=0,
    turns=(Turn(segment=0, span=(0, 0), completion=None, action=ACTION),) * 2,
    segments=(),
    stop=Stop.FINISHED,
)
FAILED = Rollout(task=ROLLOUT.task, index=1, seed=0, turns=(), segments=(), stop=Stop.ENGINE_ERROR, error="why")


class Says(Verifier):
    """Returns what `say` returns; counts how often it was asked."""

    name = "says"

    def __init__(self, say: Callable[[], Any]) -> None:
        super().__init__(Options(), Services())
        self.say, self.asked = say, 0

    def verify(self, rollout: Rollout) -> Any:
        self.asked += 1
        return self.say()


def passed(score: Any = 1.0, **changes: Any) -> Verdict:
    return Verdict(verifier="says", score=score, reason="scored", **changes)


def judged(say: Callable[[], Any], timeout: float | None = None) -> Verdict:
    return asyncio.run(judge(Says(say), ROLLOUT, timeout))


def raising(error: BaseException) -> Callable[[], Any]:
    def say() -> Any:
        raise error

    return say


def test_a_verdict_gets_its_seconds_and_is_else_unchanged() -> None:
    verdict = judged(lambda: passed(0.25, detail="d", steps=(Step(turn=1, end=2, score=0.5),), seconds=99.0))
    assert (verdict.score, verdict.detail, verdict.steps) == (0.25, "d", (Step(turn=1, end=2, score=0.5),))
    assert 0 < verdict.seconds < 90


def test_an_async_verifier_is_awaited() -> None:
    async def later() -> Verdict:
        await asyncio.sleep(0)
        return passed(0.5)

    assert judged(later).score == 0.5


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (ZeroDivisionError("planted"), "ZeroDivisionError: planted"),
        (DataError("no key 'x'"), "no key 'x'"),
        (SandboxUnavailable("no bwrap"), "no bwrap"),
        (AssertionError(), "AssertionError"),
    ],
)
def test_what_a_verifier_raises_is_unjudged(error: Exception, detail: str) -> None:
    verdict = judged(raising(error))
    assert (verdict.verifier, verdict.score, verdict.passed, verdict.reason) == ("says", None, None, "verifier_error")
    assert detail in verdict.detail
    assert ("Traceback" in verdict.detail) == (not isinstance(error, DataError | SandboxUnavailable))


def test_a_verifier_that_hangs_is_unjudged() -> None:
    async def hang() -> Verdict:
        await asyncio.Event().wait()
        raise AssertionError

    verdict = judged(hang, timeout=0.01)
    assert (verdict.score, verdict.reason, verdict.detail) == (None, "verifier_timeout", "after 0.01 s")


@pytest.mark.parametrize(
    ("returned", "detail"),
    [
        (None, "verify must return a Verdict, not NoneType"),
        (1.0, "verify must return a Verdict, not float"),
        (passed(float("nan")), "a score must be a finite number, not nan"),
        (passed(float("inf")), "a score must be a finite number, not inf"),
        (passed(1.0, steps=(Step(turn=0, score=float("nan")),)), "a score must be a finite number, not nan"),
        (passed(1.0, steps=(Step(turn=2, score=0.5),)), "a step of turn 2, but the rollout has 2 turns"),
        (passed(1.0, steps=(Step(turn=-1, score=0.5),)), "a step of turn -1, but the rollout has 2 turns"),
    ],
)
def test_what_is_no_verdict_is_unjudged(returned: Any, detail: str) -> None:
    verdict = judged(lambda: returned)
    assert (verdict.score, verdict.steps, verdict.reason, verdict.detail) == (None, None, "verifier_error", detail)


def test_a_score_that_is_no_number_is_unjudged() -> None:
    verdict = judged(lambda: passed("high"))
    assert (verdict.score, verdict.reason) == (None, "verifier_error")


def config(*parts: PartConfig) -> RewardConfig:
    return RewardConfig(success=SuccessConfig(part=parts[0].name), parts=list(parts))


def score(reward: RewardConfig, verifiers: dict[str, Verifier], rollout: Rollout = ROLLOUT) -> Scored:
    return asyncio.run(Scorer(reward, verifiers, 5.0).score(rollout))


def test_numpy_scalars_become_plain_numbers_that_can_be_recorded() -> None:
    steps = (Step(turn=np.int64(1), score=np.float32(0.5)),)  # type: ignore[arg-type]
    verifier = Says(lambda: passed(np.float32(0.5), passed=np.bool_(True), steps=steps))
    parts = (
        PartConfig(name="a", verifier="says"),
        PartConfig(name="b", verifier="says", kind="process", reduce="sum", bound=1.0),
    )
    scored = score(config(*parts), {"a": verifier, "b": verifier})
    assert type(scored.verdicts[0].score) is float
    assert scored.verdicts[0].passed is True
    again = scored_from_json(json.loads(json.dumps(scored_to_json(scored))))
    assert again.verdicts == scored.verdicts
    assert again.reward.total == scored.reward.total == 1.0


def test_parts_that_share_a_verifier_ask_it_once() -> None:
    verifier, other = Says(lambda: passed(0.5)), Says(lambda: passed(0.25))
    parts = [PartConfig(name=name, verifier="says", weight=w) for name, w in (("a", 1.0), ("b", 2.0), ("c", 4.0))]
    scored = score(config(*parts), {"a": verifier, "b": verifier, "c": other})
    assert (verifier.asked, other.asked, len(scored.verdicts)) == (1, 1, 2)
    assert [part.value for part in scored.reward.parts] == [0.5, 1.0, 1.0]


def test_one_broken_verifier_leaves_the_others_verdicts() -> None:
    parts = (PartConfig(name="a", verifier="says"), PartConfig(name="b", verifier="says", weight=0.5))
    scored = score(config(*parts), {"a": Says(lambda: passed(1.0)), "b": Says(raising(ValueError("planted")))})
    assert [verdict.score for verdict in scored.verdicts] == [1.0, None]
    assert (scored.reward.total, scored.reward.success) == (None, True)


def test_a_failed_rollout_is_not_judged() -> None:
    verifier = Says(lambda: passed(1.0))
    scored = score(config(PartConfig(name="a", verifier="says")), {"a": verifier}, FAILED)
    assert verifier.asked == 0
    assert (scored.verdicts, scored.reward.total, scored.reward.success) == ((), None, None)


def test_a_truncated_rollout_is_judged() -> None:
    cut = Rollout(task=ROLLOUT.task, index=0, seed=0, turns=ROLLOUT.turns, segments=(), stop=Stop.LENGTH)
    assert score(config(PartConfig(name="a", verifier="says")), {"a": Says(lambda: passed(0.0))}, cut).reward.total == 0
