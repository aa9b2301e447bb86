"""Judges an answer by its text alone."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from agentrl.api import Example, Options, Rollout, Task, Verdict, Verifier, strip_reasoning
from agentrl_verifiers.answers import answer_verdict, gold_text
from agentrl_verifiers.math_answer.extraction import extract


class ExactOptions(Options):
    """Options of `exact`. ignore_case: whether upper and lower case are the same."""

    ignore_case: bool = False


class ExactText(Verifier):
    """Score 1.0 when the response, or the answer that it marks, is the task's answer letter for letter, else 0.0.

    Runs of blanks count as one, and blanks, emphasis and quotation marks around the answer do not count. The answer is
    found as by `math_answer`.
    """

    name: ClassVar[str] = "exact"
    Options = ExactOptions
    correctness: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        task = {"answer": "Mount Everest"}
        return (
            Example(kind="gold", task=task, response="The answer is Mount Everest.", passes=True),
            Example(kind="near miss", task=task, response="The answer is Mount Everett.", passes=False),
            Example(kind="hack", task=task, response="Mount Everest, K2, Lhotse", passes=False),
        )

    def check_task(self, task: Task) -> None:
        """Refuse an empty gold."""
        gold_text(task)

    def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout. Raises DataError for a task without an answer."""
        began = time.monotonic()
        gold = self._plain(gold_text(rollout.task))
        whole = strip_reasoning(rollout.response)
        found = extract(rollout.response)
        texts = [] if whole is None else [whole, *(found.texts if found else ())]
        if any(self._plain(text) == gold for text in texts):
            reason, detail = "passed", ""
        elif found is None:
            reason, detail = "no_answer", "no answer was given"
        else:
            reason, detail = "wrong_answer", f"got {found.texts[0][:100]}"
        return answer_verdict(self.name, reason, detail, time.monotonic() - began)

    def _plain(self, text: str) -> str:
        assert isinstance(self.options, ExactOptions)
        plain = " ".join(text.split()).strip("*`\"' ")
        return plain.casefold() if self.options.ignore_case else plain
