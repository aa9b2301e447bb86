"""Reading LaTeX commands and functions with their arguments, and matrices."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

from agentrl_verifiers.math_answer.nodes import Node, Unreadable, number
from agentrl_verifiers.math_answer.tokens import Token

DEEPEST = 40
"""Levels of nesting that an answer may have."""
FUNCTIONS = frozenset(
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
GREEK = frozenset(
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
NAMED = {"pi": "pi", "infty": "oo", "infinity": "oo", "inf": "oo", "oo": "oo"}
_CLOSERS = {"(": (")", "]"), "[": ("]", ")"), "\\{": ("\\}",), "\\langle": ("\\rangle",), "{": ("}",)}
_LETTER_RUN = re.compile(
    r"arc(?:sin|cos|tan|cot)|a?(?:sin|cos|tan)h?|cot|sec|csc|sqrt|ln|log|lg|exp|gcd|lcm|pi|[A-Za-z]"
)
_MATRICES = ("matrix", "pmatrix", "bmatrix", "Bmatrix", "array", "smallmatrix")


class Commands(ABC):
    """A cursor over tokens, and what a command is followed by; the parts of the grammar above fill in the rest."""

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

    @abstractmethod
    def list_until_end(self) -> Node:
        """A list of items; the part of the grammar above supplies it."""

    @abstractmethod
    def _item(self) -> Node: ...

    @abstractmethod
    def _sum(self) -> Node: ...

    @abstractmethod
    def _power(self) -> Node: ...

    @abstractmethod
    def _atom(self) -> Node: ...

    @abstractmethod
    def _exponent(self) -> Node: ...

    @abstractmethod
    def _group(self, opening: str) -> Node: ...

    @abstractmethod
    def _subscripted(self, name: str) -> Node: ...

    def _command(self) -> Node:
        name = self._next.kind[1:]
        self._at += 1
        if name in ("frac", "binom"):
            over, under = self._argument(short=True), self._argument(short=True)
            return Node("div", (over, under)) if name == "frac" else Node("call", (over, under), "binom")
        if name in FUNCTIONS or name == "sqrt":
            return self._function(name)
        if name in NAMED or name in GREEK:
            return self._subscripted(NAMED.get(name, name))
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
        while self._next.kind in ("letters", "{", "\\frac", "\\pi", *(f"\\{greek}" for greek in GREEK)):
            if self._next.kind == "letters" and splits(self._next.text)[:1] and splits(self._next.text)[0] in FUNCTIONS:
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


def is_symbolic(run: str) -> bool:
    """Whether letters behind a number are symbols and functions and no word."""
    return set(run) <= set("xyz") or any(len(part) > 1 for part in splits(run))


def splits(run: str) -> list[str]:
    """A run of letters as names of functions and single symbols; empty for a word."""
    parts = _LETTER_RUN.findall(run)
    known = any(len(part) > 1 for part in parts)
    return parts if len(run) <= 3 or (known and sum(len(part) == 1 for part in parts) <= 3) else []
