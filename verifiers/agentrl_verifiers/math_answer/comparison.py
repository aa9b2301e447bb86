"""When an answer is the gold: by the type of the gold, never by one universal equality.

The same rules run in this process, where only exact arithmetic decides (`Exact`; it raises Undecided), and in a worker
process, where an oracle may compute numerically.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Protocol

from agentrl_verifiers.math_answer.exact import check_size, value_of
from agentrl_verifiers.math_answer.nodes import Node, TooComplex, Undecided, Undefined, is_expression, number
from agentrl_verifiers.math_answer.quantities import same_clock, same_percent, same_quantity, same_ratio
from agentrl_verifiers.math_answer.reading import Reading
from agentrl_verifiers.math_answer.relations import named, same_relation, stated
from agentrl_verifiers.math_answer.sets import is_set_like, real_set, same_set
from agentrl_verifiers.math_answer.tokens import decimal
from agentrl_verifiers.math_answer.words import same_wording

_DECIMAL_COMMA = re.compile(r"-?\d+,(?:\d\d?|\d{4,})")


class Oracle(Protocol):
    """Decides about expressions."""

    def equal(self, left: Node, right: Node) -> bool:
        """Whether two expressions have the same value wherever both have one."""
        ...

    def point(self, node: Node) -> Fraction:
        """The place of a constant on the real line."""
        ...

    def rounds_to(self, node: Node, gold: Node) -> bool:
        """Whether a constant that no finite decimal writes rounds to the gold's digits."""
        ...

    def proportion(self, left: Node, right: Node) -> int:
        """The sign of the constant that left is times right; 0 when there is none."""
        ...

    def other(self, gold: str, answer: str) -> bool:
        """Whether two texts that the grammar does not know are equal mathematics."""
        ...


class Exact:
    """The oracle of this process: integers and fractions. Everything else raises Undecided."""

    def equal(self, left: Node, right: Node) -> bool:
        """See Oracle."""
        if left == right and left.op == "sym":
            return True
        return value_of(left) == value_of(right)

    def point(self, node: Node) -> Fraction:
        """See Oracle."""
        return value_of(node)

    def rounds_to(self, node: Node, gold: Node) -> bool:
        """See Oracle."""
        value = value_of(node)
        finite = value.denominator
        for factor in (2, 5):
            while finite % factor == 0:
                finite //= factor
        return finite != 1 and abs(value - gold.value) * 2 * 10 ** (gold.places or 0) <= 1

    def proportion(self, left: Node, right: Node) -> int:
        """See Oracle."""
        raise Undecided("an equation")

    def other(self, gold: str, answer: str) -> bool:
        """See Oracle."""
        raise Undecided("beyond the grammar")


def same(gold: Reading, answer: Reading, oracle: Oracle) -> bool:
    """Whether the answer is the gold. Raises TooComplex, and Undecided when the oracle cannot tell."""
    if gold.text == answer.text:
        return not (gold.nodes and _undefined(gold.nodes[0]))
    in_words = not gold.nodes or not answer.nodes or "text" in (gold.nodes[0].op, answer.nodes[0].op)
    if (in_words and same_wording(gold.words, answer.words)) or _same_choice(gold.plain, answer.plain):
        return not (gold.nodes and _undefined(gold.nodes[0]))
    if gold.nodes and gold.nodes[0].places and _DECIMAL_COMMA.fullmatch(answer.text):
        return decimal(answer.text.replace(",", ".")).value == gold.nodes[0].value
    if not gold.nodes or not answer.nodes:
        mathematical = gold.mathematical and (answer.mathematical or bool(answer.nodes))
        return (mathematical or (bool(gold.nodes) and answer.mathematical)) and oracle.other(gold.text, answer.text)
    try:
        return any(same_node(gold.nodes[0], node, oracle) for node in answer.nodes)
    except Undefined:
        return False


def _undefined(node: Node) -> bool:
    try:
        value_of(node)
    except Undefined:
        return True
    except (Undecided, TooComplex):
        return False
    return False


def _same_choice(gold: str, answer: str) -> bool:
    """A letter with the text of its option, or the same letters in any order."""
    if re.fullmatch(r"[A-J]", gold):
        match = re.fullmatch(r"\(?([A-J])\s*(?:[).:]|\\\))\s*\S.*", answer, re.DOTALL)
        if match is None or match[1] != gold:
            return False
        return not re.search(r"\b[A-J]\s*[).:]", answer[match.end(1) + 1 :])
    if re.fullmatch(r"[A-J](?:\s*,?\s*[A-J]){1,9}", gold) and re.fullmatch(r"\(?[A-J](?:[\s,;&]|and|\\&)*.*", answer):
        letters = re.sub(r"[\s,;&().]|and|\\", "", answer)
        wanted = re.sub(r"[\s,]", "", gold)
        upper = letters.isascii() and letters.isupper() and letters.isalpha()
        ordered = sorted(wanted) == list(wanted) and len(set(wanted)) == len(wanted)
        return upper and ordered and sorted(letters) == sorted(wanted)
    return False


