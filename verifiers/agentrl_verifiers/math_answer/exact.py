"""Exact arithmetic with integers and fractions, bounded before every step. No floats, no sympy."""

from __future__ import annotations

import math
from fractions import Fraction

from agentrl_verifiers.math_answer.nodes import Node, TooComplex, Undecided, Undefined

MOST_BITS = 1 << 15
MOST_EXPONENT = 10**15
"""Exponents above this are refused: no precision that an answer deserves would decide them."""
_MOST_FACTORIAL = 3000


def value_of(node: Node) -> Fraction:
    """The rational value of an expression.

    Raises Undecided when it has symbols or is irrational, Undefined when it has no value, TooComplex when it is
    beyond every sensible bound.
    """
    if node.op == "num":
        return node.value
    if node.op in ("sym", "dots", "text", "deg", "pm", "mp"):
        raise Undecided(node.op)
    arguments = [value_of(argument) for argument in node.args] if node.op != "call" or node.name != "mod" else []
    if node.op == "call":
        return _call(node, arguments)
    if node.op == "add":
        return _bounded(sum(arguments, Fraction(0)))
    if node.op == "mul":
        return _bounded(arguments[0] * arguments[1])
    if node.op == "neg":
        return -arguments[0]
    if node.op == "percent":
        return arguments[0] / 100
    if node.op == "div":
        if arguments[1] == 0:
            raise Undefined("a division by zero")
        return _bounded(arguments[0] / arguments[1])
    if node.op == "pow":
        return _power(*arguments)
    if node.op in ("fact", "fact2"):
        return _factorial(arguments[0], 1 if node.op == "fact" else 2)
    raise Undecided(node.op)


def check_size(node: Node) -> None:
    """Raise TooComplex for a tower, factorial or binomial somewhere inside that nobody can evaluate."""
    for inner in node.walk():
        if inner.op in ("pow", "fact", "fact2") or (inner.op == "call" and inner.name == "binom"):
            _check_growth(inner)


def _check_growth(node: Node) -> None:
    growing = node.args[-1] if node.op == "pow" else node.args[0]
    try:
        value = value_of(growing)
    except (Undecided, Undefined):
        return
    except TooComplex:
        raise TooComplex("a tower of powers") from None
    if abs(value) > (MOST_EXPONENT if node.op == "pow" else 10**6):
        raise TooComplex("an exponent or factorial without bounds")


def _bounded(value: Fraction) -> Fraction:
    if value.numerator.bit_length() + value.denominator.bit_length() > 2 * MOST_BITS:
        raise TooComplex("a number without bounds")
    return value


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        return _root_power(base, exponent)
    if base == 0 and exponent <= 0:
        if exponent == 0:
            return Fraction(1)
        raise Undefined("a division by zero")
    if base in (0, 1, -1):
        return base ** (abs(int(exponent)) % 2 + 2)
    if abs(exponent) > MOST_EXPONENT:
        raise TooComplex("an exponent without bounds")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if bits * abs(exponent) > MOST_BITS:
        # Too long to write out, not too large to compare: a worker does it with rounding far below any difference.
        raise Undecided("a long power")
    return base ** int(exponent)


def _root_power(base: Fraction, exponent: Fraction) -> Fraction:
    degree = exponent.denominator
    if degree > 64 or abs(exponent.numerator) > 64:
        raise Undecided("a root")
    root = rational_root(base, degree)
    return _power(root, Fraction(exponent.numerator))


def rational_root(value: Fraction, degree: int) -> Fraction:
    """The real root of a rational number when it is rational. Raises Undecided otherwise."""
    if value < 0 and degree % 2 == 0:
        raise Undecided("an even root of a negative number")
    sign = -1 if value < 0 else 1
    return sign * Fraction(_integer_root(abs(value.numerator), degree), _integer_root(value.denominator, degree))


def _integer_root(value: int, degree: int) -> int:
    if degree == 2:
        root = math.isqrt(value)
    else:
        low, high = 0, 1 << (value.bit_length() // degree + 1)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if middle**degree <= value else (low, middle - 1)
        root = low
    if root**degree != value:
        raise Undecided("an irrational root")
    return root


def _factorial(value: Fraction, step: int) -> Fraction:
    if value.denominator != 1 or value < 0:
        raise Undecided("a factorial of no natural number")
    if value > 10**6:
        raise TooComplex("a factorial without bounds")
    if value > _MOST_FACTORIAL:
        raise Undecided("a long factorial")
    return Fraction(math.factorial(int(value)) if step == 1 else math.prod(range(int(value), 0, -2)))


def _call(node: Node, arguments: list[Fraction]) -> Fraction:
    name = node.name
    if name == "mod":
        return _modulo(*node.args)
    if name in ("sqrt", "root"):
        degree = arguments[1] if name == "root" else Fraction(2)
        if degree.denominator != 1 or not 1 <= degree <= 64:
            raise Undecided("an odd root")
        return rational_root(arguments[0], int(degree))
    if name in ("abs", "floor", "ceil"):
        value = arguments[0]
        return abs(value) if name == "abs" else Fraction(math.floor(value) if name == "floor" else math.ceil(value))
    if name in ("max", "min") and arguments:
        return max(arguments) if name == "max" else min(arguments)
    whole = all(argument.denominator == 1 for argument in arguments)
    if name in ("gcd", "lcm") and whole and arguments:
        numbers = [int(argument) for argument in arguments]
        return Fraction(math.gcd(*numbers) if name == "gcd" else math.lcm(*numbers))
    if name == "binom" and whole and len(arguments) == 2 and arguments[0] >= 0:
        if arguments[0] > 10**6:
            raise TooComplex("a binomial without bounds")
        if arguments[0] > _MOST_FACTORIAL:
            raise Undecided("a long binomial")
        return Fraction(math.comb(int(arguments[0]), int(arguments[1])) if arguments[1] >= 0 else 0)
    raise Undecided(name)


def _modulo(left: Node, right: Node) -> Fraction:
    modulus = value_of(right)
    if modulus == 0:
        raise Undefined("a remainder by zero")
    if left.op == "pow" and modulus.denominator == 1:
        base, exponent = value_of(left.args[0]), value_of(left.args[1])
        if base.denominator == 1 and exponent.denominator == 1 and exponent >= 0:
            return Fraction(pow(int(base), int(exponent), int(modulus)))
    return value_of(left) % modulus
