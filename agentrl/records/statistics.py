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
    per_task: Values, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Mean over tasks and its percentile bootstrap interval (tasks are drawn with replacement).

    per_task: one number per task, e.g. its pass@k. The same input and seed give the same interval. One task, or equal
    values, give an interval of no width: a bootstrap sees no spread that the sample lacks (`wilson_interval` does, for
    one sample per task). Efron and Tibshirani 1993, chapter 13. Raises ValueError on no or non-finite values.
    """
    values = np.asarray(per_task, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"need a finite number per task, got shape {values.shape}: {values.tolist()[:5]}")
    if not 0 < confidence < 1 or resamples < 1:
        raise ValueError(f"need 0 < confidence < 1 and resamples >= 1, got {confidence} and {resamples}")
    if values.min() == values.max():
        # Means of equal numbers differ in the last bit, which would put the mean outside its interval.
        return Interval(float(values[0]), float(values[0]), float(values[0]))
    random = np.random.default_rng(seed)
    means = np.empty(resamples)
    rows = max(1, _CHUNK // values.size)
    for start in range(0, resamples, rows):
        stop = min(start + rows, resamples)
        means[start:stop] = values[random.integers(0, values.size, size=(stop - start, values.size))].mean(axis=1)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high))


def paired_difference(
    a: Values, b: Values, *, confidence: float = 0.95, resamples: int = 10_000, seed: int = 0
) -> Interval:
    """Mean of `a - b` over tasks that both measured, with its bootstrap interval over tasks.

    a, b: one number per task, the same tasks in the same order. What makes a task easy or hard for both cancels, so
    the interval is narrower than the two single ones suggest. Raises ValueError if the lengths differ.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(f"need the same tasks on both sides, got {first.shape} and {second.shape}")
    return mean_and_interval(first - second, confidence=confidence, resamples=resamples, seed=seed)


def wilson_interval(successes: int, n: int, *, confidence: float = 0.95) -> Interval:
    """Success rate of n independent trials with its Wilson score interval, sound also at 0 and n successes.

    `mean` is the plain rate successes / n. Wilson 1927. Raises ValueError unless n >= 1 and 0 <= successes <= n.
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"need n >= 1 and 0 <= successes <= n, got {successes} of {n}")
    if not 0 < confidence < 1:
        raise ValueError(f"need 0 < confidence < 1, got {confidence}")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    rate = successes / n
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    low = 0.0 if successes == 0 else centre - half
    high = 1.0 if successes == n else centre + half
    return Interval(rate, low, high)


def _check_counts(n: int, c: int, k: int) -> None:
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"need 1 <= k <= n and 0 <= c <= n, got n={n}, c={c}, k={k}")
