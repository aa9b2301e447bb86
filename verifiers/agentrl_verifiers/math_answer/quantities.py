"""Percentages, units, ratios and times of day: what their signs mean beside the gold's."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Protocol

from agentrl_verifiers.math_answer.exact import value_of
from agentrl_verifiers.math_answer.nodes import Node, Undecided, is_expression, number
from agentrl_verifiers.math_answer.units import unit_of


class Equality(Protocol):
    """What is asked about expressions here."""

    def equal(self, left: Node, right: Node) -> bool:
        """Whether two expressions are equal."""
        ...


Scalars = Callable[[Node, Node, Any], bool]
_PERCENT = ("percent", "per cent", "percentage", "pct")


def same_percent(gold: Node, answer: Node, oracle: Equality) -> bool:
    """A percent sign divides by 100. Besides, it may be missing beside a gold that has it, and it may stand beside a
    bare gold above 1: the question then asked for the figure in percent. 1 % is never 1, and no bare numbers that
    differ are ever made equal.
    """
    if gold.op == answer.op:
        return oracle.equal(gold.args[0], answer.args[0])
    if gold.op == "percent":
        return is_expression(answer) and (
            oracle.equal(gold.args[0], answer) or oracle.equal(_hundredth(gold.args[0]), answer)
        )
    if not is_expression(gold):
        return False
    if oracle.equal(gold, _hundredth(answer.args[0])):
        return True
    try:
        above = value_of(gold) > 1
    except Undecided:
        return False
    return above and oracle.equal(gold, answer.args[0])


def same_quantity(gold: Node, answer: Node, oracle: Equality, scalars: Scalars) -> bool:
    """A gold without a unit takes any; a gold with one takes the bare figure, its unit, and what converts into it."""
    gold, answer = _percent(gold), _percent(answer)
    if gold.op == answer.op == "quantity":
        (left, factor), (right, other) = unit_of(gold.name), unit_of(answer.name)
        return left == right and oracle.equal(_times(gold.args[0], factor), _times(answer.args[0], other))
    if gold.op == "quantity":
        if scalars(gold.args[0], answer, oracle):
            return True
        pi = any(node == _PI for node in answer.walk())
        return _is_degree(gold) and pi and is_expression(answer) and oracle.equal(_radians(gold.args[0]), answer)
    if answer.op == "quantity":
        if scalars(gold, answer.args[0], oracle):
            return True
        pi = any(node == _PI for node in gold.walk())
        return _is_degree(answer) and pi and is_expression(gold) and oracle.equal(gold, _radians(answer.args[0]))
    return scalars(gold, answer, oracle)


_PI = Node("sym", name="pi")


def _is_degree(node: Node) -> bool:
    return unit_of(node.name)[0] == (("angle", 1),)


def _radians(node: Node) -> Node:
    return Node("div", (Node("mul", (node, _PI)), number(180)))


def _percent(node: Node) -> Node:
    return Node("percent", node.args) if node.op == "quantity" and node.name.casefold().strip() in _PERCENT else node


def _times(node: Node, factor: Fraction) -> Node:
    return node if factor == 1 else Node("mul", (node, number(factor)))


def _hundredth(node: Node) -> Node:
    return Node("div", (node, number(100)))


def same_ratio(gold: Node, answer: Node, oracle: Equality) -> bool:
    """Ratios are equal in proportion; a ratio of two is also its quotient."""
    if gold.op == answer.op == "ratio":
        if len(gold.args) != len(answer.args):
            return False
        if any(node.op not in ("num", "div", "neg", "add", "mul") for node in (*gold.args, *answer.args)):
            return all(
                g == a or (is_expression(g) and is_expression(a) and oracle.equal(g, a)) for g, a in _zip(gold, answer)
            )
        first = gold.args[0], answer.args[0]
        return all(oracle.equal(Node("mul", (g, first[1])), Node("mul", (a, first[0]))) for g, a in _zip(gold, answer))
    ratio, other = (gold, answer) if gold.op == "ratio" else (answer, gold)
    whole = len(ratio.args) == 2 and is_expression(other) and all(is_expression(part) for part in ratio.args)
    return whole and oracle.equal(Node("div", ratio.args), other)


def _zip(gold: Node, answer: Node) -> list[tuple[Node, Node]]:
    return list(zip(gold.args, answer.args, strict=True))


def same_clock(gold: Node, answer: Node) -> bool:
    """Times of day to the second; a gold that says am or pm wants it said, or the 24-hour form."""
    if gold.op == "ratio" and answer.op == "clock":
        return len(gold.args) == len(answer.args) and all(value_of(g) == value_of(a) for g, a in _zip(gold, answer))
    if gold.op != answer.op:
        return False
    left, right = _seconds(gold), _seconds(answer)
    if left == right:
        return (
            not (gold.name and not answer.name) or gold.args[0].value == 0 or gold.args[0].value < answer.args[0].value
        )
    # 2:30 pm is also the gold 2:30, which says no half of the day.
    return not gold.name and bool(answer.name) and gold.args == answer.args


def _seconds(node: Node) -> Fraction:
    hours = node.args[0].value
    if node.name:
        hours = hours % 12 + (12 if node.name == "p" else 0)
    parts = [hours, *(part.value for part in node.args[1:]), Fraction(0)]
    return parts[0] * 3600 + parts[1] * 60 + parts[2]
