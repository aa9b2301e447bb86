"""Reading an answer: its normal spelling, and the typed values that it can mean."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from agentrl_verifiers.math_answer.extraction import closing_brace, unbox
from agentrl_verifiers.math_answer.grammar import parse
from agentrl_verifiers.math_answer.nodes import Node, TooComplex, Unreadable, number
from agentrl_verifiers.math_answer.normalization import CLOSE_TEXT, OPEN_TEXT, normalize
from agentrl_verifiers.math_answer.tokens import decimal
from agentrl_verifiers.math_answer.words import SCALES, number_in_words, roman_number, wording

MOST_CHARACTERS = 2000
"""Longer answers are too complex to be read."""

_PLAIN = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_CLOCK = re.compile(r"(?P<h>[01]?\d|2[0-4]):(?P<m>[0-5]\d)(?::(?P<s>[0-5]\d))?\s*(?P<half>[ap])?(?(half)\.?m\.?)", re.I)
_BASED = re.compile(
    r"\(?(?P<digits>[0-9A-Z]*\d[0-9A-Z]*|[A-F]{2,})\)?\s*_\s*\{?\s*(?P<base>\d\d?|two|eight|ten|sixteen)\s*\}?"
)
_IN_WORDS = {"two": 2, "binary": 2, "eight": 8, "ten": 10, "sixteen": 16}
_DIMENSIONS = re.compile(r"\d+(?:\s*(?:\\times|x|X|by)\s*\d+)+")
_RESIDUE = re.compile(
    r"(?P<value>.+?)\s*(?:\\pmod\s*(?:\{(?P<a>\d+)\}|(?P<b>\d+))|\(\s*(?:\\?mod|\\bmod)\s*(?P<c>\d+)\s*\))"
)
_SCALED = re.compile(
    rf"(?P<sign>[-$\x04]?)(?P<figure>\d[\d,]*(?:\.\d+)?)\s+(?P<scale>{'|'.join(SCALES)})(?P<rest>\s+\D*)?", re.I
)
_FRENCH = re.compile(r"(?P<a>[\]\[])(?P<inside>[^\[\]]+[,;][^\[\]]+)(?P<b>[\]\[])")


@dataclass(frozen=True, slots=True)
class Reading:
    """What an answer says. text: its normal spelling; nodes: its readings, the first the likeliest; empty when the
    text is no mathematics of this grammar; words: its wording.

    Example: `Reading(text="42", nodes=(number(42),), words="42")`.
    """

    text: str
    nodes: tuple[Node, ...]
    words: str

    @property
    def plain(self) -> str:
        """The text without the marks around words."""
        return re.sub(rf"[{OPEN_TEXT}{CLOSE_TEXT}]", "", self.text)

    @property
    def mathematical(self) -> bool:
        """Whether the text has commands of LaTeX, so that a fuller parser may know it."""
        return "\\" in self.text or "^" in self.text


def read(text: str, *, prose: bool = False) -> Reading:
    """Read an answer. prose: a final exclamation mark is no factorial. Raises TooComplex."""
    text = text.strip()
    if _PLAIN.fullmatch(text):
        return Reading(text, (decimal(text.replace(",", "")),), text)
    if len(text) > MOST_CHARACTERS:
        text = unbox(text)
        if len(text) > MOST_CHARACTERS:
            raise TooComplex(f"an answer of more than {MOST_CHARACTERS} characters")
    text = normalize(unbox(text))
    if prose:
        text = text.rstrip("!").rstrip()
    text = _unwrapped(text)
    nodes = _typed(text)
    if not nodes:
        try:
            nodes = (parse(_french_intervals(text)),)
        except Unreadable:
            nodes = ()
    return Reading(text, nodes, wording(text))


def balanced(text: str) -> bool:
    """Whether braces close; a text in which they do not is no gold."""
    place = 0
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if match[0] == "}" and match.start() >= place:
            return False
        if match[0] == "{" and match.start() >= place:
            end = closing_brace(text, match.start())
            if end is None:
                return False
            place = end + 1
    return True


def _unwrapped(text: str) -> str:
    """Without brackets of prose around a plain number or word: `(42)`."""
    match = re.fullmatch(rf"{OPEN_TEXT}?\(\s*([-+]?\d+(?:\.\d+)?|[A-J])\s*\){CLOSE_TEXT}?", text)
    if match:
        return match[1]
    return re.sub(r"^(?:\\approx|(?:approximately|about|roughly|around|nearly|exactly|only|just)(?=\s))\s*", "", text)


def _typed(text: str) -> tuple[Node, ...]:
    """Readings by form: what the grammar would take for something else."""
    plain = re.sub(rf"[{OPEN_TEXT}{CLOSE_TEXT}]", " ", text)
    plain = re.sub(r"\s+", " ", plain).strip()
    clock = _CLOCK.fullmatch(plain)
    if clock:
        parts = tuple(number(int(clock[key])) for key in ("h", "m", "s") if clock[key])
        return (Node("clock", parts, (clock["half"] or "").lower()),)
    based = _BASED.fullmatch(plain) or re.fullmatch(
        r"(?P<digits>\d+) ?(?:\(|in )?base[- ]?(?P<base>\d\d?|two|eight|ten|sixteen)\)?", plain.replace("_", "")
    )
    if based:
        return _based_number(based["digits"], based["base"])
    if _DIMENSIONS.fullmatch(plain):
        parts = tuple(number(int(part)) for part in re.findall(r"\d+", plain))
        product = parts[0]
        for part in parts[1:]:
            product = Node("mul", (product, part))
        return (Node("dims", parts), product) if "\\times" in plain else (Node("dims", parts),)
    residue = _RESIDUE.fullmatch(text)
    if residue:
        return _residue(residue["value"], int(residue["a"] or residue["b"] or residue["c"]))
    return _in_words(plain)


def _in_words(plain: str) -> tuple[Node, ...]:
    spelt = number_in_words(plain)
    if spelt is not None:
        return (number(spelt),)
    scaled = _SCALED.fullmatch(plain)
    if scaled:
        value = decimal(scaled["figure"].replace(",", "")).value * SCALES[scaled["scale"].lower()]
        node = number(-value if scaled["sign"] == "-" else value)
        unit = "dollar" if scaled["sign"] in ("$", "\x04") else (scaled["rest"] or "").strip()
        return (Node("quantity", (node,), unit),) if unit else (node,)
    if plain in ("infinity", "positive infinity", "+infinity"):
        return (Node("sym", name="oo"),)
    if plain in ("-infinity", "negative infinity", "minus infinity", "- infinity"):
        return (Node("neg", (Node("sym", name="oo"),)),)
    if wording(plain) == "no solution":
        return (Node("empty"),)
    roman = roman_number(plain)
    if roman is not None:
        return (Node("text", name=plain, value=Fraction(roman)),)
    if plain.casefold() in ("no", "yes") or (
        re.fullmatch(r"[A-Za-z]{3,}", plain) and not re.fullmatch(r"[a-z]?pi|[xyz]{3}", plain)
    ):
        # Three letters and more are a word, not a product.
        return (Node("text", name=wording(plain)),)
    return ()


def _based_number(digits: str, base: str) -> tuple[Node, ...]:
    radix = _IN_WORDS.get(base) or int(base)
    try:
        int(digits, radix)
    except ValueError:
        return ()
    return (Node("based", name=digits.lstrip("0") or "0", value=Fraction(radix)),)


def _residue(text: str, modulus: int) -> tuple[Node, ...]:
    try:
        node = parse(text)
    except Unreadable:
        return ()
    value = node.args[-1] if node.op == "rel" else node
    return (Node("residue", (value, number(modulus))),)


def _french_intervals(text: str) -> str:
    """`]0,1[` is an open interval."""
    if "[" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        opening, closing = "(" if match["a"] == "]" else "[", ")" if match["b"] == "[" else "]"
        return f"{opening}{match['inside']}{closing}"

    return _FRENCH.sub(replace, text)
