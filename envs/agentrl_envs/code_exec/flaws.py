"""Flaws that people make in small functions, as single changes to a right program."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

_CHANGES: tuple[tuple[str, str, str], ...] = (
    ("boundary", r" (>|<) (?=\d)", r" \1= "),
    ("boundary", r" (>|<)= (?=\d)", r" \1 "),
    ("remainder", r" == 0", " == 1"),
    ("remainder", r" == 1", " == 0"),
    ("operator", r" \+ (?!1\))", " - "),
    ("operator", r" - ", " + "),
    ("operator", r" \* ", " + "),
    ("operator", r" // ", " / "),
    ("operator", r" % (?=\w+$)", " // "),
    ("operator", r" \+= ", " -= "),
    ("off_by_one", r" \+ 1\)", ")"),
    ("off_by_one", r"range\(1, ", "range("),
    ("function", r"max\(", "min("),
    ("function", r"min\(", "max("),
    ("function", r"sum\(", "len("),
    ("function", r"upper\(", "lower("),
    ("function", r"lower\(", "upper("),
    ("edge_case", r", default=\d", ""),
    ("slice", r"\[:(\d)\]", r"[\1:]"),
    ("slice", r"\[-(\d):\]", r"[:\1]"),
    ("slice", r"\[(\d):\]", r"[:\1]"),
    ("slice", r"\[::-1\]", ""),
    ("variable", r"\bfor x in", "for y in"),
    ("variable", r"\breturn \w+", "return x"),
    ("order", r"\ba - b\b", "b - a"),
    ("order", r"\bb - a\b", "a - b"),
    ("return", r"    return (.*)$", r"    print(\1)"),
    ("return", r"    return ", "    "),
    ("syntax", r"\):\n", ")\n"),
    ("syntax", r"[\])]$", ""),
)

SUBTLE = frozenset({"boundary", "remainder", "off_by_one", "edge_case", "slice", "order", "operator"})
"""Flaws that some arguments hide; the others show at once."""


def flawed(program: str) -> Iterator[tuple[str, str]]:
    """Every (name of the flaw, changed program) that one change makes; the change may still leave the function right.

    >>> dict(flawed("def f(n):\\n    return n - 2"))["operator"]
    'def f(n):\\n    return n + 2'
    """
    for name, pattern, replacement in _CHANGES:
        for match in re.finditer(pattern, program):
            yield name, program[: match.start()] + match.expand(replacement) + program[match.end() :]


def draw_flaw(program: str, random_: random.Random) -> str:
    """One flawed variant: first the kind of flaw, then its place, each with equal chance."""
    variants: dict[str, list[str]] = {}
    for name, changed in flawed(program):
        variants.setdefault(name, []).append(changed)
    return random_.choice(variants[random_.choice(sorted(variants))])
