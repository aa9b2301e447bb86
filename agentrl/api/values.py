"""Comparison of plain data and of printed text, by one set of rules for every verifier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from agentrl.api.errors import DataError, nearest
from agentrl.api.types import JSON

VALUE_COMPARES = ("default", "float", "exact", "unordered")
TEXT_COMPARES = ("tokens", "lines", "unordered_lines", "float", "exact")

_DEEPEST = 200


def same_value(expected: object, actual: object, *, compare: str = "default") -> bool:
    """Whether `actual`, plain data that a program returned, is the `expected` value.

    Always: a bool is only a bool, None only None; text and bytes are compared exactly and are not each other; integers
    are compared exactly; nan is nan, an infinity only itself, -0.0 is 0.0; tuples and lists are alike at every depth;
    dicts and sets have no order. `expected` may come from JSON: `{"__float__": "nan"}` stands for a number that JSON
    lacks, `{"set": [1, 2]}` also for a set, and a text key also for the integer it spells.

    compare: `default` lets float noise pass (relative 1e-9) and 3.0 stand for 3; `float` lets an error of 1e-6 pass,
    relative above 1 and absolute below; `exact` lets no error pass and 3.0 is not 3; `unordered` is `default` with
    lists compared as multisets.

    Raises DataError for an unknown `compare`.

    >>> same_value(0.3, 0.1 + 0.2), same_value(1, True), same_value([[1, 2]], [(1, 2)])
    (True, False, True)
    """
    if compare not in VALUE_COMPARES:
        raise DataError(f"unknown compare '{compare}' for values{nearest(compare, VALUE_COMPARES)}")
    return _same(expected, actual, compare, _DEEPEST)


def same_text(expected: str, actual: str, *, compare: str = "tokens") -> bool:
    """Whether a program printed the `expected` text. Case matters.

    compare: `tokens` (blank-separated words in order), `lines` (lines in order, without blanks at their ends and blank
    lines at the end), `unordered_lines` (the same lines in any order), `float` (tokens; numbers within 1e-6, relative
    above 1 and absolute below), `exact` (every character). Raises DataError for an unknown `compare`.

    >>> same_text("1\\n2\\n", "1 2"), same_text("1\\n2\\n", "1 2", compare="lines")
    (True, False)
    """
    if compare == "tokens":
        return expected.split() == actual.split()
    if compare == "lines":
        return _lines(expected) == _lines(actual)
    if compare == "unordered_lines":
        return sorted(_lines(expected)) == sorted(_lines(actual))
    if compare == "float":
        left, right = expected.split(), actual.split()
        return len(left) == len(right) and all(map(_same_token, left, right))
    if compare == "exact":
        return expected == actual
    raise DataError(f"unknown compare '{compare}' for text{nearest(compare, TEXT_COMPARES)}")


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def _same_token(expected: str, actual: str) -> bool:
    if expected == actual:
        return True
    left, right = _number(expected), _number(actual)
    return left is not None and right is not None and _same_number(left, right, "float")


def _number(token: str) -> float | None:
    # float() also takes "1_000", which no problem statement means.
    if "_" in token:
        return None
    try:
        return float(token)
    except ValueError:
        return None


def _same(expected: object, actual: object, compare: str, depth: int) -> bool:
    if depth == 0:
        return False
    if isinstance(expected, Mapping):
        return _same_mapping(expected, actual, compare, depth)
    if isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or len(expected) != len(actual):
            return False
        if compare == "unordered":
            return _same_multiset(list(expected), list(actual), compare, depth)
        return all(_same(left, right, compare, depth - 1) for left, right in zip(expected, actual, strict=True))
    if isinstance(expected, set | frozenset):
        return isinstance(actual, set | frozenset) and _same_multiset(list(expected), list(actual), compare, depth)
    if isinstance(expected, bool) or isinstance(actual, bool):
        return isinstance(expected, bool) and isinstance(actual, bool) and expected == actual
    if _is_number(expected) and _is_number(actual):
        return _same_number(expected, actual, compare)
    return type(expected) is type(actual) and expected == actual


def _same_mapping(expected: Mapping[object, JSON], actual: object, compare: str, depth: int) -> bool:
    if expected.keys() == {"__float__"} and not isinstance(actual, Mapping):
        return _same(float(expected["__float__"]), actual, compare, depth)
    if expected.keys() == {"set"} and isinstance(actual, set | frozenset) and isinstance(expected["set"], list):
        return _same_multiset(expected["set"], list(actual), compare, depth)
    if not isinstance(actual, Mapping) or len(expected) != len(actual):
        return False
    keys = {key: key for key in actual}
    spelt = {str(key): key for key in actual if type(key) is int}
    for key, value in expected.items():
        if key in keys:
            found = keys[key]
        elif isinstance(key, str) and key in spelt:
            found = spelt[key]
        else:
            return False
        # As a key True equals 1, but a bool is only a bool here too.
        if isinstance(found, bool) != isinstance(key, bool):
            return False
        if not _same(value, actual[found], compare, depth - 1):
            return False
    return True


def _same_multiset(expected: list[object], actual: list[object], compare: str, depth: int) -> bool:
    """Whether the elements can be paired; greedy, which is right as long as no two expected elements nearly agree."""
    if len(expected) != len(actual):
        return False
    left = list(actual)
    for element in expected:
        for index, other in enumerate(left):
            if _same(element, other, compare, depth - 1):
                del left[index]
                break
        else:
            return False
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | complex | Decimal | Fraction)


def _same_number(expected: JSON, actual: JSON, compare: str) -> bool:
    if isinstance(expected, int) and isinstance(actual, int):
        return expected == actual
    if compare == "exact":
        return type(expected) is type(actual) and (expected == actual or (_is_nan(expected) and _is_nan(actual)))
    if isinstance(expected, complex) or isinstance(actual, complex):
        left, right = complex(expected), complex(actual)
        return _close(left.real, right.real, compare) and _close(left.imag, right.imag, compare)
    return _close(expected, actual, compare)


def _is_nan(value: JSON) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _close(expected: JSON, actual: JSON, compare: str) -> bool:
    try:
        left, right = float(expected), float(actual)
    except OverflowError:
        # An integer beyond the floats: only itself.
        return bool(expected == actual)
    if math.isnan(left) or math.isnan(right):
        return math.isnan(left) and math.isnan(right)
    if math.isinf(left) or math.isinf(right):
        return left == right
    if compare == "float":
        return abs(left - right) <= 1e-6 * max(1.0, abs(left))
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12)
