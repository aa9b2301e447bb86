"""When two values, or two texts, are the same answer."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.api import DataError, same_text, same_value

NAN, INF = float("nan"), float("inf")

SAME: list[tuple[Any, Any]] = [
    (3, 3), (3, 3.0), (3.0, 3), (0.3, 0.1 + 0.2), (0.0, -0.0), (0.0, 1e-17), (NAN, NAN), (INF, INF), (-INF, -INF),
    (True, True), (None, None), ("a", "a"), (b"a", b"a"), ([1, [2]], (1, (2,))), ([[1, 2], [3, 4]], [(1, 2), (3, 4)]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({"1": 2}, {1: 2}), ({1: 2}, {1: 2}), ({1: 2}, {1.0: 2}), ({3, 1}, {1, 3}),
    ({"set": [1, 2]}, {2, 1}), ({"set": [1, 2]}, frozenset({1, 2})), ({"set": [1, 2]}, {"set": [1, 2]}),
    ({"__float__": "nan"}, NAN), ([{"__float__": "-inf"}], [-INF]), ({0.3}, {0.1 + 0.2}), (10**400, 10**400),
    (1.5, Decimal("1.5")), (0.25, Fraction(1, 4)), (1 + 2j, 1 + 2j), ({"a": None}, {"a": None}), ([], ()), ("", ""),
    ({(1, 2): 3}, {(1, 2): 3}),
]  # fmt: skip
DIFFERENT: list[tuple[Any, Any]] = [
    (1, True), (True, 1), (0, False), (1.0, True), (0, None), (False, None), ("3", 3), (3, "3"), (b"a", "a"), (1, 2),
    (1e308, INF), (INF, 1e308), (INF, -INF), (NAN, 1.0), (1.0, NAN), (0.0001, 0.0004), (1e-9, 2e-9),
    (10**20, 10**20 + 1),
    (10**400, 1e308), (1.0, 10**400), ([1, 2], [2, 1]), ([1, 2], [1, 2, 3]), ([1], {1}), ({1}, [1]), ({1, 2}, {1, 3}),
    ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), ({"a": 1}, {"a": 1, "b": 2}), ({"1": 2}, {True: 2}),
    ({1: 2}, {True: 2}),
    ({"a": 1}, {None: 1}), ({"a": 1}, [("a", 1)]), ({"set": [1, 2]}, [1, 2]), ({"set": [1]}, {1, 2}), ("a", "A"),
    ([], None), ("", None), ([[]], [None]), ({"__float__": "nan"}, "nan"), (1, [1]), ({1: 2}, {"1": 2}),
    ("a", ["a"]), (3, 3 + 1j),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "actual"), SAME)
def test_same(expected: Any, actual: Any) -> None:
    assert same_value(expected, actual)


@pytest.mark.parametrize(("expected", "actual"), DIFFERENT)
def test_different(expected: Any, actual: Any) -> None:
    assert not same_value(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual", "default", "loose", "exact", "unordered"),
    [
        (3, 3.0, True, True, False, True),
        (0.3, 0.1 + 0.2, True, True, False, True),
        (1.0, 1.0000005, False, True, False, False),
        (1000.0, 1000.0005, False, True, False, False),
        (1.0, 1.0002, False, False, False, False),
        (0.0001, 0.0004, False, False, False, False),
        ([1, 2, 2], [2, 1, 2], False, False, False, True),
        ([1, 2, 2], [2, 1, 1], False, False, False, False),
        ([[1, 2], [3]], [(3,), (2, 1)], False, False, False, True),
        ([1, 2], (1, 2), True, True, True, True),
        (NAN, NAN, True, True, True, True),
    ],
)
def test_the_comparisons_differ(
    expected: Any, actual: Any, default: bool, loose: bool, exact: bool, unordered: bool
) -> None:
    wanted = {"default": default, "float": loose, "exact": exact, "unordered": unordered}
    assert {name: same_value(expected, actual, compare=name) for name in wanted} == wanted


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(json_values)
def test_every_value_is_itself(value: Any) -> None:
    assert same_value(value, value)


@given(json_values, json_values)
def test_different_shapes_are_different(left: Any, right: Any) -> None:
    assert not same_value([left, right], left) or isinstance(left, list)
    assert not same_value({"only": left}, [right])


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-300), st.floats(1e-6, 0.5))
def test_a_relative_error_never_passes(value: float, error: float) -> None:
    other = value * (1 + error)
    assert same_value(value, other) == (abs(other - value) <= 1e-12 and math.isfinite(other))


def test_bottomless_values_are_no_answer() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert not same_value(deep, deep)


def test_unknown_comparisons_are_named() -> None:
    with pytest.raises(DataError, match="'flaot' for values; did you mean 'float'"):
        same_value(1, 1, compare="flaot")
    with pytest.raises(DataError, match="'token' for text; did you mean 'tokens'"):
        same_text("", "", compare="token")


@pytest.mark.parametrize(
    ("expected", "actual", "compares"),
    [
        ("1 2\n", "1 2\n", "tokens lines unordered_lines float exact"),
        ("1 2\n", "1  2", "tokens float"),
        ("1\n2\n", "1 2", "tokens float"),
        ("1\n2\n", "1 \n2\n\n\n", "tokens lines unordered_lines float"),
        ("1\r\n2\r\n", "1\n2\n", "tokens lines unordered_lines float"),
        ("1\n2\n", "2\n1\n", "unordered_lines"),
        ("1\n2\n3\n", "1\n", ""),
        ("1\n1\n2", "1\n2\n2", ""),
        ("yes", "YES", ""),
        ("1.0", "1e0", "float"),
        ("1.0", "1.0000001", "float"),
        ("0.0001", "0.0004", ""),
        ("1.0", "nan", ""),
        ("nan", "NaN", "float"),
        ("inf", "1e308", ""),
        ("1000", "1_000", ""),
        ("a 1.5", "a 1.50", "float"),
        ("a 1.5", "b 1.5", ""),
        ("", "", "tokens lines unordered_lines float exact"),
        ("", "\n", "tokens lines unordered_lines float"),
    ],
)
def test_text(expected: str, actual: str, compares: str) -> None:
    names = ("tokens", "lines", "unordered_lines", "float", "exact")
    assert [name for name in names if same_text(expected, actual, compare=name)] == compares.split()
