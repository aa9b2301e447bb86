"""Whether an answer is a number, or arithmetic that is left to whoever reads it."""

from __future__ import annotations

from agentrl_verifiers.math_answer.decision import read_gold
from agentrl_verifiers.math_answer.nodes import Node, TooComplex
from agentrl_verifiers.math_answer.reading import read

_WORK = frozenset({"add", "mul", "div", "pow", "fact", "fact2", "call", "pm", "mp", "dims", "ratio"})


def is_whole(gold: str) -> bool:
    """Whether a gold is a whole number, with or without a unit."""
    nodes = read_gold(gold).nodes
    node = _number(nodes[0]) if nodes else None
    return node is not None and node.op == "num" and node.value.denominator == 1


def is_worked_out(text: str, prose: bool) -> bool:
    """Whether no reading of an answer leaves arithmetic to do; of a chain such as `2+2 = 4` the last member counts.

    What the grammar cannot read (sums, integrals) is arithmetic; what would cost too much is not for this to decide.
    """
    try:
        nodes = read(text, prose=prose).nodes
    except (TooComplex, RecursionError):
        return True
    return bool(nodes) and not any(inner.op in _WORK for node in nodes for inner in _stated(node).walk())


def _stated(node: Node) -> Node:
    return node.args[-1] if node.op == "rel" else node


def _number(node: Node) -> Node:
    """The number of a quantity, a percentage or a negation."""
    while node.op in ("quantity", "percent", "neg") and node.args:
        node = node.args[0]
    return node
