"""Evaluation statistics: unbiasedness by enumeration, coverage of the intervals, faults."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest

from agentrl.records.statistics import (
    Interval,
    mean_and_interval,
    paired_difference,
    pass_all_k,
    pass_at_k,
    wilson_interval,
)


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_counts_equal_the_share_of_all_subsets(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-15)
        assert pass_all_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws), abs=1e-15)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.83])
def test_pass_at_k_is_unbiased(rate: float) -> None:
    n, k = 12, 5
    chances = [math.comb(n, c) * rate**c * (1 - rate) ** (n - c) for c in range(n + 1)]
    at_least_one = sum(p * pass_at_k(n, c, k) for c, p in enumerate(chances))
    all_of_them = sum(p * pass_all_k(n, c, k) for c, p in enumerate(chances))
    assert at_least_one == pytest.approx(1 - (1 - rate) ** k, abs=1e-12)
    assert all_of_them == pytest.approx(rate**k, abs=1e-12)


def test_large_counts_do_not_overflow() -> None:
    assert pass_at_k(10_000, 1, 5_000) == 0.5
    assert 0.0 < pass_all_k(10_000, 9_000, 100) < 1e-4


@pytest.mark.parametrize(("n", "c", "k"), [(4, 2, 5), (4, 5, 1), (4, -1, 1), (4, 2, 0), (0, 0, 0)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    for function in (pass_at_k, pass_all_k):
        with pytest.raises(ValueError, match="k <= n"):
            function(n, c, k)


def test_the_interval_is_that_of_the_sampling_distribution() -> None:
    """For many tasks the ends approach mean +- 1.96 standard errors."""
    values = np.random.default_rng(0).normal(3.0, 2.0, size=400)
    result = mean_and_interval(values)
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    assert result.mean == pytest.approx(float(values.mean()))
    assert result.low == pytest.approx(result.mean - 1.96 * error, abs=0.1 * error)
    assert result.high == pytest.approx(result.mean + 1.96 * error, abs=0.1 * error)
    wider = mean_and_interval(values, confidence=0.99)
    assert wider.low < result.low < result.high < wider.high


def test_the_exact_distribution_of_two_tasks() -> None:
    """Resamples of {0, 1} have mean 0, 0.5 or 1 with chances 1/4, 1/2, 1/4."""
    assert mean_and_interval([0.0, 1.0]) == Interval(0.5, 0.0, 1.0)
    assert mean_and_interval([0.0, 1.0], confidence=0.4) == Interval(0.5, 0.5, 0.5)


def test_the_interval_covers_the_truth_about_as_often_as_promised() -> None:
    random = np.random.default_rng(1)
    covered = 0
    for seed in range(200):
        result = mean_and_interval(random.random(60) ** 2, resamples=500, seed=seed)
        covered += result.low <= 1 / 3 <= result.high
    assert 0.88 <= covered / 200 <= 0.99


def test_the_same_seed_gives_the_same_interval() -> None:
    values = list(np.random.default_rng(2).random(50))
    assert mean_and_interval(values, seed=4) == mean_and_interval(values, seed=4)
    assert mean_and_interval(values, seed=4) != mean_and_interval(values, seed=5)


def test_more_tasks_than_a_chunk_of_memory() -> None:
    values = np.random.default_rng(3).random(1_200_000)
    result = mean_and_interval(values, resamples=3)
    assert result.low <= result.high
    assert result.mean == pytest.approx(0.5, abs=1e-2)


def test_where_none_or_all_pass_the_interval_is_wilson_s() -> None:
    assert mean_and_interval([0.0] * 20) == wilson_interval(0, 20)
    low, high = mean_and_interval([1.0] * 20)[1:]
    assert (low, high) == pytest.approx(wilson_interval(20, 20)[1:])


def test_equal_values_say_how_far_unseen_tasks_could_move_the_mean() -> None:
    unseen = wilson_interval(0, 7).high
    assert mean_and_interval([0.25] * 7) == pytest.approx((0.25, 0.25 - 0.25 * unseen, 0.25 + 0.75 * unseen))
    assert mean_and_interval([3.1] * 7) == Interval(3.1, 3.1, 3.1), "without limits nothing is known of them"
    same = paired_difference([0.5] * 7, [0.5] * 7)
    assert same == pytest.approx((0.0, -unseen, unseen))


def test_one_success_among_many_tasks_has_a_finite_interval() -> None:
    """More than a third of the resamples are all zeros, which would make the upper end infinite."""
    result = mean_and_interval([0.125] + [0.0] * 49)
    assert result.low == pytest.approx(0.0, abs=1e-3)
    assert 2 * result.mean < result.high < 0.05


def test_limits_hold_the_interval_and_the_values() -> None:
    assert mean_and_interval([-0.9, -1.0, -1.0], limits=(-1.0, 0.0)).low >= -1.0
    with pytest.raises(ValueError, match="not within limits"):
        mean_and_interval([0.5, 1.5], limits=(0.0, 1.0))
    improved = paired_difference([0.125, 0.25, 0.25, 0.5], [0.0, 0.25, 0.25, 0.375])
    assert improved.low < 0.0, "that no task got worse does not show that none can"


@pytest.mark.parametrize(("a", "b"), [(0.2, 4.0), (0.3, 0.3)])
def test_intervals_of_few_tasks_hold_the_truth(a: float, b: float) -> None:
    """`benchmarks/coverage.py` in small; plain percentiles reach 0.90 in the first case."""
    random, held = np.random.default_rng(5), 0
    for seed in range(600):
        values = random.binomial(8, random.beta(a, b, 50)) / 8
        found = mean_and_interval(values, resamples=400, seed=seed)
        held += found.low <= a / (a + b) <= found.high
    assert 0.93 <= held / 600 <= 0.98


def test_pairing_removes_what_both_sides_share() -> None:
    random = np.random.default_rng(4)
    difficulty = random.normal(0, 10, size=100)
    a, b = difficulty + 1.0 + random.normal(0, 0.1, size=100), difficulty
    result = paired_difference(a, b)
    assert 0.95 < result.low < 1.0 < result.high < 1.05
    assert mean_and_interval(a).low < mean_and_interval(b).high
    swapped = paired_difference(b, a)
    assert swapped.mean == pytest.approx(-result.mean)
    assert (swapped.low, swapped.high) == pytest.approx((-result.high, -result.low), abs=1e-3)


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")], [[1.0], [2.0]]])
def test_values_that_are_no_results_are_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="finite number per task"):
        mean_and_interval(values)


def test_unpaired_and_impossible_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="same tasks"):
        paired_difference([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="confidence"):
        mean_and_interval([1.0, 2.0], confidence=95)
    with pytest.raises(ValueError, match="resamples"):
        mean_and_interval([1.0, 2.0], resamples=0)
    for successes, n in ((1, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="successes"):
            wilson_interval(successes, n)
    with pytest.raises(ValueError, match="confidence"):
        wilson_interval(1, 2, confidence=1.0)


def test_wilson_stays_inside_zero_and_one_and_narrows() -> None:
    for n in (1, 3, 50):
        for successes in range(n + 1):
            result = wilson_interval(successes, n)
            assert 0.0 <= result.low <= result.mean <= result.high <= 1.0
    small, large = wilson_interval(5, 10), wilson_interval(500, 1000)
    assert large.high - large.low < small.high - small.low


def test_statistics_load_no_torch() -> None:
    code = "import sys, agentrl.records.statistics; raise SystemExit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
