"""GSM8K's own solutions as responses: right ones pass in every form, and with the number changed by one none does.

The full data is judged where `../shared/data/gsm8k` holds it, else a sample of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from agentrl_verifiers.math_answer import MathAnswer

from tests.support_answers import judge_all

FULL = Path(__file__).parents[4] / "shared" / "data" / "gsm8k"
FILES = sorted(FULL.glob("*.jsonl")) or [Path(__file__).with_name("gsm8k_sample.jsonl")]
SOLUTIONS = [
    json.loads(line)["answer"].rsplit("#### ", 1) for file in FILES for line in file.read_text("utf-8").splitlines()
]
RIGHT: dict[str, Callable[[str, int], str]] = {
    "hashes": lambda text, n: f"{text}#### {n}",
    "boxed": lambda text, n: f"{text}\\boxed{{{n}}}",
    "unit": lambda text, n: f"{text}#### {n} apples",
    "unit in a box": lambda text, n: f"{text}\\boxed{{{n}\\text{{ km/h}}}}",
    "dollars": lambda text, n: f"{text}#### ${n}",
    "dollars in a box": lambda text, n: f"{text}\\boxed{{\\${n}}}",
    "thousands": lambda text, n: f"{text}#### {n:,}",
    "thousands in LaTeX": lambda text, n: f"{text}\\boxed{{{n:,}}}".replace(",", "{,}"),
    "prose": lambda text, n: f"{text}The answer is {n} dollars.",
}


@pytest.mark.parametrize("form", RIGHT)
def test_the_right_number_passes_and_its_neighbour_does_not(form: str) -> None:
    numbers = [int(number.replace(",", "")) for _, number in SOLUTIONS]
    right = [(RIGHT[form](text, n), str(n)) for (text, _), n in zip(SOLUTIONS, numbers, strict=True)]
    wrong = [(RIGHT[form](text, n + 1), str(n)) for (text, _), n in zip(SOLUTIONS, numbers, strict=True)]
    assert [pair for pair, verdict in zip(right, judge_all(MathAnswer, right), strict=True) if not verdict.passed] == []
    assert [pair for pair, verdict in zip(wrong, judge_all(MathAnswer, wrong), strict=True) if verdict.score != 0] == []
