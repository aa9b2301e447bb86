"""Flaws that people make in small functions, as single changes to a right program."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping

_WEIGHTS: Mapping[str, float] = {
    "boundary": 4.0,
    "remainder": 1.0,
    "operator": 1.0,
    "off_by_one": 2.0,
    "function": 2.0,
    "edge_case": 4.0,
    "slice": 2.0,
    "variable": 0.5,
    "order": 2.0,
    "return": 0.5,
    "syntax": 0.5,
}
"""How often people make each kind, before it is known which of them a program has room for."""

EDGE = frozenset({"boundary", "off_by_one", "edge_case"})
"""Kinds that plain arguments hide: only an edge shows them."""
SUBTLE = frozenset(_WEIGHTS) - {"variable", "return", "syntax"}
"""Kinds that some arguments hide; the others show whenever the function is called."""

_CHANGES: tuple[tuple[str, str, str], ...] = (
    ("boundary", r" (>|<) (?=\d)", r" \1= "),
    ("boundary", r" (>|<)= (?=\d)", r" \1 "),
    ("remainder", r" == 0", " == 1"),
    ("remainder", r" == 1", " == 0"),
    ("operator", r" \+ (?!1\))", " - "),
    ("operator", r" - ", " + "),
    ("operator", r" \* ", " + "),
    ("operator", r" % (?=\w+$)", " // "),
    ("operator", r" \+= ", " -= "),
    ("off_by_one", r" \+ 1\)", ")"),
    ("off_by_one", r"in range\(1, ", "in range("),
    ("off_by_one", r"for x in (xs):", r"for x in \1[1:]:"),
    ("function", r"max\(", "min("),
    ("function", r"min\(", "max("),
    ("function", r"sum\(", "len("),
    ("function", r"upper\(", "lower("),
    ("function", r"lower\(", "upper("),
    ("edge_case", r", default=\d", ""),
    ("edge_case", r"\b(\w+) // (\d)", r"int(\1 / \2)"),
    ("edge_case", r"\babs\((\w+)\)", r"-\1"),
    ("edge_case", r"sorted\((\w+)\)", r"sorted(set(\1))"),
    ("edge_case", r"len\((\w+)\)", r"len(set(\1))"),
    ("edge_case", r"(replace\(.*)\)", r"\1, 1)"),
    ("edge_case", r"(upper|lower)\(", "capitalize("),
    ("edge_case", r"(?:max|min)\(a, b\)", "a"),
    ("slice", r"\[:(\d)\]", r"[\1:]"),
    ("slice", r"\[-(\d):\]", r"[\1:]"),
    ("slice", r"\[(\d):\]", r"[:\1]"),
    ("slice", r"\[::-1\]", ""),
    ("slice", r"\[::(\d)\]", r"[:\1]"),
    ("variable", r"\bfor x in", "for y in"),
    ("variable", r"\breturn \w+", "return x"),
    ("order", r"\ba - b\b", "b - a"),
    ("order", r"\bb - a\b", "a - b"),
    ("return", r"    return (.*)$", r"    print(\1)"),
    ("return", r"    return ", "    "),
    ("syntax", r"\):\n", ")\n"),
    ("syntax", r"[\])]$", ""),
)


def flawed(program: str) -> Iterator[tuple[str, str]]:
    """Every (kind of flaw, changed program) that one change makes; some changes leave the function right.

    >>> dict(flawed("def f(n):\\n    return n - 2"))["operator"]
    'def f(n):\\n    return n + 2'
    """
    for kind, pattern, replacement in _CHANGES:
        for match in re.finditer(pattern, program):
            yield kind, program[: match.start()] + match.expand(replacement) + program[match.end() :]


def draw_flaw(program: str, random_: random.Random) -> str:
    """One flawed variant: first the kind of flaw by its weight, then its place."""
    variants: dict[str, list[str]] = {}
    for kind, changed in flawed(program):
        variants.setdefault(kind, []).append(changed)
    kinds = sorted(variants)
    (kind,) = random_.choices(kinds, [_WEIGHTS[kind] for kind in kinds])
    return random_.choice(variants[kind])
