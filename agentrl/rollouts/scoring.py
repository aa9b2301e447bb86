"""Judging: a finished rollout is handed to the verifiers at once, while others still sample; a group when complete."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from agentrl.api import AgentRLError, JudgeUnavailable, PluginError, Rollout, Scored, Step, Verdict, Verifier
from agentrl.api.background import call
from agentrl.config import RewardConfig
from agentrl.rollouts.rewards import compose


async def judge(verifier: Verifier, rollout: Rollout, timeout: float | None = None) -> Verdict:
    """One verdict. What the verifier raises is our failure and makes the rollout unjudged, never wrong.

    So does a breach of the contract: no `Verdict`, a score that is not finite, a step of a turn that does not exist.
    timeout: seconds; None takes the verifier's own.
    """
    start = time.perf_counter()
    timeout = verifier.timeout if timeout is None else timeout
    try:
        verdict = _plain(await call(partial(verifier.verify, rollout), timeout), rollout)
    except Exception as error:
        verdict = _unjudged(verifier, error, timeout)
    return dataclasses.replace(verdict, seconds=time.perf_counter() - start)


async def judge_group(
    verifier: Verifier, rollouts: Sequence[Rollout], timeout: float | None = None
) -> tuple[Verdict, ...]:
    """The verdict of a group-scope verifier on each rollout of one task. Goes wrong for all of them or for none.

    As with `judge`, what it raises and what breaks the contract (another number of verdicts, too) makes them unjudged.
    Each verdict carries its share of the seconds.
    """
    start = time.perf_counter()
    timeout = verifier.timeout if timeout is None else timeout
    try:
        returned = await call(partial(verifier.verify_group, tuple(rollouts)), timeout)
        if not isinstance(returned, list | tuple) or len(returned) != len(rollouts):
            found = f"{len(returned)}" if isinstance(returned, list | tuple) else type(returned).__name__
            raise PluginError(f"verify_group must return {len(rollouts)} verdicts, one for each rollout, not {found}")
        verdicts = [_plain(verdict, rollout) for verdict, rollout in zip(returned, rollouts, strict=True)]
    except Exception as error:
        verdicts = [_unjudged(verifier, error, timeout)] * len(rollouts)
    share = (time.perf_counter() - start) / max(len(rollouts), 1)
    return tuple(dataclasses.replace(verdict, seconds=share) for verdict in verdicts)


def _unjudged(verifier: Verifier, error: Exception, timeout: float) -> Verdict:
    if isinstance(error, TimeoutError):
        reason, detail = "verifier_timeout", f"after {timeout} s"
    else:
        reason = "judge_unavailable" if isinstance(error, JudgeUnavailable) else "verifier_error"
        detail = str(error) if isinstance(error, AgentRLError) else "".join(traceback.format_exception(error))
    return Verdict(verifier=verifier.name, score=None, reason=reason, detail=detail)


def _plain(verdict: Any, rollout: Rollout) -> Verdict:
    """A verdict of plain Python values: a record holds no numpy or torch scalars."""
    if not isinstance(verdict, Verdict):
        raise PluginError(f"verify must return a Verdict, not {type(verdict).__name__}")
    for step in verdict.steps or ():
        if not 0 <= step.turn < len(rollout.turns):
            raise PluginError(f"a step of turn {step.turn}, but the rollout has {len(rollout.turns)} turns")
    steps = verdict.steps
    if steps is not None:
        steps = tuple(Step(turn=int(s.turn), end=s.end, score=_finite(s.score)) for s in steps)
    score = None if verdict.score is None else _finite(verdict.score)
    return dataclasses.replace(
        verdict, score=score, passed=None if verdict.passed is None else bool(verdict.passed), steps=steps
    )


def _finite(score: Any) -> float:
    number = float(score)
    if not math.isfinite(number):
        raise PluginError(f"a score must be a finite number, not {number}")
    return number


class Scorer:
    """Scores rollouts by a reward configuration. `verifiers`: one object for each part that has a verifier.

    Parts may share a verifier object; it is then asked once. timeout: seconds of one verdict; None takes each
    verifier's own.
    """

    def __init__(self, config: RewardConfig, verifiers: Mapping[str, Verifier], timeout: float | None = None) -> None:
        self.config = config
        self.verifiers = verifiers
        self.timeout = timeout
        self.distinct = list({id(verifier): verifier for verifier in verifiers.values()}.values())

    async def score(self, rollout: Rollout) -> Scored:
        """Verdicts and reward of one rollout, the only one of its group.

        A failed rollout is not judged: its parts stay unscored.
        """
        return await self.group(1).score(rollout)

    def group(self, size: int) -> GroupScoring:
        """The scoring of a group of `size` rollouts, which come in one by one."""
        return GroupScoring(self, size)

    def compose(self, rollout: Rollout, verdicts: Mapping[int, Verdict]) -> Scored:
        """A rollout with its reward; `verdicts` by the id of the verifier, none of a failed rollout."""
        by_part = {
            part: verdicts[id(verifier)] for part, verifier in self.verifiers.items() if id(verifier) in verdicts
        }
        found = tuple(verdicts[id(verifier)] for verifier in self.distinct if id(verifier) in verdicts)
        return Scored(rollout=rollout, verdicts=found, reward=compose(self.config, rollout, by_part))


class GroupScoring:
    """The scoring of one group, in any order of its members.

    Verifiers of single rollouts are asked as soon as a rollout comes in. Those of whole groups are asked once, when
    the last one is there, with the members that did not fail.
    """

    def __init__(self, scorer: Scorer, size: int) -> None:
        self.scorer = scorer
        self.missing = size
        self.rollouts: list[Rollout] = []
        self.alone = [verifier for verifier in scorer.distinct if verifier.scope != "group"]
        self.together = [verifier for verifier in scorer.distinct if verifier.scope == "group"]
        self.judged: asyncio.Future[dict[tuple[int, int], Verdict]] = asyncio.get_running_loop().create_future()

    async def score(self, rollout: Rollout) -> Scored:
        """Verdicts and reward of one member. With verifiers of whole groups it waits for the other members."""
        self.missing -= 1
        verdicts: dict[int, Verdict] = {}
        if not rollout.stop.failed:
            self.rollouts.append(rollout)
        last = asyncio.create_task(self._judge_together()) if self.together and self.missing == 0 else None
        try:
            if not rollout.stop.failed:
                found = await asyncio.gather(*(judge(one, rollout, self.scorer.timeout) for one in self.alone))
                verdicts = {id(verifier): verdict for verifier, verdict in zip(self.alone, found, strict=True)}
            if last is not None:
                self.judged.set_result(await last)
        finally:
            if last is not None:
                last.cancel()
        if self.together and not rollout.stop.failed:
            of_group = await asyncio.shield(self.judged)  # the cancelled wait of one member must not end the others'
            verdicts |= {id(verifier): of_group[id(verifier), id(rollout)] for verifier in self.together}
        return self.scorer.compose(rollout, verdicts)

    async def _judge_together(self) -> dict[tuple[int, int], Verdict]:
        """Verdicts by verifier and rollout (their ids)."""
        rollouts = sorted(self.rollouts, key=lambda rollout: rollout.index)
        if not rollouts:
            return {}
        found = await asyncio.gather(*(judge_group(one, rollouts, self.scorer.timeout) for one in self.together))
        return {
            (id(verifier), id(rollout)): verdict
            for verifier, verdicts in zip(self.together, found, strict=True)
            for rollout, verdict in zip(rollouts, verdicts, strict=True)
        }
