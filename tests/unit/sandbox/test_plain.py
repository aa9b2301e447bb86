"""The wire form of plain data, also when somebody else wrote it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentrl.sandbox.inside import plain

atoms = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.binary(max_size=5)
    | st.text(st.characters(codec=None), max_size=5) | st.decimals(allow_nan=False) | st.fractions() | st.dates()
    | st.datetimes() | st.timedeltas() | st.complex_numbers(allow_nan=False)
)  # fmt: skip
keys = st.recursive(atoms, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=3)
values = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(keys, inner, max_size=3)
        | st.sets(keys, max_size=3)
        | st.frozensets(keys, max_size=3)
    ),
    max_leaves=12,
)


def same_kind(left: object, right: object) -> bool:
    """Equal, and of equal types all the way down."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        assert isinstance(right, list | tuple)
        return len(left) == len(right) and all(map(same_kind, left, right))
    if isinstance(left, dict):
        assert isinstance(right, dict)
        return same_kind(list(left.items()), list(right.items()))
    return left == right


@settings(max_examples=300, deadline=None)
@given(values)
def test_plain_data_survives(value: object) -> None:
    text = plain.dumps(plain.pack(value))
    assert text.isascii()
    assert "\n" not in text
    assert same_kind(plain.loads(text), value)


def test_the_edges_of_numbers_survive() -> None:
    numbers = [2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 10**5000, float("inf"), float("-inf"), -0.0, 5e-324]
    assert plain.loads(plain.dumps(plain.pack(numbers))) == numbers
    assert str(plain.loads(plain.dumps(plain.pack(float("nan"))))) == "nan"


def test_subclasses_become_their_base_without_running_their_code() -> None:
    class Trap(list):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            raise AssertionError("ran")

        __eq__ = __len__ = __getitem__ = __iter__  # type: ignore[assignment]

    class Number(int):
        def __int__(self) -> Any:
            raise AssertionError("ran")

        __index__ = __repr__ = __str__ = __int__

    packed = plain.loads(plain.dumps(plain.pack([Trap([1]), Number(3)])))
    assert packed == [[1], 3]
    assert [type(item) for item in packed] == [list, int]


@pytest.mark.parametrize(
    "text",
    [
        "", "[", "nul", "{}", '{"t": 1}', '{"i": "zz"}', '{"i": 5}', '{"d": [[1]]}', '{"d": [[[], 1]]}', '{"s": [[1]]}',
        '{"x": []}', '{"x": ["os.system", "ls"]}', '{"x": ["date", "no"]}', '{"x": ["Fraction", 1, 0]}', '{"r": 0}',
        '{"a": 1, "b": 2}', '{"b": "\u0100"}', "1" * 5000, "[" * 100000, '{"x": ["Decimal", "x"]}',
        '{"x": ["range", 1, 2, 0]}', '{"x": ["complex", "a"]}', '{"x": ["Fraction", 1.5, 2]}', '{"x": ["deque", 1]}',
    ],
)  # fmt: skip
def test_what_pack_would_not_write_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any ValueError, and nothing else
        plain.loads(text)


@pytest.mark.parametrize(
    "forged",
    [
        {"s": [n * ((1 << 61) - 1) for n in range(1, 30000)]},
        {"d": [[n * ((1 << 61) - 1), 0] for n in range(1, 30000)]},
        {"s": [{"t": [n * ((1 << 61) - 1)]} for n in range(1, 30000)]},
        {"x": ["Fraction", {"i": "f" * 500000}, {"i": "e" * 499999 + "1"}]},
    ],
    ids=["set", "dict", "tuples", "fraction"],
)
def test_data_made_to_take_quadratic_time_is_refused_at_once(forged: object) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=r"hash|fraction"):
        plain.loads(json.dumps(forged))
    assert time.process_time() - began < 2


def test_references_need_somebody_to_resolve_them() -> None:
    thing = object()
    text = plain.dumps(plain.pack([thing], lambda value: [id(value) == id(thing)]))
    assert plain.loads(text, lambda mark: ("resolved", mark)) == [("resolved", [True])]
    with pytest.raises(ValueError, match=r"malformed|unknown"):
        plain.loads(text)
