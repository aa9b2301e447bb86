"""Equations, assignments and chains: what they state, and when one is the gold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentrl_verifiers.math_answer.nodes import Node, is_expression
from agentrl_verifiers.math_answer.sets import is_inequality

SameNode = Callable[[Node, Node, Any], bool]
_FUNCTION_NAMES = frozenset("fghFGHPQ")


def named(node: Node) -> tuple[str, Node] | None:
    """The name and the value of an assignment such as `x = 5`, `f(x) = x + 1`, `(a, b) = (3, 4)`; else None."""
    if node.op != "rel" or set(node.name.split()) != {"="}:
        return None
    left, right = node.args[0], node.args[-1]
    name = _name(left)
    if name is None or (is_expression(right) and left.op == "sym" and left.name in right.symbols):
        return None
    return name, right


def _oriented(node: Node) -> Node:
    """`5 = x` is `x = 5`."""
    if node.op == "rel" and node.name == "=" and _name(node.args[0]) is None and _name(node.args[1]) is not None:
        return Node("rel", (node.args[1], node.args[0]), "=")
    return node


def _name(node: Node) -> str | None:
    if node.op == "sym" and node.symbols:
        return node.name
    if node.op == "text":
        return node.name
    factors = [inner for inner in node.walk() if inner.op != "mul"]
    if node.op == "mul" and all(factor.op == "sym" and factor.name.isupper() for factor in factors):
        # A segment or a triangle, such as AB.
        return "".join(sorted(factor.name for factor in factors))
    if node.op == "mul" and node.args[0].op == "sym" and node.args[0].name.split("_")[0] in _FUNCTION_NAMES:
        return node.args[0].name + "(" + ",".join(sorted(node.args[1].symbols)) + ")"
    if node.op == "group" and all(item.op == "sym" for item in node.args):
        return "(" + ",".join(item.name for item in node.args) + ")"
    return None


def stated(node: Node) -> Node:
    """The value of an assignment, or the node itself."""
    pair = named(node)
    return node if pair is None else pair[1]


def same_relation(gold: Node, answer: Node, oracle: Any, same_node: SameNode) -> bool:
    """Whether a relation is the gold's, or states the gold's value."""
    gold, answer = _oriented(gold), _oriented(answer)
    if gold.op != "rel":
        return _states(gold, answer, oracle, same_node)
    gold_named = named(gold)
    if gold_named is not None:
        return _same_assignment(gold, gold_named, answer, oracle, same_node)
    signs = gold.name.split()
    if set(signs) <= {"=", "~"} and not gold.args[-1].symbols and len(signs) > 1:
        # A chain of equalities in the gold ends in its value.
        return same_node(gold.args[-1], answer, oracle)
    if answer.op != "rel":
        # An equation is no number, but a chain of constants in the gold is its last value.
        return not any(member.symbols for member in gold.args) and same_node(gold.args[-1], answer, oracle)
    return _equivalent(gold, answer, oracle)


def _same_assignment(gold: Node, gold_named: tuple[str, Node], answer: Node, oracle: Any, same_node: SameNode) -> bool:
    name, value = gold_named
    answer_named = named(answer)
    if answer_named is not None and answer_named[0] == name:
        return _consistent(answer, oracle) and same_node(value, answer_named[1], oracle)
    if answer.op != "rel":
        return same_node(value, answer, oracle)
    if not is_expression(value) or not value.symbols:
        # A solved gold asks for a solved answer; a value of another name is another answer.
        chain = answer_named is None and not any(member.symbols for member in answer.args)
        return chain and _states(value, answer, oracle, same_node)
    return _equivalent(gold, answer, oracle)


def _states(gold: Node, answer: Node, oracle: Any, same_node: SameNode) -> bool:
    """Whether an assignment or a chain of equalities states the gold's value and nothing false."""
    if is_inequality(answer):
        return False
    signs = answer.name.split()
    if "~" in signs:
        left, right = answer.args[-2:]
        close = (
            signs[-1] == "~" and right.op == "num" and oracle.rounds_to(left, right) if is_expression(left) else False
        )
        if named(Node("rel", answer.args[:2], "=")) and len(signs) == 1:
            return same_node(gold, right, oracle)
        return bool(close) and (same_node(gold, left, oracle) or same_node(gold, right, oracle))
    if named(answer) is None and any(member.symbols for member in answer.args[:-1] if is_expression(member)):
        return False
    return _consistent(answer, oracle) and same_node(gold, answer.args[-1], oracle)


def _consistent(answer: Node, oracle: Any) -> bool:
    """Whether the members of a chain of equalities are equal, the name apart."""
    members = answer.args[1:] if named(answer) is not None else answer.args
    if len(members) == 1:
        return True
    return all(is_expression(member) and oracle.equal(member, members[-1]) for member in members[:-1])


def _equivalent(gold: Node, answer: Node, oracle: Any) -> bool:
    """Whether two relations of one sign have the same solutions because their sides are proportional."""
    if len(gold.args) != 2 or len(answer.args) != 2 or not all(map(is_expression, (*gold.args, *answer.args))):
        return False
    signs = gold.name, answer.name
    flipped = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "=", "!=": "!="}
    if signs[0] not in flipped or signs[1] not in flipped or gold.symbols != answer.symbols:
        return False
    sides = [Node("add", (left, Node("neg", (right,)))) for left, right in (gold.args, answer.args)]
    sign = oracle.proportion(sides[0], sides[1])
    if sign == 0:
        return False
    return signs[0] == (signs[1] if sign > 0 or signs[0] in ("=", "!=") else flipped[signs[1]])
