"""Statistics of evaluations: pass@k without bias, intervals that respect tasks.

The task is the unit of resampling. Samples of one task are alike, and an interval that counts them as independent is
too narrow (0.070 instead of 0.188 in the golden vector). Do the non-linear step (pass@k) per task, then average.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Values: TypeAlias = Sequence[float] | npt.NDArray[np.floating]

UNLIMITED = (-math.inf, math.inf)
_CHUNK = 1_000_000
"""Resampled values held in memory at once."""


class Interval(NamedTuple):
    """A mean and its confidence interval. Example: `Interval(mean=0.42, low=0.31, high=0.53)`."""

    mean: float
    low: float
    high: float


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of k samples succeeds, estimated from c successes in n: `1 - C(n-c,k) / C(n,k)`.

    Unbiased, unlike `1 - (1 - c/n)^k`, and correctly rounded (integer arithmetic). Chen et al. 2021,
    arXiv:2107.03374, eq. 1. Raises ValueError unless 1 <= k <= n and 0 <= c <= n.

    >>> pass_at_k(10, 3, 5)
    0.9166666666666666
    """
    _check_counts(n, c, k)
    total = math.comb(n, k)
    return (total - math.comb(n - c, k)) / total


def pass_all_k(n: int, c: int, k: int) -> float:
    """Probability that all of k samples succeed (pass^k): `C(c,k) / C(n,k)`, unbiased.

    Yao et al. 2024 (tau-bench), arXiv:2406.12045, section 4. Raises ValueError unless 1 <= k <= n and 0 <= c <= n.

    >>> pass_all_k(4, 2, 2)
    0.16666666666666666
    """
    _check_counts(n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def mean_and_interval(
    per_task: Values,
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    limits: tuple[float, float] | None = None,
) -> Interval:
    """Mean over tasks and its studentised bootstrap interval (tasks are drawn with replacement).

    per_task: one number per task, e.g. its pass@k. limits: the least and the largest number that a task can have; None
    is 0 and 1 where all of them lie between, and no limits elsewhere. The same input and seed give the same interval.

    Plain percentiles are too narrow where few tasks succeed (0.90 instead of 0.95 for 50 tasks of pass rates
    Beta(0.2, 4)); studentised they hold in all cases of `benchmarks/coverage.py`. Resamples without a spread would make
    an end infinite, so each arm is at most twice that of the Wilson interval for as many trials as the spread between
    tasks is worth. Equal numbers have no spread to resample: the interval then says how far as many further tasks as
    could have stayed unseen can move the mean (Wilson's bound where none or all pass), and has no width without limits.
    Efron and Tibshirani 1993, section 12.5; Wilson 1927. Raises ValueError on no or non-finite values.
    """
    values = np.asarray(per_task, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"need a finite number per task, got shape {values.shape}: {values.tolist()[:5]}")
    if not 0 < confidence < 1 or resamples < 1:
        raise ValueError(f"need 0 < confidence < 1 and resamples >= 1, got {confidence} and {resamples}")
    least, most = float(values.min()), float(values.max())
    if limits is None:
        limits = (0.0, 1.0) if least >= 0 and most <= 1 else UNLIMITED
    if not limits[0] <= least <= most <= limits[1]:
        raise ValueError(f"values from {least} to {most} are not within limits {limits}")
    if least == most:
        # Means of equal numbers differ in the last bit, which would put the mean outside its interval.
        return _without_spread(least, values.size, limits, confidence)
    mean, error = float(values.mean()), float(values.std(ddof=1)) / math.sqrt(values.size)
    low, high = _studentised(values, confidence, resamples, seed)
    most_below, most_above = (2 * arm for arm in _arms(mean, error, limits, confidence))
    below, above = min(high * error, most_below), min(-low * error, most_above)
    return Interval(mean, max(mean - below, limits[0]), min(mean + above, limits[1]))


def _studentised(values: npt.NDArray[np.float64], confidence: float, resamples: int, seed: int) -> tuple[float, float]:
    """Quantiles of (resampled mean - mean) / its standard error; infinite where resamples have no spread."""
    random = np.random.default_rng(seed)
    centred = values - values.mean()
    scores = np.empty(resamples)
    rows = max(1, _CHUNK // values.size)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        drawn = centred[random.integers(0, values.size, size=(stop - start, values.size))]
        means, errors = drawn.mean(axis=1), drawn.std(axis=1, ddof=1) / math.sqrt(values.size)
        flat = drawn.max(axis=1) == drawn.min(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(flat, np.sign(np.round(means, 12)) * np.inf, means / errors)
        scores[start:stop] = np.where(np.isnan(found), 0.0, found)
    tail = (1 - confidence) / 2
    return (
        float(np.quantile(scores, tail, method="lower")),
        float(np.quantile(scores, 1 - tail, method="higher")),
    )


def _arms(mean: float, error: float, limits: tuple[float, float], confidence: float) -> tuple[float, float]:
    """How far the interval of a plain formula reaches down and up: Wilson's at the effective number of trials."""
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    if limits == UNLIMITED:
        return z * error, z * error
    span = limits[1] - limits[0]
    rate = (mean - limits[0]) / span
    low, high = _wilson(rate, rate * (1 - rate) / (error / span) ** 2, z)
    return (rate - low) * span, (high - rate) * span


def _without_spread(value: float, size: int, limits: tuple[float, float], confidence: float) -> Interval:
    if limits == UNLIMITED:
        return Interval(value, value, value)
    unseen = wilson_interval(0, size, confidence=confidence).high
    return Interval(value, value - unseen * (value - limits[0]), value + unseen * (limits[1] - value))


def paired_difference(
    a: Values, b: Values, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Mean of `a - b` over tasks that both measured, with its interval over tasks as in `mean_and_interval`.

    a, b: one number per task, the same tasks in the same order. What makes a task easy or hard for both cancels, so
    the interval is narrower than the two single ones suggest. Raises ValueError if the lengths differ.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"need the same tasks on both sides, got {first.shape} and {second.shape}")
    both = np.concatenate([first, second]) if first.ndim == 1 else first
    rates = both.size > 0 and bool(((both >= 0) & (both <= 1)).all())
    return mean_and_interval(
        first - second,
        confidence=confidence,
        resamples=resamples,
        seed=seed,
        limits=(-1.0, 1.0) if rates else UNLIMITED,
    )


def wilson_interval(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Success rate of n independent trials with its Wilson score interval, sound also at 0 and n successes.

    `mean` is the plain rate successes / n. Wilson 1927. Raises ValueError unless n >= 1 and 0 <= successes <= n.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"need n >= 1 and 0 <= successes <= n, got {successes} of {n}")
    if not 0 < confidence < 1:
        raise ValueError(f"need 0 < confidence < 1, got {confidence}")
    rate = successes / n
    low, high = _wilson(rate, n, NormalDist().inv_cdf(0.5 + confidence / 2))
    return Interval(rate, 0.0 if successes == 0 else low, 1.0 if successes == n else high)


def _wilson(rate: float, n: float, z: float) -> tuple[float, float]:
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return centre - half, centre + half


def _check_counts(n: int, c: int, k: int) -> None:
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"need 1 <= k <= n and 0 <= c <= n, got n={n}, c={c}, k={k}")
