"""Reading expressions: sums, products, powers, brackets, units behind a number."""

from __future__ import annotations

from agentrl_verifiers.math_answer.commands import DEEPEST, FUNCTIONS, GREEK, NAMED, Commands, is_symbolic, splits
from agentrl_verifiers.math_answer.nodes import Node, TooComplex, Unreadable
from agentrl_verifiers.math_answer.tokens import Token
from agentrl_verifiers.math_answer.units import CURRENCIES, is_unit

_CLOSERS = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}",), "\\langle": ("\\rangle",), "{": ("}",)}


class Expressions(Commands):
    """The part of the grammar below relations and lists."""

    def _unit_end(self, start: int) -> int | None:
        """Where the words end that begin at `start`, if they are a unit and nothing else follows in the item."""
        if self._tokens[start].kind not in ("letters", "word"):
            return None
        end = start
        while self._tokens[end].kind in ("letters", "word", "/", "^", "*", "{", "}", "number", "-", "(", ")", "'"):
            kind, before = self._tokens[end].kind, self._tokens[end - 1].kind
            if kind in ("number", "-") and before not in ("^", "{", "-"):
                break
            if kind == ")" and "(" not in (token.kind for token in self._tokens[start:end]):
                break
            end += 1
        if self._tokens[end].kind not in (
            "end",
            ",",
            ";",
            "separator",
            "=",
            ")",
            "\\}",
            "]",
            "\\approx",
            ".",
            *CURRENCIES,
        ):
            return None
        run = self._tokens[start:end]
        if any(token.kind == "word" for token in run):
            return end
        text = " ".join(token.text for token in run)
        letters = [token.text for token in run if token.kind == "letters"]
        if is_unit(text):
            return end if run[0].spaced or len(letters[0]) > 1 else None
        spelt_out = any(len(word) >= 3 and not is_symbolic(word) for word in letters)
        return end if spelt_out else None

    def _sum(self) -> Node:
        terms: list[Node] = []
        sign = self._take("+", "-", "\\pm", "\\mp")
        left = self._product()
        if sign is not None:
            left = _signed(sign.kind, left)
        terms.append(left)
        while (sign := self._take("+", "-", "\\pm", "\\mp")) is not None:
            right = self._signed_product()
            if sign.kind in ("\\pm", "\\mp"):
                left = terms[0] if len(terms) == 1 else Node("add", tuple(terms))
                terms = [Node("pm" if sign.kind == "\\pm" else "mp", (left, right))]
            else:
                terms.append(right if sign.kind == "+" else Node("neg", (right,)))
        return terms[0] if len(terms) == 1 else Node("add", tuple(terms))

    def _signed_product(self) -> Node:
        sign = self._take("+", "-")
        product = self._product()
        return Node("neg", (product,)) if sign is not None and sign.kind == "-" else product

    def _product(self) -> Node:
        left = self._mixed()
        while True:
            kind = self._next.kind
            if kind in ("*", "/"):
                self._at += 1
                right = self._signed_power()
                left = Node("mul", (left, right)) if kind == "*" else Node("div", (left, right))
            elif kind in ("\\bmod", "\\mod") or (kind == "letters" and self._next.text == "mod"):
                self._at += 1
                left = Node("call", (left, self._signed_power()), "mod")
            elif self._starts_factor() and not (not left.symbols and self._unit_end(self._at) is not None):
                left = Node("mul", (left, self._power()))
            else:
                return left

    def _starts_factor(self) -> bool:
        kind = self._next.kind
        if kind == "|":
            return self._bars == 0
        if kind == "number":
            return self._tokens[self._at - 1].kind in (")", "}")
        if kind.startswith("\\"):
            return kind[1:] in FUNCTIONS | GREEK | NAMED.keys() | {"frac", "sqrt", "binom", "lfloor", "lceil"}
        return kind in ("letters", "(", "{", "√")

    def _mixed(self) -> Node:
        """`2\\frac{1}{3}` and `2 1/3` are sums."""
        whole = self._next.node
        if self._next.kind == "number" and whole is not None and whole.value.denominator == 1 and whole.places is None:
            if self._peek(1).kind == "\\frac":
                start = self._at
                self._at += 1
                part = self._power()
                if part.op == "div" and all(n.op == "num" and n.value.denominator == 1 for n in part.args):
                    return Node("add", (whole, part))
                self._at = start
            ahead = [self._peek(k) for k in (1, 2, 3)]
            if (
                [t.kind for t in ahead] == ["number", "/", "number"]
                and ahead[0].spaced
                and ahead[0].node
                and ahead[2].node
            ):
                self._at += 4
                return Node("add", (whole, Node("div", (ahead[0].node, ahead[2].node))))
        return self._power()

    def _signed_power(self) -> Node:
        sign = self._take("-", "+")
        power = self._power()
        return Node("neg", (power,)) if sign is not None and sign.kind == "-" else power

    def _power(self) -> Node:
        base = self._postfix(self._atom())
        if self._take("^"):
            self._depth += 1
            if self._depth > DEEPEST:
                raise TooComplex(f"nested deeper than {DEEPEST}")
            base = self._postfix(Node("pow", (base, self._exponent())))
            self._depth -= 1
        return base

    def _exponent(self) -> Node:
        sign = self._take("-", "+")
        if self._next.kind == "{":
            exponent = self._argument()
        else:
            exponent = self._power() if self._next.kind in ("number", "(", "letters") else self._atom()
        return Node("neg", (exponent,)) if sign is not None and sign.kind == "-" else exponent

    def _postfix(self, node: Node) -> Node:
        ops = {"!": "fact", "!!": "fact2", "\\degree": "deg", "%": "percent"}
        while (token := self._take(*ops)) is not None:
            node = Node(ops[token.kind], (node,))
        return node

    def _atom(self) -> Node:
        token = self._next
        if token.kind == "number":
            self._at += 1
            assert token.node is not None
            return self._based(token) if self._next.kind == "_" else token.node
        if token.kind in _CLOSERS:
            return self._group(token.kind)
        if token.kind == "letters":
            return self._letters()
        if token.kind == "|":
            return self._absolute()
        if token.kind == "√":
            self._at += 1
            return Node("call", (self._power(),), "sqrt")
        if token.kind.startswith("\\"):
            return self._command()
        raise Unreadable(f"'{token.text}' begins nothing")

    def _based(self, token: Token) -> Node:
        self._at += 1
        base = self._argument()
        if base.op != "num" or base.value.denominator != 1 or not token.text.isdigit():
            raise Unreadable("a subscript of a number is its base")
        return Node("based", name=token.text, value=base.value)

    def _group(self, opening: str) -> Node:
        if opening == "(" and (cycle := self._cycle()):
            return cycle
        self._at += 1
        if opening == "\\{" and self._take("\\}"):
            return Node("empty")
        bars, self._bars = self._bars, 0
        content = self.list_until_end()
        self._bars = bars
        closing = self._need(*_CLOSERS[opening]).kind
        items = content.args if content.op == "list" else (content,)
        if opening == "\\{":
            return Node("set", items)
        if opening == "{":
            return content
        if len(items) == 1 and opening != "\\langle":
            return content
        return Node("group", items, "()" if opening == "\\langle" else opening + closing)

    def _cycle(self) -> Node | None:
        """`(1 3 2)`: a cycle of a permutation."""
        end = self._at + 1
        while self._tokens[end].kind == "number":
            end += 1
        inside = [token.node for token in self._tokens[self._at + 1 : end] if token.node is not None]
        if len(inside) < 2 or self._tokens[end].kind != ")":
            return None
        self._at = end + 1
        return Node("cycle", tuple(inside))

    def _letters(self) -> Node:
        token = self._need("letters")
        if token.text in NAMED and token.text != "inf":
            return Node("sym", name=NAMED[token.text])
        if token.text in GREEK:
            return self._subscripted(token.text)
        parts = splits(token.text)
        if not parts:
            raise Unreadable(f"the word '{token.text}'")
        node: Node | None = None
        for place, part in enumerate(parts):
            if part in FUNCTIONS or part == "sqrt":
                # What is left of the run is its argument.
                rest = "".join(parts[place + 1 :])
                if rest:
                    self._at -= 1
                    self._tokens[self._at] = Token("letters", rest)
                factor = self._function(part)
                return factor if node is None else Node("mul", (node, factor))
            last = place == len(parts) - 1
            factor = self._subscripted(part) if last else Node("sym", name=NAMED.get(part, part))
            if last and node is not None and self._next.kind == "^":
                # Only the last letter of a run is raised.
                self._at += 1
                factor = Node("pow", (factor, self._exponent()))
            node = factor if node is None else Node("mul", (node, factor))
        assert node is not None
        return node

    def _subscripted(self, name: str) -> Node:
        name = NAMED.get(name, name)
        if self._take("_"):
            start = self._at
            self._argument()
            name += "_" + "".join(
                token.text for token in self._tokens[start : self._at] if token.kind not in ("{", "}")
            )
        return Node("sym", name=name)

    def _absolute(self) -> Node:
        self._at += 1
        self._bars += 1
        content = self._sum()
        self._need("|")
        self._bars -= 1
        return Node("call", (content,), "abs")


def _signed(sign: str, node: Node) -> Node:
    if sign == "+":
        return node
    return Node({"-": "neg", "\\pm": "pm", "\\mp": "mp"}[sign], (node,))
