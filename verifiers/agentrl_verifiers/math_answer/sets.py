"""Sets of real numbers: intervals, inequalities in one variable, unions, intersections, differences.

Two sets are equal when they agree on every endpoint that either names and between them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from agentrl_verifiers.math_answer.nodes import Node

Point = Callable[[Node], Fraction]
"""The place of an endpoint on the real line; raises Undecided when it cannot tell."""

_FLIPPED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "!=": "!="}


@dataclass(frozen=True, slots=True)
class RealSet:
    """A set as its endpoints and a test. variable: the symbol that its inequalities speak of, or "".

    Example: `RealSet(ends=frozenset({Fraction(0)}), contains=lambda x: x > 0, variable="x")`.
    """

    ends: frozenset[Fraction]
    contains: Callable[[Fraction], bool]
    variable: str = ""


def same_set(left: RealSet, right: RealSet) -> bool:
    """Whether two sets hold the same numbers, and speak of the same variable if both name one."""
    if left.variable and right.variable and left.variable != right.variable:
        return False
    return all(left.contains(x) == right.contains(x) for x in _probes(sorted(left.ends | right.ends)))


def _probes(ends: list[Fraction]) -> Iterator[Fraction]:
    if not ends:
        yield Fraction(0)
        return
    yield ends[0] - 1
    for place, end in enumerate(ends):
        yield end
        yield (end + ends[place + 1]) / 2 if place + 1 < len(ends) else end + 1


def is_inequality(node: Node) -> bool:
    """Whether a node is a chain with an order sign, or says what a variable lies in."""
    return node.op == "rel" and bool(set(node.name.split()) & {"<", ">", "<=", ">=", "!=", "in"})


def is_set_like(node: Node) -> bool:
    """Whether a node can only be a set of numbers (a pair in brackets can be one)."""
    if node.op == "list":
        return any(is_inequality(item) for item in node.args)
    return node.op in ("union", "inter", "minus", "reals", "empty") or is_inequality(node)


def real_set(node: Node, point: Point) -> RealSet | None:
    """The set that a node describes in solved form, or None when it describes none."""
    if node.op == "reals":
        return RealSet(frozenset(), lambda x: True)
    if node.op == "empty":
        return RealSet(frozenset(), lambda x: False)
    if node.op == "group" and len(node.args) == 2:
        return _interval(node, point)
    if node.op == "set":
        members = frozenset(point(item) for item in node.args)
        return RealSet(members, lambda x: x in members)
    if node.op in ("union", "inter", "minus"):
        return _combined(node.op, real_set(node.args[0], point), real_set(node.args[1], point))
    if node.op == "list":
        combined = real_set(node.args[0], point)
        for item in node.args[1:]:
            combined = _combined("inter" if node.name == "and" else "union", combined, real_set(item, point))
        return combined
    return _relation(node, point) if node.op == "rel" else None


def _combined(op: str, left: RealSet | None, right: RealSet | None) -> RealSet | None:
    if left is None or right is None or (left.variable and right.variable and left.variable != right.variable):
        return None
    a, b = left.contains, right.contains
    contains = {
        "union": lambda x: a(x) or b(x),
        "inter": lambda x: a(x) and b(x),
        "minus": lambda x: a(x) and not b(x),
    }[op]
    return RealSet(left.ends | right.ends, contains, left.variable or right.variable)


def _infinite(node: Node) -> int:
    """The sign of an infinity, 0 for anything else."""
    if node == Node("sym", name="oo"):
        return 1
    return -_infinite(node.args[0]) if node.op == "neg" else 0


def _interval(node: Node, point: Point) -> RealSet:
    low, high = node.args
    return _between(low, high, point, low_closed=node.name[0] == "[", high_closed=node.name[1] == "]")


def _between(low: Node, high: Node, point: Point, *, low_closed: bool, high_closed: bool) -> RealSet:
    a = None if _infinite(low) < 0 else point(low)
    b = None if _infinite(high) > 0 else point(high)

    def contains(x: Fraction) -> bool:
        above = a is None or x > a or (low_closed and x == a)
        return above and (b is None or x < b or (high_closed and x == b))

    return RealSet(frozenset(end for end in (a, b) if end is not None), contains)


def _relation(node: Node, point: Point) -> RealSet | None:
    signs, members = node.name.split(), node.args
    if signs == ["in"]:
        inner = real_set(members[1], point)
        named = members[0].op == "sym" and inner is not None and not inner.variable
        return RealSet(inner.ends, inner.contains, members[0].name) if named and inner is not None else None
    if len(signs) == 1:
        left, sign, right = members[0], signs[0], members[1]
        if right.op == "sym" and right.symbols and not left.symbols:
            left, sign, right = right, _FLIPPED.get(sign, sign), left
        if left.op != "sym" or not left.symbols or right.symbols:
            return None
        return _half_line(left.name, sign, right, point)
    if len(signs) == 2 and members[1].op == "sym" and members[1].symbols:
        first = _half_line(members[1].name, _FLIPPED.get(signs[0], ""), members[0], point)
        return _combined("inter", first, _half_line(members[1].name, signs[1], members[2], point))
    return None


def _half_line(variable: str, sign: str, end: Node, point: Point) -> RealSet | None:
    if end.symbols or sign not in ("<", ">", "<=", ">=", "!=", "="):
        return None
    if _infinite(end):
        inside = (_infinite(end) > 0) == (sign in ("<", "<=")) or sign == "!="
        return RealSet(frozenset(), lambda x: inside, variable)
    place = point(end)
    tests: dict[str, Callable[[Fraction], bool]] = {
        "<": lambda x: x < place,
        ">": lambda x: x > place,
        "<=": lambda x: x <= place,
        ">=": lambda x: x >= place,
        "!=": lambda x: x != place,
        "=": lambda x: x == place,
    }
    return RealSet(frozenset({place}), tests[sign], variable)