def same_node(gold: Node, answer: Node, oracle: Oracle) -> bool:
    """Whether one reading of an answer is the gold's reading."""
    gold, answer = _settled(gold), _settled(answer)
    if gold.op == "text" or answer.op == "text":
        if gold.op == answer.op:
            return same_wording(gold.name, answer.name)
        roman, other = (gold, answer) if gold.op == "text" else (answer, gold)
        return bool(roman.value) and other.op == "num" and other.value == roman.value
    if is_set_like(gold) or is_set_like(answer):
        return _same_sets(gold, answer, oracle)
    if gold.op in ("list", "set") or answer.op in ("list", "set"):
        return _same_collections(gold, answer, oracle)
    if gold.op == "rel" or answer.op == "rel":
        return same_relation(gold, answer, oracle, same_node)
    if gold.op in ("group", "matrix", "cycle") or answer.op in ("group", "matrix", "cycle"):
        return _same_tuples(gold, answer, oracle)
    return _same_scalars(gold, answer, oracle)


def _settled(node: Node) -> Node:
    """Both signs of a plus-minus written out, and lists inside lists flattened."""
    if any(inner.op in ("pm", "mp") for inner in node.walk()):
        if node.op in ("list", "set"):
            items = [part for item in node.args for part in _both_signs(item)]
            return replace(node, args=tuple(items))
        both = _both_signs(node)
        return Node("list", tuple(both), "or") if len(both) > 1 else both[0]
    return node


def _both_signs(node: Node) -> list[Node]:
    if not any(inner.op in ("pm", "mp") for inner in node.walk()):
        return [node]
    return [_with_sign(node, plus=True), _with_sign(node, plus=False)]


def _with_sign(node: Node, *, plus: bool) -> Node:
    args = tuple(_with_sign(argument, plus=plus) for argument in node.args)
    if node.op not in ("pm", "mp"):
        return replace(node, args=args)
    last = args[-1] if plus == (node.op == "pm") else Node("neg", (args[-1],))
    return last if len(args) == 1 else Node("add", (args[0], last))


def _same_scalars(gold: Node, answer: Node, oracle: Oracle) -> bool:
    ops = {gold.op, answer.op}
    if "cycle" in ops or "dots" in ops:
        return gold == answer
    if "dims" in ops:
        return gold.op == answer.op and gold.args == answer.args
    if "clock" in ops:
        return same_clock(gold, answer)
    if "ratio" in ops:
        return same_ratio(gold, answer, oracle)
    if "residue" in ops:
        return _same_residue(gold, answer, oracle)
    if "based" in ops:
        return _same_based(gold, answer)
    if "quantity" in ops:
        return same_quantity(gold, answer, oracle, _same_scalars)
    if "percent" in ops:
        return same_percent(gold, answer, oracle)
    if not (is_expression(gold) and is_expression(answer)):
        return False
    return same_expression(gold, answer, oracle)


