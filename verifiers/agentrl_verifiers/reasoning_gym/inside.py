"""Scores one answer by its dataset's scorer. Runs inside the sandbox, as the program that the verifier calls.

Some scorers hand the answer to `eval` or to sympy's `parse_expr`, which is `eval` as well: in the frame of the scorer
the answer could then simply name the right one. So here `eval` reads literals only, and what would be parsed as an
expression must be elementary algebra.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

_EVAL = frozenset({"binary_matrix", "n_queens", "number_sorting", "spiral_matrix", "string_insertion"})
"""Datasets whose scorers evaluate answers that are written as Python lists."""

_ELEMENTARY = frozenset(
    ["exp", "log", "sqrt", "pi", "Abs"]
    + [f"{arc}{name}{h}" for arc in ("", "a") for name in ("sin", "cos", "tan", "cot", "sec", "csc") for h in ("", "h")]
)
_EXPRESSIONS = {
    "countdown": frozenset[str](),
    "puzzle24": frozenset[str](),
    "intermediate_integration": _ELEMENTARY,
    "polynomial_multiplication": frozenset[str](),
    "simple_integration": _ELEMENTARY,
}
"""Datasets whose scorers parse an expression, and the functions that one may name. `Integral(...)` would be no work."""
_SYMBOL = re.compile(r"[A-Za-z]\d*")
_WORD = re.compile(r"[A-Za-z_]\w*")
_BETWEEN_WORDS = re.compile(r"(?:[-+*/^()\s\d]|\.\d)*")


def score(dataset: str, config: Mapping[str, Any], seed: int, packed: Any, answer: str) -> list[Any]:
    """`[score]`, or `[None, reason, text]` when there is none; reason `ours` means that the entry cannot be scored."""
    from reasoning_gym.composite import DatasetSpec
    from reasoning_gym.factory import create_dataset

    options = dict(config)
    if dataset == "composite":
        options["datasets"] = [DatasetSpec(**{"weight": 1.0, "config": {}, **one}) for one in options["datasets"]]
    try:
        entry = unpack(packed)
        judge = create_dataset(dataset, **options, seed=seed, size=1)
        name = entry["metadata"].get("source_dataset", dataset)
        _literals_only(name)
    except Exception as error:
        return [None, "ours", f"{type(error).__name__}: {error}"]
    problem = _refused(name, entry, answer)
    if problem is not None:
        return [None, "forbidden", problem]
    try:
        given = float(judge.score_answer(answer, entry))
        return [0.0 if given >= 1.0 and _wrong_all_the_same(name, entry["answer"], answer) else given]
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    # Whose fault? A scorer that fails on the entry's own answer as well fails on all.
    try:
        judge.score_answer(entry["answer"], entry)
    except Exception:
        return [None, "ours", text]
    return [None, "wrong_format", text]


def _literals_only(name: str) -> None:
    from reasoning_gym.factory import DATASETS

    if name in _EVAL:
        vars(sys.modules[DATASETS[name][0].__module__])["eval"] = ast.literal_eval


def _refused(name: str, entry: Mapping[str, Any], answer: str) -> str | None:
    functions = _EXPRESSIONS.get(name)
    if functions is None:
        return None
    strange = [word for word in _WORD.findall(answer) if word not in functions and not _SYMBOL.fullmatch(word)]
    if strange or not _BETWEEN_WORDS.fullmatch(_WORD.sub(" ", answer)):
        return "the answer is more than an expression of elementary algebra"
    if name == "puzzle24" and sorted(map(int, re.findall(r"\d+", answer))) != sorted(entry["metadata"]["numbers"]):
        return "the answer does not use each given number once"  # which its scorer does not look at
    return None


def _wrong_all_the_same(name: str, gold: str, answer: str) -> bool:
    """What two scorers give the full mark to: any text at all, and every beginning of the right number."""
    if name == "game_of_life_halting":
        return answer.strip().lower() != str(gold).lower()
    if name == "coin_flip":
        return abs(Fraction(answer.replace(",", "")) - Fraction(gold)) > Fraction(1, 10_000)
    return False


def unpack(value: Any) -> Any:
    """What the environment packed: `{"!tuple": [...]}` is a tuple, `{"!dict": [[key, value], ...]}` a mapping.

    >>> unpack({"a": {"!tuple": [1, 2]}})
    {'a': (1, 2)}
    """
    if isinstance(value, list):
        return [unpack(one) for one in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"!tuple"}:
        return tuple(unpack(one) for one in value["!tuple"])
    if set(value) == {"!set"}:
        return {unpack(one) for one in value["!set"]}
    if set(value) == {"!dict"}:
        return {unpack(key): unpack(one) for key, one in value["!dict"]}
    return {key: unpack(one) for key, one in value.items()}
