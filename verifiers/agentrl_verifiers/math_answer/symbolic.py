"""What runs in a worker process: numerical identity at high precision, and math-verify for what the grammar lacks.

Two expressions are equal when they agree to ninety digits at points where both have a real value: no rounding to a
fixed number of places, so tiny values stay different. Nothing that an answer says is evaluated as Python.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath  # type: ignore[import-untyped]
from latex2sympy2_extended.latex2sympy2 import ConversionConfig, latex2sympy  # type: ignore[import-untyped]
from math_verify import verify  # type: ignore[import-untyped]
from sympy import Expr  # type: ignore[import-untyped]

from agentrl.api import JSON
from agentrl_verifiers.math_answer.comparison import Exact
from agentrl_verifiers.math_answer.decision import decide_with
from agentrl_verifiers.math_answer.exact import value_of
from agentrl_verifiers.math_answer.nodes import Node, Undecided, Undefined
from agentrl_verifiers.math_answer.normalization import CLOSE_TEXT, OPEN_TEXT

_DIGITS = (60, 180)
_POINTS = 8
_INTEGER_ONLY = frozenset({"fact", "fact2"})


def decide(gold: str, texts: list[str], prose: bool) -> dict[str, JSON]:
    """The verdict on an answer as `{"reason", "detail"}`, with every means that this process has."""
    try:
        reason, detail = decide_with(gold, texts, prose, Numeric())
    except RecursionError:
        reason, detail = "too_complex", "nested too deeply"
    return {"reason": reason, "detail": detail}


class Numeric:
    """The oracle of a worker process."""

    def equal(self, left: Node, right: Node) -> bool:
        """See Oracle. `log` without a base is read as natural and as decimal; either will do."""
        try:
            return Exact().equal(left, right)
        except Undecided:
            pass
        logs = any(node.op == "call" and node.name == "log" for side in (left, right) for node in side.walk())
        return any(_identical(left, right, decimal_log=flag) for flag in ((False, True) if logs else (False,)))

    def point(self, node: Node) -> Fraction:
        """See Oracle."""
        try:
            return value_of(node)
        except Undecided:
            pass
        with mpmath.workdps(_DIGITS[0]):
            value = _Evaluation({}, decimal_log=False).value(node)
            if isinstance(value, mpmath.mpc):
                raise Undefined("an endpoint that is not real")
            return Fraction(mpmath.nstr(value, 40, strip_zeros=False, min_fixed=-400, max_fixed=400))

    def rounds_to(self, node: Node, gold: Node) -> bool:
        """See Oracle."""
        try:
            return Exact().rounds_to(node, gold)
        except Undecided:
            pass
        return bool(abs(self.point(node) - gold.value) * 2 * 10 ** (gold.places or 0) <= 1)

    def proportion(self, left: Node, right: Node) -> int:
        """See Oracle."""
        with mpmath.workdps(_DIGITS[0]):
            ratios = []
            for point in _points(left.symbols | right.symbols, whole=False):
                values = [_try(side, point, decimal_log=False, real=True) for side in (left, right)]
                if None in values or values[1] == 0:
                    continue
                ratios.append(values[0] / values[1])
            if len(ratios) < 3 or ratios[0] == 0:
                return 0
            if any(abs(ratio - ratios[0]) > abs(ratios[0]) * mpmath.mpf(10) ** -40 for ratio in ratios):
                return 0
            return 1 if ratios[0] > 0 else -1

    def other(self, gold: str, answer: str) -> bool:
        """See Oracle. math-verify reads both; what it cannot read to the end is not equal."""
        return _math_verify(gold, answer)


def _identical(left: Node, right: Node, *, decimal_log: bool) -> bool:
    symbols = left.symbols | right.symbols
    whole = any(
        n.op in _INTEGER_ONLY or n.name in ("binom", "gcd", "lcm", "mod") for s in (left, right) for n in s.walk()
    )
    if not symbols:
        return _agree(left, right, {}, decimal_log=decimal_log, real=False) is True
    for real in (True, False):
        found = [
            _agree(left, right, point, decimal_log=decimal_log, real=real)
            for point in _points(symbols, whole=whole, imaginary=not real)
        ]
        decided = [agreed for agreed in found if agreed is not None]
        if len(decided) >= 2:
            return all(decided)
    return False


def _points(symbols: frozenset[str], *, whole: bool, imaginary: bool = False) -> list[dict[str, Any]]:
    """Places to compare at: the first half positive, the rest of any sign; the same for every call."""
    generator = random.Random(20)
    points = []
    for place in range(_POINTS):
        point = {}
        for name in sorted(symbols):
            if whole:
                value: Any = mpmath.mpf(generator.randint(2, 12))
            else:
                value = (
                    mpmath.mpf(generator.randint(11, 299))
                    / 97
                    * (1 if place < _POINTS // 2 else generator.choice((-1, 1)))
                )
            point[name] = value + mpmath.mpc(0, 1) * generator.randint(3, 90) / 89 if imaginary else value
        points.append(point)
    # One point where all are negative, which the signs above may have missed.
    points.append({name: -abs(value) if not imaginary and not whole else value for name, value in points[0].items()})
    return points


def _agree(left: Node, right: Node, point: dict[str, Any], *, decimal_log: bool, real: bool) -> bool | None:
    """Whether both sides have the same value at a point; None where one has none."""
    values = []
    for digits in _DIGITS:
        with mpmath.workdps(digits):
            pair = [_try(side, point, decimal_log=decimal_log, real=real) for side in (left, right)]
            if None in pair:
                return None
            values.append((abs(pair[0] - pair[1]), max(abs(pair[0]), abs(pair[1]))))
    (coarse, _), (fine, size) = values
    with mpmath.workdps(30):
        if fine <= size * mpmath.mpf(10) ** -90:
            return True
        # A difference that shrinks with the precision is noise around zero; a tiny number does not shrink.
        return bool(fine < mpmath.mpf(10) ** -90 and fine < coarse * mpmath.mpf(10) ** -60)


def _try(node: Node, point: dict[str, Any], *, decimal_log: bool, real: bool) -> Any:
    try:
        value = _Evaluation(point, decimal_log=decimal_log, real=real).value(node)
    except (Undefined, ZeroDivisionError, ValueError, OverflowError, mpmath.libmp.NoConvergence):
        return None
    return value if mpmath.isfinite(value) else None


class _Evaluation:
    """The value of a node at a point, in the precision of the moment. real: a value that is not real is none."""

    def __init__(self, point: dict[str, Any], *, decimal_log: bool, real: bool = False) -> None:
        self._point = point
        self._decimal_log = decimal_log
        self._real = real

    def value(self, node: Node) -> Any:
        """Raises Undefined, and what mpmath raises outside a function's domain."""
        if node.op == "num":
            return mpmath.mpf(node.value.numerator) / node.value.denominator
        if node.op == "sym":
            return self._symbol(node.name)
        arguments = [self.value(argument) for argument in node.args]
        result = self._operation(node, arguments)
        if isinstance(result, mpmath.mpc) and result.imag == 0:
            result = result.real
        if self._real and isinstance(result, mpmath.mpc) and not any(isinstance(a, mpmath.mpc) for a in arguments):
            raise Undefined("not real")
        return result

    def _symbol(self, name: str) -> Any:
        constants = {"pi": mpmath.pi, "e": mpmath.e, "i": mpmath.mpc(0, 1)}
        if name in constants:
            return +constants[name]
        if name not in self._point:
            raise Undefined(name)
        return self._point[name]

    def _operation(self, node: Node, args: list[Any]) -> Any:
        operations: dict[str, Callable[..., Any]] = {
            "add": lambda *terms: mpmath.fsum(terms),
            "mul": lambda a, b: a * b,
            "div": lambda a, b: a / b,
            "neg": lambda a: -a,
            "percent": lambda a: a / 100,
            "deg": lambda a: a * mpmath.pi / 180,
            "pow": _power,
            "fact": mpmath.factorial,
            "fact2": mpmath.fac2,
        }
        if node.op in operations:
            return operations[node.op](*args)
        if node.op == "call":
            return self._call(node.name, args)
        raise Undefined(node.op)

    def _call(self, name: str, args: list[Any]) -> Any:
        if name == "log" and len(args) == 1:
            return mpmath.log10(args[0]) if self._decimal_log else mpmath.log(args[0])
        function = _FUNCTIONS.get(name)
        if function is None or len(args) != (2 if name in _OF_TWO else 1):
            raise Undefined(name)
        return function(*args)


