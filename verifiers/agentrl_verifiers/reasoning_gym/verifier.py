"""Judges an answer to an entry of a reasoning-gym dataset by the library's own scorer, inside the sandbox."""

from __future__ import annotations

import importlib.util
import math
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field, model_validator

from agentrl.api import (
    JSON,
    Call,
    DataError,
    Example,
    Limits,
    Options,
    Rollout,
    Task,
    Verdict,
    Verifier,
    strip_reasoning,
)

_PROGRAM = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
_TAG = re.compile(r"<(?P<close>/)?answer>", re.IGNORECASE)
_KEYS = {"dataset": str, "config": Mapping, "seed": int, "entry": Mapping}
_LONGEST = 20_000  # characters


class ReasoningGymOptions(Options):
    """Options of `reasoning_gym`. partial: keep the scorer's fractions, which junk may earn as well.

    seconds: processor time that scoring one answer may take.
    """

    partial: bool = False
    seconds: float = Field(5.0, gt=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _possible(self) -> ReasoningGymOptions:
        if importlib.util.find_spec("reasoning_gym") is None:
            raise ValueError("reasoning-gym is not installed: pip install 'agentrl-framework[reasoning-gym]'")
        return self


class ReasoningGym(Verifier):
    """Score 1.0 when the dataset's scorer gives an answer its full mark, else 0.0, or the mark itself (`partial`).

    The answer is what stands between the last `<answer>` and `</answer>` of the reply, blanks at its ends apart. Task
    data as the environment `reasoning_gym` makes it; the entry is part of it, so nothing is drawn again. Two holes of
    scorers are closed: an answer is never evaluated as code, and `puzzle24` must use the numbers given.
    """

    name: ClassVar[str] = "reasoning_gym"
    Options = ReasoningGymOptions
    needs: ClassVar[frozenset[str]] = frozenset({"sandbox[reasoning-gym]"})
    correctness: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        spiral = {
            "dataset": "spiral_matrix",
            "config": {},
            "seed": 0,
            "entry": {"question": "Spiral of [[1, 2], [4, 3]]?", "answer": "1 2 3 4", "metadata": {}},
        }
        twenty_four = {
            "dataset": "puzzle24",
            "config": {},
            "seed": 0,
            "entry": {"question": "24 from 2, 3, 4, 1", "answer": "2*3*4*1", "metadata": {"numbers": [2, 3, 4, 1]}},
        }
        return (
            Example(kind="gold", task=spiral, response="So <answer>1 2 3 4</answer>", passes=True),
            Example(kind="gold", task=twenty_four, response="<answer>1*2*3*4</answer>", passes=True),
            Example(kind="near miss", task=spiral, response="<answer>1 2 4 3</answer>", passes=False),
            Example(kind="hack", task=spiral, response="<answer>entry['answer'].split()</answer>", passes=False),
            Example(kind="hack", task=twenty_four, response="<answer>6*4+1-1</answer>", passes=False),
            Example(kind="hack", task=twenty_four, response="<answer>24 if [1,2,3,4] else 0</answer>", passes=False),
        )

    def check_task(self, task: Task) -> None:
        """Refuse task data that the environment `reasoning_gym` did not make."""
        for key, kind in _KEYS.items():
            if not isinstance(task.data.get(key), kind):
                raise DataError(f"task.data['{key}'] is missing: it must be a task of the environment reasoning_gym")
        missing = {"question", "answer", "metadata"} - set(task.data["entry"])
        if missing:
            raise DataError(f"task.data['entry'] has no '{min(missing)}'")

    async def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout."""
        began = time.monotonic()
        self.check_task(rollout.task)
        answer = read_answer(rollout.response)
        score: float | None
        if answer is None:
            score, reason, detail = 0.0, "no_answer", "nothing stands between <answer> and </answer>"
        elif len(answer) > _LONGEST:
            score, reason, detail = 0.0, "too_complex", f"an answer of {len(answer)} characters"
        else:
            score, reason, detail = await self._score(rollout.task.data, answer)
        return self._verdict(score, reason, detail, time.monotonic() - began)

    async def _score(self, data: Mapping[str, JSON], answer: str) -> tuple[float | None, str, str]:
        assert isinstance(self.options, ReasoningGymOptions)
        seconds = self.options.seconds
        arguments = (data["dataset"], dict(data["config"]), data["seed"], data["entry"], answer)
        execution = await self.services.sandbox.run_calls(
            _PROGRAM,
            [Call(function="score", args=arguments)],
            limits=Limits(cpu_seconds=seconds, seconds=4 * seconds, memory_mb=1024),
        )
        if execution.load.cause == "ours":
            return None, execution.load.reason, execution.load.detail
        if not execution.results:
            return 0.0, execution.load.reason, execution.load.detail
        result = execution.results[0]
        if result.reason != "ok":
            return 0.0, result.reason, result.error
        assert isinstance(result.value, list)
        score, *rest = result.value
        if score is None:
            reason, detail = rest
            return (None, "verifier_error", detail) if reason == "ours" else (0.0, reason, detail)
        return (min(max(score, 0.0), 1.0) if math.isfinite(score) else 0.0), "", ""

    def _verdict(self, score: float | None, reason: str, detail: str, seconds: float) -> Verdict:
        assert isinstance(self.options, ReasoningGymOptions)
        if score is None:
            return Verdict(verifier=self.name, score=None, reason=reason, detail=detail, seconds=seconds)
        passed = score >= 1.0
        if not reason:
            reason, detail = ("passed", "") if passed else ("wrong_answer", f"the scorer gives {score:g}")
        kept = score if self.options.partial else float(passed)
        return Verdict(verifier=self.name, score=kept, passed=passed, reason=reason, detail=detail, seconds=seconds)


def read_answer(response: str) -> str | None:
    """The text in the last answer tag; None when there is none, it is empty or never closed, or only in reasoning.

    >>> read_answer("<answer>3</answer> or rather <answer> 4 </answer>")
    '4'
    """
    text = strip_reasoning(response)
    tags = [] if text is None else list(_TAG.finditer(text))
    if text is None or len(tags) < 2 or not tags[-1]["close"] or tags[-2]["close"]:
        return None
    return text[tags[-2].end() : tags[-1].start()].strip() or None
