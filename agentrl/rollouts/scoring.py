"""Judging: every finished rollout is handed to the verifiers at once, while others still sample."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import time
import traceback
from collections.abc import Mapping
from functools import partial
from typing import Any

from agentrl.api import AgentRLError, PluginError, Rollout, Scored, Step, Verdict, Verifier
from agentrl.api.background import call
from agentrl.config import RewardConfig
from agentrl.rollouts.rewards import compose


async def judge(verifier: Verifier, rollout: Rollout, timeout: float | None = None) -> Verdict:
    """One verdict. What the verifier raises is our failure and makes the rollout unjudged, never wrong.

    So does a breach of the contract: no `Verdict`, a score that is not finite, a step of a turn that does not exist.
    """
    start = time.perf_counter()
    try:
        verdict = _plain(await call(partial(verifier.verify, rollout), timeout), rollout)
    except TimeoutError:
        verdict = Verdict(verifier=verifier.name, score=None, reason="verifier_timeout", detail=f"after {timeout} s")
    except Exception as error:
        detail = str(error) if isinstance(error, AgentRLError) else traceback.format_exc()
        verdict = Verdict(verifier=verifier.name, score=None, reason="verifier_error", detail=detail)
    return dataclasses.replace(verdict, seconds=time.perf_counter() - start)


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

    Parts may share a verifier object; it is then asked once.
    """

    def __init__(self, config: RewardConfig, verifiers: Mapping[str, Verifier], timeout: float) -> None:
        self.config = config
        self.verifiers = verifiers
        self.timeout = timeout

    async def score(self, rollout: Rollout) -> Scored:
        """Verdicts and reward of one rollout. A failed rollout is not judged: its parts stay unscored."""
        if rollout.stop.failed:
            return Scored(rollout=rollout, verdicts=(), reward=compose(self.config, rollout, {}))
        distinct = list({id(verifier): verifier for verifier in self.verifiers.values()}.values())
        verdicts = await asyncio.gather(*(judge(verifier, rollout, self.timeout) for verifier in distinct))
        by_verifier = {id(verifier): verdict for verifier, verdict in zip(distinct, verdicts, strict=True)}
        by_part = {part: by_verifier[id(verifier)] for part, verifier in self.verifiers.items()}
        return Scored(rollout=rollout, verdicts=tuple(verdicts), reward=compose(self.config, rollout, by_part))
