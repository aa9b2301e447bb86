"""Evaluation statistics against the golden vectors."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from agentrl.records.statistics import mean_and_interval, pass_at_k, wilson_interval

Golden = dict[str, dict[str, Any]]


def test_pass_at_k_is_the_nearest_float(golden: Golden) -> None:
    given, expected = golden["pass_at_k"]["inputs"], golden["pass_at_k"]["outputs"]
    values = [pass_at_k(*case) for case in given["cases"]]
    assert values == [float(Fraction(exact)) for exact in expected["exact_fraction"]]
    assert values == pytest.approx(expected["value"], abs=1e-12)


@pytest.mark.parametrize(("k", "key"), [(5, "mean_k5"), (1, "mean_pass1")])
def test_mean_over_problems(golden: Golden, k: int, key: str) -> None:
    problems = golden["pass_at_k"]["inputs"]["problems_k5"]
    result = mean_and_interval([pass_at_k(n, c, k) for n, c in problems])
    assert result.mean == pytest.approx(golden["pass_at_k"]["outputs"][key], abs=1e-12)


def test_wilson_interval(golden: Golden) -> None:
    for (successes, n), (low, high) in zip(
        golden["pass_at_k"]["inputs"]["wilson"], golden["pass_at_k"]["outputs"]["wilson95"], strict=True
    ):
        result = wilson_interval(successes, n)
        assert result.mean == successes / n
        assert (result.low, result.high) == pytest.approx((low, high), abs=1e-9)
