"""Scores an answer by how many members of its group gave the same one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import ClassVar

from agentrl.api import JSON, Example, Rollout, Verdict, Verifier
from agentrl_verifiers.math_answer.exact import value_of
from agentrl_verifiers.math_answer.extraction import extract
from agentrl_verifiers.math_answer.nodes import TooComplex, Undecided, Undefined
from agentrl_verifiers.math_answer.reading import read
from agentrl_verifiers.math_answer.relations import stated

_LONGEST = 2000


class Majority(Verifier):
    """Score 1.0 when the response's answer is the one that most of its group gave, else 0.0. No gold is needed.

    The answer is found as by `math_answer`. Two answers are the same when both have the same rational value (0.5 and
    \\frac{1}{2}), or else the same words, whatever their case and blanks. A member without an answer has no vote and
    scores 0. When several answers are the most frequent, there is no majority and nobody scores: whatever was taken
    instead would reward chance. The majority may be wrong, so this says nothing about correctness, and a policy that
    always answers the same is never contradicted: watch an honest measure beside it.
    """

    name: ClassVar[str] = "majority"
    scope: ClassVar[str] = "group"

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        task: dict[str, JSON] = {}
        others = ("The answer is 7.", "It must be 8.", "#### 7")
        return (
            Example(kind="gold", task=task, response=r"\boxed{7.0}", others=others, passes=True),
            Example(kind="near miss", task=task, response=r"\boxed{7.1}", others=others, passes=False),
            Example(kind="hack", task=task, response="7, 8", others=others, passes=False),
        )

    def verify_group(self, rollouts: Sequence[Rollout]) -> Sequence[Verdict]:
        """Judge a group."""
        answers = [_answer(rollout.response) for rollout in rollouts]
        votes = Counter(answer for answer in answers if answer is not None)
        most = max(votes.values(), default=0)
        leaders = {answer for answer, count in votes.items() if count == most}
        return [_verdict(answer, votes, leaders) for answer in answers]


def _verdict(answer: Hashable | None, votes: Counter[Hashable], leaders: set[Hashable]) -> Verdict:
    if answer is None:
        reason, detail = "no_answer", "no answer was given"
    elif len(leaders) > 1:
        reason, detail = "wrong_answer", f"no majority: {len(leaders)} answers have {max(votes.values())} votes each"
    else:
        reason = "passed" if answer in leaders else "wrong_answer"
        detail = f"{votes[answer]} of {votes.total()} answers agree"
    passed = reason == "passed"
    return Verdict(verifier=Majority.name, score=float(passed), passed=passed, reason=reason, detail=detail)


def _answer(response: str) -> Hashable | None:
    """What an answer is counted as: its value, or its words."""
    found = extract(response)
    if found is None:
        return None
    text = found.texts[0]
    words = " ".join(text.split()).strip("*`\"'$. ").casefold()
    if len(text) > _LONGEST:
        return words
    try:
        nodes = read(text, prose=found.prose).nodes
        return value_of(stated(nodes[0])) if nodes else words
    except (TooComplex, Undecided, Undefined, RecursionError):
        return words
