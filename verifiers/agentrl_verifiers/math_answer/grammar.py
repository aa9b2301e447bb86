"""The grammar of answers: tokens to one tree. Everything is read or nothing is: there is no partial reading."""

from __future__ import annotations

from agentrl_verifiers.math_answer.commands import DEEPEST
from agentrl_verifiers.math_answer.expressions import Expressions
from agentrl_verifiers.math_answer.nodes import Node, TooComplex
from agentrl_verifiers.math_answer.tokens import tokenize
from agentrl_verifiers.math_answer.units import CURRENCIES

_RELATIONS = {
    "=": "=", "<": "<", ">": ">", "\\le": "<=", "\\ge": ">=", "\\ne": "!=", "\\approx": "~", "\\in": "in",
    "\\equiv": "=",     "\\sim": "~", "\\lt": "<", "\\gt": ">",
}  # fmt: skip
_SETS = {"\\cup": "union", "\\cap": "inter", "\\setminus": "minus"}


def parse(text: str) -> Node:
    """Read a normalised text. Raises Unreadable, and TooComplex for what is too deep or too long."""
    parser = _Parser(tokenize(text))
    try:
        node = parser.list_until_end()
    except RecursionError:
        raise TooComplex("nested too deeply") from None
    parser.expect_end()
    return node


class _Parser(Expressions):
    def expect_end(self) -> None:
        """Nothing may be left."""
        self._need("end")

    def list_until_end(self) -> Node:
        """Items separated by commas, semicolons, "and" and "or"; a single item is itself."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise TooComplex(f"nested deeper than {DEEPEST}")
        items, names = [self._item()], set()
        while (separator := self._take(",", ";", "separator")) is not None:
            names.add(separator.text if separator.kind == "separator" else ",")
            if separator.kind != "separator" and (word := self._take("separator")):
                names.add(word.text)
            items.append(self._item())
        self._depth -= 1
        return (
            items[0]
            if len(items) == 1
            else Node("list", tuple(items), next((name for name in ("or", "and") if name in names), ","))
        )

    def _item(self) -> Node:
        members, signs = [self._ratio()], []
        while self._next.kind in _RELATIONS:
            signs.append(_RELATIONS[self._next.kind])
            self._at += 1
            members.append(self._ratio())
        return members[0] if not signs else Node("rel", tuple(members), " ".join(signs))

    def _ratio(self) -> Node:
        parts = [self._set_expression()]
        while self._take(":") or (
            self._next.kind in ("letters", "word") and self._next.text == "to" and self._take("letters", "word")
        ):
            parts.append(self._set_expression())
        return parts[0] if len(parts) == 1 else Node("ratio", tuple(parts))

    def _set_expression(self) -> Node:
        left = self._quantity()
        while self._next.kind in _SETS:
            op = _SETS[self._next.kind]
            self._at += 1
            left = Node(op, (left, self._quantity()))
        return left

    def _quantity(self) -> Node:
        """A sum with what makes it a quantity: a currency before it, a unit behind it, a percent sign."""
        if self._next.kind == "dots":
            self._at += 1
            return Node("dots")
        if self._next.kind == "word" and self._peek(1).kind in ("=", "\\approx"):
            # A name in words, as in "\text{Area} = 5".
            return Node("text", name=self._need("word").text.casefold())
        sign = self._take("-") if self._peek(1).kind in CURRENCIES else None
        currency = self._take(*CURRENCIES)
        value = self._sum()
        if sign is not None:
            value = Node("neg", (value,))
        unit = self._unit()
        if currency is not None:
            unit = f"{CURRENCIES[currency.kind]} {unit}".strip() if unit != CURRENCIES[currency.kind] + "s" else unit
        trailing = self._take(*CURRENCIES)
        if trailing is not None:
            unit = CURRENCIES[trailing.kind]
        if value.op == "deg" and unit.casefold() not in ("c", "f"):
            value, unit = value.args[0], f"degree {unit}".strip()
        elif value.op == "deg":
            value, unit = value.args[0], f"degree{unit}"
        return Node("quantity", (value,), unit) if unit else value

    def _unit(self) -> str:
        end = self._unit_end(self._at)
        if end is None:
            return ""
        words = " ".join(token.text for token in self._tokens[self._at : end])
        self._at = end
        return words
