"""Judges the letter of a multiple-choice answer."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import ClassVar

from agentrl.api import DataError, Example, Rollout, Task, Verdict, Verifier
from agentrl_verifiers.answers import answer_verdict, gold_text
from agentrl_verifiers.math_answer.extraction import extract
from agentrl_verifiers.math_answer.normalization import CLOSE_TEXT, OPEN_TEXT, normalize

_LONGEST = 2000
_LETTER = re.compile(
    r"(?:(?:option|choice|answer)\s+)?[(\[]?(?P<letter>[A-Za-z])[)\]]?(?:\s*[).:,]?\s+(?P<rest>.*))?",
    re.DOTALL | re.IGNORECASE,
)
_MARKED = re.compile(r"[(\[]?[A-Za-z]\s*[)\].:](?:\s|$)")
_ANOTHER = re.compile(r"(?<![\w'])[(\[]?[A-J]\s*[)\].:](?:\s|$)|(?<![A-Za-z])(?:or|and)\s+[(\[]?[A-J](?![A-Za-z])")


class Choice(Verifier):
    """Score 1.0 when the response chooses the task's letter and no other, else 0.0.

    The answer is found as by `math_answer`. A letter counts alone, in brackets, after "option", or before the text of
    its option (`B) 42`); upper and lower case are the same. An answer that names another option as well is wrong.
    """

    name: ClassVar[str] = "choice"
    correctness: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        task = {"answer": "B"}
        letters = [
            Example(kind="gold" if letter == "B" else "near miss", task=task, response=letter, passes=letter == "B")
            for letter in "ABCDE"
        ]
        return (*letters, Example(kind="hack", task=task, response="A, B, C or D", passes=False))

    def check_task(self, task: Task) -> None:
        """Refuse a gold that is not one letter."""
        _gold(task)

    def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout. Raises DataError for a gold that is not one letter."""
        began = time.monotonic()
        gold = _gold(rollout.task)
        found = extract(rollout.response)
        chosen = [letter for text in (found.texts if found else ()) if (letter := chosen_letter(text))]
        if found is None:
            reason, detail = "no_answer", "no answer was given"
        elif chosen and chosen[0] == gold:
            reason, detail = "passed", ""
        else:
            reason, detail = "wrong_answer", f"chose {chosen[0]}" if chosen else "not one letter"
        return answer_verdict(self.name, reason, detail, time.monotonic() - began)


def chosen_letter(text: str) -> str | None:
    """The one letter that a statement chooses, in upper case, or None.

    >>> chosen_letter("(b)"), chosen_letter("B) 42"), chosen_letter("A or B")
    ('B', 'B', None)
    """
    if len(text) > _LONGEST:
        return None
    plain = re.sub(rf"[{OPEN_TEXT}{CLOSE_TEXT}]", " ", normalize(text)).strip().rstrip("!.").strip()
    match = _LETTER.fullmatch(plain)
    if match is None or _ANOTHER.search(match["rest"] or ""):
        return None
    # "A dog" begins with an article, "B) a dog" with a letter.
    if match["rest"] and not _MARKED.match(plain):
        return None
    return match["letter"].upper()


def _gold(task: Task) -> str:
    match = re.fullmatch(r"[(\[]?([A-Za-z])[)\].]?", gold_text(task))
    if match is None:
        raise DataError(f"the task's answer must be one letter, not {gold_text(task)[:100]}")
    return match[1].upper()
