"""The words of the `basic` tasks: what one clause of a task says, and the code that does it.

A task is a chain of one to three clauses. Each clause takes the current value (a number `n`, a list `xs`, a text `s`,
or at the start a pair `a, b`) and makes the next. A word of code is an expression, or the lines of a small loop that
leave their result in `r`. `{v}` is the variable of the current value; `{j}` and `{k}` are small constants, `{c}` and
`{d}` letters; the same letters stand in the phrase.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

VARIABLES: Mapping[str, str] = {"number": "n", "list": "xs", "text": "s", "pair": "a, b"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One clause and its code: `expression`, or `loop` lines whose result is `r`.

    Example: `Word(phrase="add {k}", expression="{v} + {k}")`.
    """

    phrase: str
    expression: str = "r"
    loop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Words that take and give the same types, so that one may stand for the other in a template.

    Example: `Kind(takes="list", gives="number", words=(Word(phrase="take the sum", expression="sum({v})"),))`.
    """

    takes: str
    gives: str
    words: tuple[Word, ...]


def _kind(takes: str, gives: str, rows: list[tuple[str, str]]) -> Kind:
    return Kind(takes=takes, gives=gives, words=tuple(Word(phrase=p, expression=e) for p, e in rows))


_CONDITIONS = [
    ("above {k}", "{x} > {k}"),
    ("below {k}", "{x} < {k}"),
    ("at least {k}", "{x} >= {k}"),
    ("at most {k}", "{x} <= {k}"),
    ("even", "{x} % 2 == 0"),
    ("odd", "{x} % 2 == 1"),
    ("a multiple of {k}", "{x} % {k} == 0"),
]
_ARITHMETIC = [
    ("add {k}", "{v} + {k}"),
    ("subtract {k}", "{v} - {k}"),
    ("multiply by {k}", "{v} * {k}"),
    ("divide by {k}", "{v} // {k}"),
    ("take modulo {k}", "{v} % {k}"),
]


def _where(test: str, name: str) -> str:
    return test.replace("{x}", name)


def _branches() -> list[tuple[str, str]]:
    changes = [("add {j}", "{v} + {j}"), ("subtract {j}", "{v} - {j}"), ("multiply by {j}", "{v} * {j}")]
    return [
        (f"if it is {said}, {change}", f"{code} if {_where(test, '{v}')} else {{v}}")
        for said, test in _CONDITIONS
        for change, code in changes
    ]


def _loops_over_numbers() -> tuple[Word, ...]:
    head = "for i in range(1, {v} + 1):"
    plain = [
        ("sum {k} * i for i from 1 to it", ("r = 0", head, "    r += {k} * i")),
        ("sum i * i for i from 1 to it", ("r = 0", head, "    r += i * i")),
    ]
    chosen = [
        (
            f"{verb} each i from 1 to it that is {said}",
            ("r = 0", head, f"    if {_where(test, 'i')}:", f"        r += {gain}"),
        )
        for said, test in _CONDITIONS
        for verb, gain in (("sum", "i"), ("count", "1"))
    ]
    return tuple(Word(phrase=phrase, loop=loop) for phrase, loop in plain + chosen)


def _loops_over_lists() -> tuple[Word, ...]:
    head = "for x in {v}:"
    plain = [
        ("start at {k} and add each item", ("r = {k}", head, "    r += x")),
        ("start at {k} and subtract each item", ("r = {k}", head, "    r -= x")),
        ("for each item multiply the total by {k} and add it", ("r = 0", head, "    r = r * {k} + x")),
    ]
    chosen = [
        (
            f"start at {{j}} and add each item that is {said}",
            ("r = {j}", head, f"    if {_where(test, 'x')}:", "        r += x"),
        )
        for said, test in _CONDITIONS
    ]
    return tuple(Word(phrase=phrase, loop=loop) for phrase, loop in plain + chosen)


KINDS: Mapping[str, Kind] = {
    "join": _kind(
        "pair",
        "number",
        [
            ("add a and b", "a + b"),
            ("subtract b from a", "a - b"),
            ("subtract a from b", "b - a"),
            ("multiply a and b", "a * b"),
            ("take the larger of a and b", "max(a, b)"),
            ("take the smaller of a and b", "min(a, b)"),
        ],
    ),
    "arithmetic": _kind("number", "number", _ARITHMETIC),
    "shape": _kind(
        "number",
        "number",
        [
            ("square it", "{v} * {v}"),
            ("negate it", "-{v}"),
            ("drop its sign", "abs({v})"),
            ("raise it to at least {k}", "max({v}, {k})"),
            ("limit it to at most {k}", "min({v}, {k})"),
        ],
    ),
    "branch": _kind("number", "number", _branches()),
    "ask": _kind("number", "truth", [(f"say if it is {said}", _where(test, "{v}")) for said, test in _CONDITIONS]),
    "keep": _kind(
        "list",
        "list",
        [(f"keep items that are {said}", f"[x for x in {{v}} if {_where(test, 'x')}]") for said, test in _CONDITIONS],
    ),
    "each": _kind(
        "list",
        "list",
        [
            ("add {k} to each", "[x + {k} for x in {v}]"),
            ("subtract {k} from each", "[x - {k} for x in {v}]"),
            ("multiply each by {k}", "[x * {k} for x in {v}]"),
            ("square each", "[x * x for x in {v}]"),
            ("negate each", "[-x for x in {v}]"),
        ],
    ),
    "order": _kind(
        "list",
        "list",
        [
            ("sort it", "sorted({v})"),
            ("reverse it", "{v}[::-1]"),
            ("take the first {m}", "{v}[:{m}]"),
            ("take the last {m}", "{v}[-{m}:]"),
            ("skip the first {m}", "{v}[{m}:]"),
            ("append {k}", "{v} + [{k}]"),
        ],
    ),
    "total": _kind(
        "list",
        "number",
        [
            ("take the sum", "sum({v})"),
            ("count the items", "len({v})"),
            ("take the largest or {k} if empty", "max({v}, default={k})"),
            ("take the smallest or {k} if empty", "min({v}, default={k})"),
            ("count the number {k}", "{v}.count({k})"),
        ],
    ),
    "change": _kind(
        "text",
        "text",
        [
            ("make it upper case", "{v}.upper()"),
            ("make it lower case", "{v}.lower()"),
            ("reverse it", "{v}[::-1]"),
            ("repeat it {m} times", "{v} * {m}"),
        ],
    ),
    "slice": _kind(
        "text",
        "text",
        [
            ("take the first {m}", "{v}[:{m}]"),
            ("take the last {m}", "{v}[-{m}:]"),
            ("skip the first {m}", "{v}[{m}:]"),
            ("take every {m}th letter", "{v}[::{m}]"),
        ],
    ),
    "letter": _kind(
        "text",
        "text",
        [
            ('replace "{c}" by "{d}"', '{v}.replace("{c}", "{d}")'),
            ('remove "{c}"', '{v}.replace("{c}", "")'),
            ('append "{c}"', '{v} + "{c}"'),
            ('put "{c}" in front', '"{c}" + {v}'),
        ],
    ),
    "measure": _kind(
        "text",
        "number",
        [
            ("count the letters", "len({v})"),
            ('count the letter "{c}"', '{v}.count("{c}")'),
            ('find "{c}"', '{v}.find("{c}")'),
        ],
    ),
    "climb": Kind(takes="number", gives="number", words=_loops_over_numbers()),
    "fold": Kind(takes="list", gives="number", words=_loops_over_lists()),
}
