"""Plain data on the wire: exact types only, as JSON text with marks for what JSON lacks.

The side that runs a program reduces values with `pack`; the trusted side rebuilds them with `unpack`, which makes
nothing but built-in types, so that no method of a program's classes ever runs there.

    null, true, 1, 0.5, "text", [..]     themselves (integers up to 64 bits)
    {"i": "ff"}                          a longer integer, in hexadecimal: no limit of digits, no quadratic time
    {"t": [..]} {"s": [..]} {"z": [..]}  tuple, set, frozenset
    {"d": [[key, value], ..]}            dict
    {"b": "text"}                        bytes, as Latin-1
    {"x": ["Decimal", ..]}               a value of a few types of the standard library, by its arguments
    {"r": ..}                            a reference, when the caller of `pack` gives `refer`
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

DEEPEST = 100
"""Nesting beyond this is refused: Python's own recursion limit must not decide it."""

_SMALL = 1 << 63
_LONGEST_RATIO = 1 << 12  # bits; reducing a fraction takes quadratic time
_MOST_COLLISIONS = 100
_ATOMS = frozenset({type(None), bool, str, float})

# Held here, because a program may replace the names in the modules it shares with us.
_encode = json.JSONEncoder(ensure_ascii=True, check_circular=False, separators=(",", ":")).encode
_decoder = json.JSONDecoder


class NotPlain(TypeError):
    """A value that has no plain form; the text names its type."""


def pack(value: object, refer: Callable[[object], object] | None = None) -> Any:
    """Reduce `value` to what JSON holds. `refer` turns what is not plain into a mark; without it that is NotPlain.

    Values of subclasses become the base value, read with the base type's own methods. NumPy scalars and arrays become
    Python numbers and lists.
    """
    return _pack(value, refer, DEEPEST)


def dumps(packed: Any) -> str:
    """Packed data as ASCII text of one line."""
    return _encode(packed)


def loads(text: str | bytes, refer: Callable[[Any], object] | None = None) -> Any:
    """Rebuild a value from text that may be forged. Raises ValueError for anything that `pack` would not write."""
    try:
        return _decoder(object_hook=lambda mark: _rebuild(mark, refer)).decode(
            text if isinstance(text, str) else text.decode("ascii")
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except (TypeError, ArithmeticError) as error:
        raise ValueError(str(error)) from None


def parse(text: bytes) -> Any:
    """JSON without marks, from text that may be forged. Raises ValueError."""
    try:
        return _decoder().decode(text.decode("ascii"))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _pack(value: object, refer: Callable[[object], object] | None, depth: int) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is int:
        return _pack_int(value)  # type: ignore[arg-type]
    if depth == 0:
        raise NotPlain("a value that is nested too deeply or contains itself")
    if kind is list:
        return _pack_all(value, refer, depth)
    if kind is tuple:
        return {"t": _pack_all(value, refer, depth)}
    if kind is dict:
        items: Any = value.items()  # type: ignore[attr-defined]
        return {"d": [[_pack(key, refer, depth - 1), _pack(item, refer, depth - 1)] for key, item in items]}
    return _pack_other(value, refer, depth)


def _pack_all(values: Any, refer: Callable[[object], object] | None, depth: int) -> list[Any]:
    kinds = set(map(type, values))
    if kinds <= _ATOMS:
        return list(values)
    if kinds == {int} and min(values) >= -_SMALL and max(values) < _SMALL:
        return list(values)
    return [_pack(item, refer, depth - 1) for item in values]


def _pack_int(value: int) -> Any:
    return value if -_SMALL <= value < _SMALL else {"i": format(value, "x")}


def _pack_other(value: object, refer: Callable[[object], object] | None, depth: int) -> Any:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return _pack_int(int.__index__(value))
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, bytes | bytearray):
        return {"b": bytes(value).decode("latin-1")}
    if isinstance(value, list):
        return _pack_all(list(list.__iter__(value)), refer, depth)
    if isinstance(value, tuple):
        return {"t": _pack_all(tuple(tuple.__iter__(value)), refer, depth)}
    if isinstance(value, dict):
        plain = {key: dict.__getitem__(value, key) for key in dict.__iter__(value)}
        return _pack(plain, refer, depth)
    if isinstance(value, set):
        return {"s": _pack_all(list(set.__iter__(value)), refer, depth)}
    if isinstance(value, frozenset):
        return {"z": _pack_all(list(frozenset.__iter__(value)), refer, depth)}
    made = _pack_library(value)
    if made is not None:
        return {"x": _pack_all(made, refer, depth)}
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return _pack(value.tolist(), refer, depth - 1)
    if refer is None:
        raise NotPlain(f"a value of type {type(value).__name__}, which is no plain data")
    return {"r": refer(value)}