_OF_TWO = frozenset({"root", "log_base", "binom", "mod", "max", "min"})
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sin": mpmath.sin, "cos": mpmath.cos, "tan": mpmath.tan, "cot": mpmath.cot, "sec": mpmath.sec, "csc": mpmath.csc,
    "arcsin": mpmath.asin, "arccos": mpmath.acos, "arctan": mpmath.atan, "arccot": mpmath.acot, "asin": mpmath.asin,
    "acos": mpmath.acos, "atan": mpmath.atan, "sinh": mpmath.sinh, "cosh": mpmath.cosh, "tanh": mpmath.tanh,
    "ln": mpmath.log, "lg": mpmath.log10, "exp": mpmath.exp, "abs": abs, "floor": mpmath.floor, "ceil": mpmath.ceil,
    "sqrt": mpmath.sqrt, "root": lambda x, n: _power(x, 1 / n), "log_base": lambda x, b: mpmath.log(x) / mpmath.log(b),
    "binom": mpmath.binomial, "mod": lambda a, b: a - b * mpmath.floor(a / b), "max": max, "min": min,
}  # fmt: skip


def _power(base: Any, exponent: Any) -> Any:
    """The real odd root of a negative number, else the principal value."""
    if isinstance(base, mpmath.mpf) and base < 0 and isinstance(exponent, mpmath.mpf) and exponent != int(exponent):
        for degree in (3, 5, 7, 9):
            times = exponent * degree
            if abs(times - mpmath.nint(times)) < mpmath.mpf(10) ** (5 - mpmath.mp.dps):
                return (-1) ** int(mpmath.nint(times)) * (-base) ** exponent
    return base**exponent


def _math_verify(gold: str, answer: str) -> bool:
    read = []
    for text in (gold, answer):
        latex = re.sub(f"{OPEN_TEXT}([^{CLOSE_TEXT}]*){CLOSE_TEXT}", r"\\text{\1}", text)
        try:
            parsed = latex2sympy(latex, conversion_config=ConversionConfig(lowercase_symbols=False))
            read.append(parsed.doit() if isinstance(parsed, Expr) else parsed)
        except Exception:  # its parser raises bare Exception for what it cannot read to the end
            return False
    try:
        equal = bool(verify(read[0], read[1], timeout_seconds=None))
        return equal and not _differ(read[0], read[1])
    except MemoryError:
        raise
    except Exception:  # sympy met something that it cannot handle: nothing says that they are equal
        return False


def _differ(left: Any, right: Any) -> bool:
    """Whether two constants of sympy differ, however small they are: math-verify rounds to six places."""
    if getattr(left, "free_symbols", True) or getattr(right, "free_symbols", True):
        return False
    values = [complex(side.evalf(30)) for side in (left, right)]
    return abs(values[0] - values[1]) > 1e-9 * max(abs(values[0]), abs(values[1]))