def same_expression(gold: Node, answer: Node, oracle: Oracle) -> bool:
    """Whether two expressions are equal; an exact answer may also round to a decimal gold of three digits or more."""
    if gold == answer:
        return True
    check_size(answer)
    answer = _renamed(gold, answer)
    infinite = [any(n.name == "oo" and n.op == "sym" for n in node.walk()) for node in (gold, answer)]
    if any(infinite):
        return gold == answer
    if oracle.equal(gold, answer):
        return True
    if (
        gold.op != "num"
        or not gold.places
        or len(str(gold.value.numerator * 10**gold.places // gold.value.denominator).strip("-0")) < 3
    ):
        return False
    written_as_decimal = any(node.op == "num" and node.places for node in answer.walk())
    return not written_as_decimal and not answer.symbols and oracle.rounds_to(answer, gold)


def _renamed(gold: Node, answer: Node) -> Node:
    """Another letter for the constant of integration C; the engineers' j for the imaginary unit."""
    missing, extra = gold.symbols - answer.symbols, answer.symbols - gold.symbols
    constant = Node("sym", name="C")
    if (
        gold.op == answer.op == "add"
        and constant in gold.args
        and missing == {"C"}
        and len(extra) == 1
        and extra <= set("KkcDAB")
    ):
        other = Node("sym", name=next(iter(extra)))
        return _substituted(answer, other.name, "C") if other in answer.args else answer
    imaginary = any(node == Node("sym", name="i") for node in gold.walk())
    return _substituted(answer, "j", "i") if imaginary and "j" in extra else answer


def _substituted(node: Node, old: str, new: str) -> Node:
    if node == Node("sym", name=old):
        return Node("sym", name=new)
    return replace(node, args=tuple(_substituted(argument, old, new) for argument in node.args))


def _same_based(gold: Node, answer: Node) -> bool:
    def amount(node: Node) -> Fraction | None:
        if node.op == "based":
            return Fraction(int(node.name, int(node.value)))
        return value_of(node) if is_expression(node) else None

    left, right = amount(gold), amount(answer)
    if left is None or right is None:
        return False
    # Without its base the answer may be the gold's digits: the question fixes the base.
    digits = gold.op == "based" and answer.op == "num" and gold.name.isdigit() and right == int(gold.name)
    return left == right or digits


def _same_residue(gold: Node, answer: Node, oracle: Oracle) -> bool:
    if gold.op == answer.op == "residue":
        difference = Node("add", (gold.args[0], Node("neg", (answer.args[0],))))
        remainder = Node("call", (difference, gold.args[1]), "mod")
        return gold.args[1] == answer.args[1] and oracle.equal(remainder, number(0))
    left = gold.args[0] if gold.op == "residue" else gold
    right = answer.args[0] if answer.op == "residue" else answer
    return _same_scalars(left, right, oracle)


def _same_tuples(gold: Node, answer: Node, oracle: Oracle) -> bool:
    if gold.op == "cycle" or answer.op == "cycle":
        turns = [gold.args[k:] + gold.args[:k] for k in range(len(gold.args))]
        return gold.op == answer.op and answer.args in turns
    left, right = _entries(gold), _entries(answer)
    if left is None or right is None or len(left) != len(right):
        return False
    pairs = gold.op == answer.op == "group" and len(left) == 2
    if pairs and gold.name != answer.name:
        # The bracket at an infinite end says nothing.
        ends = [(gold.name[k], answer.name[k]) for k in (0, 1) if not _infinite(gold.args[k])]
        if any(left_sign != right_sign for left_sign, right_sign in ends):
            return False
    return all(same_node(g, a, oracle) for g, a in zip(left, right, strict=True))


def _infinite(node: Node) -> bool:
    return any(inner == Node("sym", name="oo") for inner in node.walk())


def _entries(node: Node) -> tuple[Node, ...] | None:
    """The entries of a tuple, or the rows of a matrix; a single row or column is a tuple."""
    if node.op == "group":
        return node.args
    if node.op != "matrix":
        return None
    if len(node.args) == 1:
        return node.args[0].args
    if all(len(row.args) == 1 for row in node.args):
        return tuple(row.args[0] for row in node.args)
    return tuple(node.args)


def _same_collections(gold: Node, answer: Node, oracle: Oracle) -> bool:
    if answer.op == "group" or gold.op == "group":
        # A tuple has an order; a set has none; a bare list takes the order of the tuple.
        if "set" in (gold.op, answer.op) or len(gold.args) != len(answer.args):
            return False
        left, right = [stated(item) for item in gold.args], [stated(item) for item in answer.args]
        return all(same_node(g, a, oracle) for g, a in zip(left, right, strict=True))
    left = list(gold.args) if gold.op in ("list", "set") else [gold]
    right = list(answer.args) if answer.op in ("list", "set") else [answer]
    if (len(left) == 1 or len(right) == 1) and "set" not in (gold.op, answer.op):
        return False
    if any(node.op == "dots" for node in (*left, *right)):
        return len(left) == len(right) and all(same_node(g, a, oracle) for g, a in zip(left, right, strict=True))
    names = [_names(left), _names(right)]
    if names[0] and names[1] and names[0] != names[1] and len(set(names[0])) == len(names[0]):
        if sorted(names[0]) != sorted(names[1]):
            return False
        right = [right[names[1].index(name)] for name in names[0]]
        return all(same_node(g, a, oracle) for g, a in zip(left, right, strict=True))
    distinct = [len(set(found)) > 1 for found in names]
    if any(distinct) and len(left) == len(right) and gold.op == answer.op == "list":
        # Values of different names without the names: only the written order tells them apart.
        return all(same_node(stated(g), stated(a), oracle) for g, a in zip(left, right, strict=True))
    return _paired(left, right, oracle, as_sets="set" in (gold.op, answer.op))


def _names(items: Sequence[Node]) -> list[str]:
    found = [named(item) for item in items]
    return [pair[0] for pair in found if pair is not None] if all(found) else []


def _paired(left: list[Node], right: list[Node], oracle: Oracle, *, as_sets: bool) -> bool:
    """Each has its partner; in a set a repeated element is one."""
    if as_sets:
        return all(any(same_node(g, a, oracle) for a in right) for g in left) and all(
            any(same_node(g, a, oracle) for g in left) for a in right
        )
    rest = list(right)
    for item in left:
        partner = next((other for other in rest if same_node(item, other, oracle)), None)
        if partner is None:
            return False
        rest.remove(partner)
    return not rest


def _same_sets(gold: Node, answer: Node, oracle: Oracle) -> bool:
    left = real_set(gold, oracle.point)
    if left is not None:
        # A solved gold asks for a solved answer: the question itself is no answer.
        right = real_set(answer, oracle.point)
        return right is not None and same_set(left, right)
    # "no solution" beside a number is a set that states no value
    return "rel" in (gold.op, answer.op) and same_relation(gold, answer, oracle, same_node)
