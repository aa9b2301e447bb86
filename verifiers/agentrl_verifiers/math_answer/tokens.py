"""Cutting the normal spelling of an answer into tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from agentrl_verifiers.math_answer.nodes import Node, TooComplex, Unreadable

MOST_DIGITS = 1000

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|\x02(?P<word>[^\x02\x03]*)\x03"
    r"|(?P<hex>0[xX][0-9a-fA-F]+|0[bB][01]+)(?![0-9A-Za-z])"
    r"|(?P<repeat>\d*\.\d*\s*\\(?:overline|bar|dot)\s*(?:\{\d+\}|\d))"
    r"|(?P<endless>\d+\.\d+\s*(?:\.\.\.+|\\ldots))(?=\s*(?:[,;)\]}]|$))"
    r"|(?P<grouped>\d{1,3}(?:,\d{3})+(?![\d,]*\d)(?:\.\d+)?)"
    r"|(?P<spaced>\d{1,3}(?: \d{3})+(?![ ]?\d)(?:\.\d+)?)"
    r"|(?P<points>\d{1,3}(?:\.\d{3}){2,}(?![.\d]))"
    r"|(?P<number>(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d{1,4}(?![\w.]))?)"
    r"|(?P<dots>\.\.\.+|\\ldots)"
    r"|(?P<row>\\\\(?:\s*\[\s*[\d.]+\s*(?:pt|em|ex|mm|cm)\s*\])?)"
    r"|(?P<command>\\(?:[A-Za-z]+|[{}|]))"
    r"|(?P<letters>[A-Za-z]+)"
    r"|(?P<foreign>[^\W\d_\x00-\x7f]+)"
    r"|(?P<sign><=|>=|:=|!=|\*\*|!!|.)",
    re.DOTALL,
)
_SEPARATORS = {"and": "and", "or": "or", "and/or": "or"}
_SIGNS = {"<=": "\\le", ">=": "\\ge", ":=": "=", "!=": "\\ne", "**": "^", "\\cdot": "*", "\\times": "*"}


@dataclass(frozen=True, slots=True)
class Token:
    """kind: `number`, `letters`, `word`, `separator`, `dots`, or the sign or command itself.

    Example: `Token(kind="number", text="12", node=Node("num", value=Fraction(12)))`.
    """

    kind: str
    text: str
    node: Node | None = None
    spaced: bool = False


def tokenize(text: str) -> list[Token]:
    """The tokens of a normalised text. Raises Unreadable and TooComplex."""
    tokens: list[Token] = []
    spaced, depth, place = False, 0, 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        assert match is not None
        kind, part = str(match.lastgroup), match[0]
        if kind == "grouped" and depth and not re.search(r",0\d\d", part):
            # Inside brackets a comma separates, unless no list could be written so: (1,234) is a point, (5,000) is not.
            kind, part = "number", part[: part.index(",")]
        place += len(part)
        if kind == "space":
            spaced = True
            continue
        if kind == "word":
            tokens += _words(match["word"])
        else:
            tokens.append(_token(kind, part, spaced))
        spaced = False
        depth += (tokens[-1].kind in ("(", "[", "\\{")) - (tokens[-1].kind in (")", "]", "\\}")) if tokens else 0
        depth = max(depth, 0)
    return _without_double_brackets(tokens)


def _token(kind: str, part: str, spaced: bool) -> Token:
    if kind == "hex":
        return Token("number", part, Node("num", value=Fraction(int(part, 0))), spaced)
    if kind in ("grouped", "spaced", "points", "number"):
        plain = part.replace(",", "").replace(" ", "")
        return Token("number", part, decimal(plain.replace(".", "") if kind == "points" else plain), spaced)
    if kind in ("repeat", "endless"):
        return Token("number", part, _repeating(part, endless=kind == "endless"), spaced)
    if kind == "letters":
        word = part.casefold()
        return Token("separator", _SEPARATORS[word]) if word in _SEPARATORS else Token("letters", part, None, spaced)
    if kind == "foreign":
        return Token("word", part, None, spaced)
    if kind == "row":
        return Token("row", part, None, spaced)
    if kind == "dots":
        return Token("dots", part, None, spaced)
    return Token(_SIGNS.get(part, part), part, None, spaced)


def _words(content: str) -> list[Token]:
    """A marked word; "and" and "or" at its ends separate."""
    words = content.split()
    tokens: list[Token] = []
    while words and words[0].strip(",").casefold() in _SEPARATORS:
        tokens.append(Token("separator", _SEPARATORS[words.pop(0).strip(",").casefold()]))
    tail: list[Token] = []
    while words and words[-1].casefold() in _SEPARATORS:
        tail.append(Token("separator", _SEPARATORS[words.pop().casefold()]))
    return [*tokens, *([Token("word", " ".join(words), None, True)] if words else []), *tail]


def decimal(text: str) -> Node:
    """A number node of a plain decimal, exact. Raises TooComplex beyond `MOST_DIGITS` digits."""
    if len(text) > MOST_DIGITS:
        raise TooComplex(f"a number of more than {MOST_DIGITS} digits")
    places = None
    if "." in text and "e" not in text.lower():
        places = len(text) - text.index(".") - 1
    return Node("num", value=Fraction(text), places=places)


def _repeating(part: str, *, endless: bool) -> Node:
    """`0.1\\overline{6}`, or dots after digits that end in a block written at least twice."""
    if endless:
        whole, _, digits = re.sub(r"\s*(?:\.\.\.+|\\ldots)$", "", part).partition(".")
        block = re.search(r"(?P<block>\d{1,12}?)(?P=block)+$", digits)
        if block is None:
            raise Unreadable("dots after digits that do not repeat")
        prefix, repeated = digits[: block.start()], block["block"]
    else:
        whole, _, rest = part.partition(".")
        prefix, repeated = rest.split("\\")[0].strip(), re.sub(r"\D", "", rest.split("\\")[1])
    if len(part) > MOST_DIGITS:
        raise TooComplex(f"a number of more than {MOST_DIGITS} digits")
    scale = 10 ** len(prefix)
    value = (
        int(whole or 0) + Fraction(int(prefix or 0), scale) + Fraction(int(repeated), scale * (10 ** len(repeated) - 1))
    )
    return Node("num", value=value)


def _without_double_brackets(tokens: list[Token]) -> list[Token]:
    """`((x))` is `(x)`: hundreds of brackets around a number cost no depth."""
    partner: dict[int, int] = {}
    stack: list[int] = []
    closing = {")": "(", "}": "{"}
    for place, token in enumerate(tokens):
        if token.kind in ("(", "{"):
            stack.append(place)
        elif token.kind in closing:
            if not stack or tokens[stack[-1]].kind != closing[token.kind]:
                return tokens
            partner[stack.pop()] = place
    dropped = {
        p for a, b in partner.items() if tokens[a].kind == "(" and partner.get(a + 1) == b - 1 for p in (a + 1, b - 1)
        if tokens[a + 1].kind == "("
    }  # fmt: skip
    return [token for place, token in enumerate(tokens) if place not in dropped]
