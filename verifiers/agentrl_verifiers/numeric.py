"""Judges a number within a tolerance."""

from __future__ import annotations

import time
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from pydantic import Field

from agentrl.api import DataError, Example, Options, Rollout, Task, Verdict, Verifier
from agentrl_verifiers.answers import answer_verdict, gold_text
from agentrl_verifiers.math_answer.decision import read_gold
from agentrl_verifiers.math_answer.exact import value_of
from agentrl_verifiers.math_answer.extraction import extract
from agentrl_verifiers.math_answer.nodes import Node, TooComplex, Undecided, Undefined
from agentrl_verifiers.math_answer.reading import read
from agentrl_verifiers.math_answer.relations import stated


class NumericOptions(Options):
    """Options of `numeric`: an answer passes within the larger of the two tolerances, its edge included.

    absolute: in units of the answer. relative: as a share of the gold's size; it says nothing beside a gold of 0.
    """

    absolute: float = Field(0.0, ge=0, allow_inf_nan=False)
    relative: float = Field(1e-6, ge=0, lt=1)


class Numeric(Verifier):
    """Score 1.0 when the response's answer is a number within the tolerance of the task's, else 0.0.

    The answer is found as by `math_answer`. A number is an integer, a decimal, a fraction, a mixed number, a number in
    words or in e-notation, or rational arithmetic of them; what stands before it as `x =` and the unit behind it do
    not count. A percent sign divides by 100; beside a gold above 1 without the sign it may also be a unit.
    """

    name: ClassVar[str] = "numeric"
    Options = NumericOptions
    correctness: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        task = {"answer": "3.5"}
        return (
            Example(kind="gold", task=task, response="#### 3.50", passes=True),
            Example(kind="near miss", task=task, response="#### 3.6", passes=False),
            Example(kind="hack", task=task, response="#### 3.4, 3.5, 3.6", passes=False),
        )

    def check_task(self, task: Task) -> None:
        """Refuse a gold that is no number."""
        _gold(task)

    def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout. Raises DataError for a gold that is no number."""
        began = time.monotonic()
        gold, percent = _gold(rollout.task)
        found = extract(rollout.response)
        reason, detail = "no_answer", "no answer was given"
        for text in found.texts if found else ():
            try:
                node = _number(read(text, prose=found is not None and found.prose).nodes)
                values = [] if node is None else _values(node, above_one=gold > 1 and not percent)
            except TooComplex as error:
                reason, detail = "too_complex", str(error)
                continue
            if any(self._near(gold, value) or (percent and self._near(gold * 100, value)) for value in values):
                reason, detail = "passed", ""
                break
            reason, detail = "wrong_answer", f"{text[:100]} is not within the tolerance"
        return answer_verdict(self.name, reason, detail, time.monotonic() - began)

    def _near(self, gold: Fraction, value: Fraction) -> bool:
        assert isinstance(self.options, NumericOptions)
        return abs(gold - value) <= max(Fraction(self.options.absolute), Fraction(self.options.relative) * abs(gold))


def _number(nodes: tuple[Node, ...]) -> Node | None:
    node = stated(nodes[0]) if nodes else None
    return node.args[0] if node is not None and node.op == "quantity" else node


def _values(node: Node, *, above_one: bool) -> list[Fraction]:
    """What a node may mean as a number; nothing when it is none."""
    try:
        value = value_of(node)
    except (Undecided, Undefined):
        return []
    return [value, value * 100] if node.op == "percent" and above_one else [value]


def _gold(task: Task) -> tuple[Fraction, bool]:
    """The gold, and whether it has a percent sign. Raises DataError when it is no number."""
    text = gold_text(task)
    try:
        node = _number(read_gold(text).nodes)
        if node is not None:
            return value_of(node), node.op == "percent"
    except (TooComplex, Undecided, Undefined) as error:
        raise DataError(f"the task's answer has no rational value: {text[:100]}") from error
    raise DataError(f"the task's answer is no number: {text[:100]}")
