"""Answers in words: numbers, Roman numerals, dates, yes and no, and when two wordings say the same."""

from __future__ import annotations

import re

from agentrl_verifiers.math_answer.normalization import CLOSE_TEXT, DOLLAR, OPEN_TEXT

_UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_SMALL = {word: value for value, word in enumerate(_UNITS)} | {word: 20 + 10 * k for k, word in enumerate(_TENS)}
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ROMAN = re.compile(r"(?=..)M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_DATE = re.compile(
    rf"(?:(?P<d1>\d\d?)(?:st|nd|rd|th)? (?:of )?(?P<m1>{'|'.join(_MONTHS)})"
    rf"|(?P<m2>{'|'.join(_MONTHS)}) (?:the )?(?P<d2>\d\d?)(?:st|nd|rd|th)?)(?: (?P<year>\d{{4}}))?"
)
_SYNONYMS = {
    "dne": "does not exist", "doesn't exist": "does not exist", "do not exist": "does not exist",
    "no solutions": "no solution", "no real solution": "no solution", "no real solutions": "no solution",
    "none": "no solution", "empty set": "no solution", "there is no solution": "no solution",
    "there are no solutions": "no solution", "infinity": "infinity", "positive infinity": "infinity",
    "negative infinity": "-infinity", "minus infinity": "-infinity", "t": "t", "f": "f",
    "infinitely many solutions": "infinitely many", "infinite solutions": "infinitely many",
}  # fmt: skip
_SAID = {"yes": "yes", "no": "no", "true": "true", "false": "false"}


def number_in_words(text: str) -> int | None:
    """The whole number that English words spell, or None.

    >>> number_in_words("one hundred and twenty-five"), number_in_words("one million"), number_in_words("five six")
    (125, 1000000, None)
    """
    words = [word for word in re.split(r"[\s-]+", text.strip().lower()) if word]
    negative = bool(words) and words[0] in ("minus", "negative")
    words = words[1:] if negative else words
    if not 1 <= len(words) <= 24 or (len(words) > 1 and "zero" in words):
        return None
    total, group, room = 0, 0, 1000
    highest = 10**15
    for place, word in enumerate(words):
        if word in _SMALL:
            value = _SMALL[word]
            if value >= room:
                return None
            group += value
            room = 10 if value >= 20 else 0
        elif word == "hundred" and 1 <= group <= 19:
            group, room = group * 100, 100
        elif word in SCALES and word != "hundred" and group and SCALES[word] < highest:
            highest = SCALES[word]
            total, group, room = total + group * highest, 0, 1000
        elif word == "a" and place == 0 and len(words) > 1:
            group, room = 1, 0
        elif word != "and" or place in (0, len(words) - 1):
            return None
    return -(total + group) if negative else total + group


def roman_number(text: str) -> int | None:
    """The value of a Roman numeral of at least two letters in its canonical form, or None.

    >>> roman_number("IV"), roman_number("IIII"), roman_number("X")
    (4, None, None)
    """
    if not _ROMAN.fullmatch(text):
        return None
    values = [_ROMAN_VALUES[letter] for letter in text]
    return sum(-v if v < after else v for v, after in zip(values, [*values[1:], 0], strict=True))


def wording(text: str) -> str:
    """The normal form of an answer in words: case, punctuation, articles and known synonyms do not count.

    >>> wording("The Empty Set."), wording("5th of May") == wording("May 5")
    ('no solution', True)
    """
    text = text.replace(OPEN_TEXT, " ").replace(CLOSE_TEXT, " ").replace(DOLLAR, "$").casefold()
    text = text.replace("\\infty", " infinity ").replace("\\emptyset", " empty set ")
    text = re.sub(r"[.,;!?\"]+(?=\s|$)|(?<!\w)['\"]|['\"](?!\w)", " ", text)
    text = re.sub(r"(?<=[a-z])-(?=[a-z])", " ", text)
    text = re.sub(r"\b(?:the|an?)\s+(?=\w)", " ", text)
    text = re.sub(r"\s+", " ", text).strip()
    date = _DATE.fullmatch(text)
    if date:
        return f"{date['m1'] or date['m2']} {int(date['d1'] or date['d2'])} {date['year'] or ''}".strip()
    return _SYNONYMS.get(text, text)


def same_wording(gold: str, answer: str) -> bool:
    """Whether an answer in words says what the gold says; both in normal form.

    A gold of one word among yes, no, true and false is met by an answer that begins with it and takes nothing back.
    """
    if gold == answer:
        return bool(gold)
    words = re.findall(r"[a-z']+", answer)
    if gold in _SAID and words and words[0] == gold:
        return len(words) <= 12 and not {"yes", "no", "true", "false", "not", "or", "but"} & set(words[1:])
    return False
