"""Reading expressions: sums, products, powers, functions, brackets, matrices."""

from __future__ import annotations

import re

from agentrl_verifiers.math_answer.nodes import Node, TooComplex, Unreadable, number
from agentrl_verifiers.math_answer.tokens import Token
from agentrl_verifiers.math_answer.units import CURRENCIES, is_unit

DEEPEST = 40
"""Levels of nesting that an answer may have."""
_FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "arccot",
        "asin",
        "acos",
        "atan",
        "sinh",
        "cosh",
        "tanh",
        "ln",
        "log",
        "lg",
        "exp",
        "gcd",
        "lcm",
        "max",
        "min",
    ]
)
_GREEK = frozenset(
    [
        "alpha",
        "beta",
        "gamma",
        "delta",
        "epsilon",
        "zeta",
        "eta",
        "theta",
        "iota",
        "kappa",
        "lambda",
        "mu",
        "nu",
        "xi",
        "rho",
        "sigma",
        "tau",
        "phi",
        "chi",
        "psi",
        "omega",
        "Gamma",
        "Delta",
        "Theta",
        "Lambda",
        "Xi",
        "Pi",
        "Sigma",
        "Phi",
        "Psi",
        "Omega",
        "ell",
    ]
)
_NAMED = {"pi": "pi", "infty": "oo", "infinity": "oo", "inf": "oo", "oo": "oo"}
_CLOSERS = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}",), "\\langle": ("\\rangle",), "{": ("}",)}
_LETTER_RUN = re.compile(
    r"arc(?:sin|cos|tan|cot)|a?(?:sin|cos|tan)h?|cot|sec|csc|sqrt|ln|log|lg|exp|gcd|lcm|pi|[A-Za-z]"
)
_MATRICES = ("matrix", "pmatrix", "bmatrix", "Bmatrix", "array", "smallmatrix")


