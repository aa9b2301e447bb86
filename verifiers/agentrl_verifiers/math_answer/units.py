"""Units of measurement: their spellings, and what converts into what."""

from __future__ import annotations

import re
from fractions import Fraction

_LENGTH, _MASS, _TIME, _MONEY, _ANGLE = "length", "mass", "time", "money", "angle"
_KNOWN: dict[str, tuple[str, Fraction]] = {}
Dimension = tuple[tuple[str, int], ...]


def _define(dimension: str, factor: str | int, spellings: str) -> None:
    for spelling in spellings.split():
        _KNOWN[spelling] = (dimension, Fraction(factor))


_define(_LENGTH, 1, "m meter meters metre metres")
_define(_LENGTH, "0.01", "cm centimeter centimeters centimetre centimetres cms")
_define(_LENGTH, "0.001", "mm millimeter millimeters millimetre millimetres")
_define(_LENGTH, 1000, "km kilometer kilometers kilometre kilometres kms")
_define(_LENGTH, "0.0254", "inch inches in")
_define(_LENGTH, "0.3048", "ft foot feet")
_define(_LENGTH, "0.9144", "yd yard yards yds")
_define(_LENGTH, "1609.344", "mi mile miles")
_define(_MASS, 1, "kg kilogram kilograms kgs kilo kilos")
_define(_MASS, "0.001", "g gram grams gr")
_define(_MASS, "0.000001", "mg milligram milligrams")
_define(_MASS, "0.45359237", "lb lbs pound-mass")
_define(_MASS, "0.028349523125", "oz ounce ounces")
_define(_MASS, 1000, "tonne tonnes")
_define(_TIME, 1, "s sec secs second seconds")
_define(_TIME, 60, "min mins minute minutes")
_define(_TIME, 3600, "h hr hrs hour hours")
_define(_TIME, 86400, "day days")
_define(_TIME, 604800, "week weeks")
_define(_MONEY, 1, "dollar dollars usd bucks")
_define(_MONEY, "0.01", "cent cents")
_define("euro", 1, "euro euros eur")
_define("sterling", 1, "gbp")
_define("yen", 1, "yen jpy")
_define("rupee", 1, "rupee rupees inr")
_define(_ANGLE, 1, "degree degrees deg")
_define("radian", 1, "radian radians rad")
_define("volume", 1, "l liter liters litre litres")
_define("volume", "0.001", "ml milliliter milliliters millilitre millilitres")
_define("celsius", 1, "celsius degreec °c")
_define("fahrenheit", 1, "fahrenheit degreef °f")
_AREA = {"hectare": 10000, "hectares": 10000, "ha": 10000}
_COMPOUND = {"mph": "mile/h", "kph": "km/h", "kmh": "km/h", "cc": "cm^3", "sqft": "ft^2", "sqm": "m^2"}
CURRENCIES = {
    "$": "dollar",
    "€": "euro",
    "£": "gbp",
    "¥": "yen",
    "₹": "rupee",
    "₽": "ruble",
    "₩": "won",
    "\x04": "dollar",
}


def unit_of(words: str) -> tuple[Dimension, Fraction]:
    """Dimensions with exponents, and the factor to the base units. Unknown words are dimensions of their own.

    >>> unit_of("km/h") == unit_of("kilometers per hour"), unit_of("apples") == unit_of("apple")
    (True, True)
    """
    text = f" {_COMPOUND.get(words.strip(), words)} ".casefold()
    text = re.sub(r"[{}()]", "", text)
    text = re.sub(r"\s+per\s+|\s*/\s*|\s+(?:a|an|each|every)\s+", " / ", text)
    text = re.sub(r"\b(?:square|sq\.?)\s+(\S+)", r"\1^2", text)
    text = re.sub(r"\b(?:cubic|cu\.?)\s+(\S+)", r"\1^3", text)
    text = re.sub(r"(\S+?)\s+squared\b", r"\1^2", text)
    text = re.sub(r"(\S+?)\s+cubed\b", r"\1^3", text)
    text = re.sub(r"\s*\^\s*", "^", text)
    dimensions: dict[str, int] = {}
    factor, sign = Fraction(1), 1
    for word in text.replace("*", " ").replace("\\cdot", " ").split():
        if word == "/":
            sign = -1
            continue
        name, _, power = word.strip(".,").partition("^")
        exponent = sign * (int(power) if re.fullmatch(r"-?[1-9]", power) else 1)
        if name in _AREA:
            dimension, one = _LENGTH, Fraction(_AREA[name])
            exponent, one = 2 * exponent, one
            factor *= one ** (exponent // 2)
        else:
            dimension, one = _KNOWN.get(name) or (_singular(name), Fraction(1))
            factor *= one**exponent
        dimensions[dimension] = dimensions.get(dimension, 0) + exponent
    return tuple(sorted(item for item in dimensions.items() if item[1])), factor


def is_unit(words: str) -> bool:
    """Whether bare letters are a known unit, alone or as in `m/s`, `cm^2`, `km h`."""
    names = [name for name in re.split(r"[\s/^*{}()\d.-]+|\\cdot", words) if name]
    names = [
        name for name in names if name not in ("per", "a", "each", "square", "cubic", "sq", "cu", "squared", "cubed")
    ]
    return bool(names) and all(n in _KNOWN or n.casefold() in _KNOWN or n in _COMPOUND or n in _AREA for n in names)


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith("ss") and len(word) > 2 else word
