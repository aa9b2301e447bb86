"""The verifier `math_answer`."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from agentrl.api import (
    CallCrashed,
    CallTimeout,
    DataError,
    Example,
    Options,
    Rollout,
    Task,
    Verdict,
    Verifier,
    WorkersUnavailable,
)
from agentrl_verifiers.answers import answer_verdict, gold_text
from agentrl_verifiers.math_answer.comparison import Exact
from agentrl_verifiers.math_answer.decision import decide_with, read_gold
from agentrl_verifiers.math_answer.extraction import Extracted, extract
from agentrl_verifiers.math_answer.nodes import TooComplex, Undecided
from agentrl_verifiers.math_answer.reading import balanced
from agentrl_verifiers.math_answer.work import is_whole, is_worked_out

_DECIDE = "agentrl_verifiers.math_answer.symbolic:decide"


class MathAnswerOptions(Options):
    """Options of `math_answer`.

    seconds: processor time that a worker may spend on one answer, at most twice as much by the clock. worked_out: a
    whole number as gold takes no arithmetic that is left to do, so that repeating the question earns nothing.
    """

    seconds: float = Field(1.5, gt=0, allow_inf_nan=False, description="processor time of a worker for one answer")
    worked_out: bool = Field(False, description="whether 2+2 is refused beside a gold of 4")


class MathAnswer(Verifier):
    """Score 1.0 when the response's answer is the task's, by the rules of docs/answers.md; else 0.0.

    The task's gold is `task.data["answer"]` or `task.answer`: text or a number. Which part of a response is its answer
    is told in `extraction`, what it means in `reading`, and when it is the gold in `comparison`. Integers, decimals,
    fractions, tuples, lists, sets and intervals of them are decided here and exactly; the rest in a worker process. An
    answer that is too costly to decide fails as `too_complex`: its author chose to write it.
    """

    name: ClassVar[str] = "math_answer"
    Options = MathAnswerOptions
    needs: ClassVar[frozenset[str]] = frozenset({"workers"})
    correctness: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        half, root, pair = {"answer": "1/2"}, {"answer": r"\frac{1}{\sqrt{2}}"}, {"answer": "(1, 2)"}
        return (
            Example(kind="gold", task=half, response=r"So it is \boxed{0.5}.", passes=True),
            Example(kind="gold", task=root, response=r"\boxed{\frac{\sqrt{2}}{2}}", passes=True),
            Example(kind="gold", task=pair, response="The answer is (1, 2).", passes=True),
            Example(kind="near miss", task=half, response=r"\boxed{0.51}", passes=False),
            Example(kind="near miss", task=pair, response=r"\boxed{(2, 1)}", passes=False),
            Example(kind="hack", task=half, response=r"\boxed{1/2} or \boxed{1/3} or \boxed{1/4}", passes=False),
            Example(kind="hack", task=half, response=r"<think>\boxed{1/2}", passes=False),
            Example(kind="hack", task=root, response=r"\boxed{9^{9^{9^9}}}", passes=False),
        )

    def check_task(self, task: Task) -> None:
        """Refuse a gold that says nothing, whose braces do not close, or that is no mathematics and no words."""
        check_gold(gold_text(task))

    async def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout. Raises DataError for a gold that cannot be read."""
        began = time.monotonic()
        gold = gold_text(rollout.task)
        check_gold(gold)
        found = extract(rollout.response)
        if found is None:
            reason, detail = "no_answer", "no answer was given"
        else:
            reason, detail = await self._decide(gold, self._candidates(gold, found), found.prose)
        return answer_verdict(self.name, reason, detail, time.monotonic() - began)

    def _candidates(self, gold: str, found: Extracted) -> list[str]:
        assert isinstance(self.options, MathAnswerOptions)
        if not self.options.worked_out or not is_whole(gold):
            return list(found.texts)
        return [text for text in found.texts if is_worked_out(text, found.prose)]

    async def _decide(self, gold: str, texts: list[str], prose: bool) -> tuple[str, str]:
        if not texts:
            return "wrong_answer", f"expected {gold[:100]}, and no number is worked out"
        try:
            return decide_with(gold, texts, prose, Exact())
        except Undecided:
            pass
        return await self._ask(gold, texts, prose)

    async def _ask(self, gold: str, texts: list[str], prose: bool) -> tuple[str, str]:
        assert isinstance(self.options, MathAnswerOptions)
        for last in (False, True):
            try:
                told = await self.services.workers.call(_DECIDE, gold, texts, prose, timeout=self.options.seconds)
                return str(told["reason"]), str(told["detail"])
            except CallTimeout:
                return "too_complex", f"not decided in {self.options.seconds:g} s"
            except CallCrashed as error:
                # Once it may have been somebody else's doing; twice it is the answer's.
                if last:
                    return "too_complex", str(error)
            except WorkersUnavailable as error:
                return "verifier_error", str(error)
        raise AssertionError("unreachable")


def check_gold(gold: str) -> None:
    """Raise DataError for a gold that no answer could be compared with."""
    try:
        reading = read_gold(gold)
    except TooComplex as error:
        raise DataError(f"the answer of the task is too complex: {error}") from error
    if not re.search(r"\w|\\", reading.text):
        raise DataError("the answer of the task is empty: nothing could be compared with it")
    if not reading.nodes and not balanced(reading.text):
        raise DataError(f"the answer of the task has braces that do not close: {gold[:100]}")
    if not reading.nodes and not re.search(r"[^\W\d_]", reading.text):
        raise DataError(f"the answer of the task is neither mathematics nor words: {gold[:100]}")