def _pack_library(value: Any) -> list[Any] | None:
    """The arguments that rebuild a value of the standard library's number and time types."""
    kind = type(value)
    name = kind.__name__
    if kind is complex:
        return [name, value.real, value.imag]
    if kind is range:
        return [name, value.start, value.stop, value.step]
    if kind.__module__ == "decimal" and name == "Decimal":
        return [name, str(value)]
    if kind.__module__ == "fractions" and name == "Fraction":
        return [name, value.numerator, value.denominator]
    if kind.__module__ == "collections" and name == "deque":
        return [name, list(value), value.maxlen]
    if kind.__module__ == "datetime":
        if name == "timedelta":
            return [name, value.days, value.seconds, value.microseconds]
        if name in ("date", "datetime", "time") and getattr(value, "tzinfo", None) is None:
            return [name, value.isoformat()]
    return None


def _rebuild(mark: dict[str, Any], refer: Callable[[Any], object] | None) -> object:
    if len(mark) != 1:
        raise ValueError("an unknown mark")
    ((name, body),) = mark.items()
    if name == "i" and isinstance(body, str):
        return int(body, 16)
    if name == "b" and isinstance(body, str):
        return body.encode("latin-1")
    if name == "r" and refer is not None:
        return refer(body)
    if not isinstance(body, list):
        raise ValueError(f"a malformed mark '{name}'")
    if name == "t":
        return tuple(body)
    if name in ("s", "z"):
        _check_hashes(body)
        return set(body) if name == "s" else frozenset(body)
    if name == "d":
        _check_hashes([key for key, _ in body])
        return dict(body)
    if name == "x" and body and isinstance(body[0], str):
        return _rebuild_library(body[0], body[1:])
    raise ValueError(f"an unknown mark '{name}'")


def _check_hashes(keys: list[Any]) -> None:
    """Refuse keys made to collide: a table of them takes quadratic time on the side that rebuilds it."""
    if len(keys) - len(set(map(hash, keys))) > _MOST_COLLISIONS:
        raise ValueError("too many keys with the same hash")


def _rebuild_library(name: str, arguments: list[Any]) -> object:
    # Imported here: few values need them, and every fork pays for what is loaded.
    if name == "complex":
        return complex(*map(float, arguments))
    if name == "range":
        return range(*arguments)
    if name == "Decimal":
        from decimal import Decimal

        return Decimal(str(arguments[0]))
    if name == "Fraction":
        from fractions import Fraction

        if any(type(part) is not int or part.bit_length() > _LONGEST_RATIO for part in arguments):
            raise ValueError("a malformed fraction")
        return Fraction(*arguments)
    if name == "deque":
        from collections import deque

        return deque(*arguments)
    import datetime

    if name == "timedelta":
        return datetime.timedelta(*arguments)
    kinds: dict[str, Any] = {"date": datetime.date, "datetime": datetime.datetime, "time": datetime.time}
    kind = kinds.get(name)
    if kind is None or len(arguments) != 1:
        raise ValueError(f"an unknown type '{name}'")
    made: object = kind.fromisoformat(arguments[0])
    return made