class Expressions:
    """A cursor over tokens, and the part of the grammar below relations and lists."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = [*tokens, Token("end", "")]
        self._at = 0
        self._depth = 0
        self._bars = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _peek(self, ahead: int) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _take(self, *kinds: str) -> Token | None:
        token = self._next
        if token.kind in kinds:
            self._at += 1
            return token
        return None

    def _need(self, *kinds: str) -> Token:
        token = self._take(*kinds)
        if token is None:
            raise Unreadable(f"{kinds[0]} expected, not '{self._next.text}'")
        return token

    def list_until_end(self) -> Node:
        """A list of items; the part of the grammar above supplies it."""
        raise NotImplementedError

    def _item(self) -> Node:
        raise NotImplementedError

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
        spelt_out = any(len(word) >= 3 and not _symbolic(word) for word in letters)
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
            return kind[1:] in _FUNCTIONS | _GREEK | _NAMED.keys() | {"frac", "sqrt", "binom", "lfloor", "lceil"}
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
        if token.text in _NAMED and token.text != "inf":
            return Node("sym", name=_NAMED[token.text])
        if token.text in _GREEK:
            return self._subscripted(token.text)
        parts = splits(token.text)
        if not parts:
            raise Unreadable(f"the word '{token.text}'")
        node: Node | None = None
        for place, part in enumerate(parts):
            if part in _FUNCTIONS or part == "sqrt":
                # What is left of the run is its argument.
                rest = "".join(parts[place + 1 :])
                if rest:
                    self._at -= 1
                    self._tokens[self._at] = Token("letters", rest)
                factor = self._function(part)
                return factor if node is None else Node("mul", (node, factor))
            last = place == len(parts) - 1
            factor = self._subscripted(part) if last else Node("sym", name=_NAMED.get(part, part))
            if last and node is not None and self._next.kind == "^":
                # Only the last letter of a run is raised.
                self._at += 1
                factor = Node("pow", (factor, self._exponent()))
            node = factor if node is None else Node("mul", (node, factor))
        assert node is not None
        return node

    def _subscripted(self, name: str) -> Node:
        name = _NAMED.get(name, name)
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

    def _command(self) -> Node:
        name = self._next.kind[1:]
        self._at += 1
        if name in ("frac", "binom"):
            over, under = self._argument(short=True), self._argument(short=True)
            return Node("div", (over, under)) if name == "frac" else Node("call", (over, under), "binom")
        if name in _FUNCTIONS or name == "sqrt":
            return self._function(name)
        if name in _NAMED or name in _GREEK:
            return self._subscripted(_NAMED.get(name, name))
        if name in ("reals", "emptyset"):
            return Node("reals" if name == "reals" else "empty")
        if name in ("lfloor", "lceil"):
            content = self._sum()
            self._need("\\rfloor" if name == "lfloor" else "\\rceil")
            return Node("call", (content,), "floor" if name == "lfloor" else "ceil")
        if name == "begin":
            return self._matrix()
        raise Unreadable(f"the command \\{name}")

    def _argument(self, *, short: bool = False) -> Node:
        """What belongs to a command: a brace group, or one sign; `short` takes one digit, as in `\\frac12`."""
        if self._take("{"):
            content = self.list_until_end()
            self._need("}")
            return content
        token = self._next
        if short and token.kind == "number" and token.text.isdigit() and len(token.text) > 1:
            self._tokens[self._at] = Token("number", token.text[1:], number(int(token.text[1:])))
            return number(int(token.text[0]))
        return self._atom()

    def _function(self, name: str) -> Node:
        if name == "sqrt":
            index = None
            if self._take("["):
                index = self._sum()
                self._need("]")
            inside = self._argument() if self._next.kind != "letters" else self._power()
            return Node("call", (inside,), "sqrt") if index is None else Node("call", (inside, index), "root")
        power = base = None
        while self._next.kind in ("^", "_"):
            if self._take("^"):
                power = self._exponent()
            elif self._take("_"):
                base = self._argument()
        arguments = self._arguments()
        if base is not None:
            arguments = (*arguments, base)
        node = Node("call", arguments, "log_base" if base is not None else name)
        if power == Node("neg", (number(1),)) and name in ("sin", "cos", "tan", "cot"):
            return Node("call", arguments, f"arc{name}")
        return node if power is None else Node("pow", (node, power))

    def _arguments(self) -> tuple[Node, ...]:
        if self._next.kind == "(":
            content = self._group("(")
            return content.args if content.op == "group" else (content,)
        sign = self._take("-")
        left = self._power()
        while self._next.kind in ("letters", "{", "\\frac", "\\pi", *(f"\\{greek}" for greek in _GREEK)):
            if (
                self._next.kind == "letters"
                and splits(self._next.text)[:1]
                and splits(self._next.text)[0] in _FUNCTIONS
            ):
                break
            left = Node("mul", (left, self._power()))
        while self._next.kind == "/" and self._peek(1).kind == "number":
            self._at += 1
            left = Node("div", (left, self._power()))
        return (Node("neg", (left,)) if sign else left,)

    def _matrix(self) -> Node:
        name = self._environment()
        if name not in _MATRICES:
            raise Unreadable(f"the environment {name}")
        if name == "array" and self._take("{"):
            while not self._take("}"):
                self._need("letters", "|")
        rows: list[Node] = []
        cells = [self._item()]
        while not self._take("\\end"):
            if self._take("&"):
                cells.append(self._item())
                continue
            self._need("row")
            rows.append(Node("group", tuple(cells), "()"))
            cells = []
            if self._next.kind != "\\end":
                cells = [self._item()]
        if cells:
            rows.append(Node("group", tuple(cells), "()"))
        self._at -= 1
        self._need("\\end")
        self._environment()
        return Node("matrix", tuple(rows))

    def _environment(self) -> str:
        self._need("{")
        name = self._need("letters").text
        self._take("*")
        self._need("}")
        return name


def _signed(sign: str, node: Node) -> Node:
    if sign == "+":
        return node
    return Node({"-": "neg", "\\pm": "pm", "\\mp": "mp"}[sign], (node,))


def _symbolic(run: str) -> bool:
    """Whether letters behind a number are symbols and functions and no word."""
    return set(run) <= set("xyz") or any(len(part) > 1 for part in splits(run))


def splits(run: str) -> list[str]:
    """A run of letters as names of functions and single symbols; empty for a word."""
    parts = _LETTER_RUN.findall(run)
    known = any(len(part) > 1 for part in parts)
    return parts if len(run) <= 3 or (known and sum(len(part) == 1 for part in parts) <= 3) else []
