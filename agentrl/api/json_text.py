"""Strict reading of JSON that a model wrote: nothing is repaired, and two readers can never disagree on the value."""

from __future__ import annotations

import json
import math
import re

from agentrl.api.types import JSON

DEEPEST = 100
"""Nesting beyond this is refused, far below where readers and comparisons give up."""

_BLANKS = re.compile(r"[ \t\r\n]*")
_FENCED = re.compile(r"(?P<mark>`{3,}|~{3,})[ \t]*(?:json)?[ \t]*\r?\n(?P<inside>.*?)\r?\n[ \t]*(?P=mark)", re.S | re.I)


class JSONTextError(ValueError):
    """Text that is not strict JSON. `too_complex`: it may be, but it is nested or long beyond what is read."""

    def __init__(self, message: str, *, too_complex: bool = False) -> None:
        super().__init__(message)
        self.too_complex = too_complex


def read_json(text: str) -> JSON:
    """The value of a text that is one JSON value and nothing else (RFC 8259), blanks around it apart.

    Refused beyond the grammar: a key given twice, a number beyond the floats, an integer of more digits than Python
    reads, nesting deeper than `DEEPEST`. NaN and Infinity are not JSON. Raises JSONTextError.

    >>> read_json('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    """
    value, end = read_json_at(text, 0)
    if end != len(text):
        raise JSONTextError(f"something follows the JSON value at character {end}")
    return value


def read_json_at(text: str, start: int) -> tuple[JSON, int]:
    """The JSON value that begins at `start`, blanks before it apart, and where it and the blanks behind it end."""
    start = skip_blanks(text, start)
    try:
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise JSONTextError(f"not JSON: {error.msg} at character {error.pos}") from error
    except RecursionError as error:
        raise JSONTextError(f"nested deeper than {DEEPEST}", too_complex=True) from error
    if _deeper(value, DEEPEST):
        raise JSONTextError(f"nested deeper than {DEEPEST}", too_complex=True)
    return value, skip_blanks(text, end)


def skip_blanks(text: str, start: int) -> int:
    """The place of the first character from `start` on that JSON does not take for a blank."""
    found = _BLANKS.match(text, start)
    return found.end() if found else start


def without_fence(text: str) -> str:
    """The inside of a text that is one fenced block, untagged or tagged JSON; any other text as it is.

    A byte order mark and blanks around the whole do not count.
    """
    text = text.removeprefix("\ufeff").strip()
    fenced = _FENCED.fullmatch(text)
    return fenced["inside"] if fenced else text


def _deeper(value: JSON, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _object(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    read = dict(pairs)
    if len(read) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise JSONTextError(f"the key {twice[:100]!r} is given twice")
    return read


def _constant(name: str) -> JSON:
    raise JSONTextError(f"{name} is not JSON")


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise JSONTextError(f"the number {digits[:40]} is beyond what a float holds")
    return value


def _integer(digits: str) -> int:
    try:
        return int(digits)
    except ValueError as error:
        raise JSONTextError(f"an integer of {len(digits)} digits", too_complex=True) from error


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_integer)
