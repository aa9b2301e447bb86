"""Scores of steps to rewards of steps: the forms in which a process part counts.

A plain sum of good scores pays for steps: a policy learns to make more of them. Every other form here is bounded by
the scores themselves. Sequences of K scores give K rewards; pure functions on numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise


def clipped(scores: Sequence[float], above: float) -> list[float]:
    """`min(s - above, 0)`: a step can only cost, and further steps earn nothing (Gao et al. 2024, arXiv:2410.15115).

    >>> clipped([0.75, -0.25], 0.5)
    [0.0, -0.75]
    """
    return [min(score - above, 0.0) for score in scores]


def bounded(scores: Sequence[float], bound: float) -> list[float]:
    """What each score moves the running sum, which stays within +-bound: more steps cannot earn more than the bound.

    >>> bounded([0.75, 0.75], 1.0)
    [0.75, 0.25]
    """
    running = [0.0]
    for score in scores:
        running.append(min(max(running[-1] + score, -bound), bound))
    return [after - before for before, after in pairwise(running)]


def mean_form(scores: Sequence[float]) -> list[float]:
    """`s_k / K`: together they are the mean score."""
    return [score / len(scores) for score in scores]


def min_form(scores: Sequence[float], temperature: float = 0.1) -> list[float]:
    """`w_k s_k` with `w = softmax(-s / temperature)`: together about the worst score (PURE, Cheng et al. 2025,
    arXiv:2504.15275). The lower the temperature, the closer to the minimum."""
    if not scores:
        return []
    least = min(scores)
    weights = [math.exp(-(score - least) / temperature) for score in scores]
    return [score * weight / sum(weights) for score, weight in zip(scores, weights, strict=True)]


def delta_form(scores: Sequence[float]) -> list[float]:
    """`s_k - s_{k+1}`, and the last score itself: what is to come after any step adds up to that step's score, and all
    of it to the first one (Gao et al. 2024, arXiv:2410.15115).

    >>> delta_form([0.75, -0.25, 0.5])
    [1.0, -0.75, 0.5]
    """
    return [score - later for score, later in pairwise([*scores, 0.0])]


def shaping(potentials: Sequence[float], gamma: float) -> list[float]:
    """`gamma Phi(s_{k+1}) - Phi(s_k)` for the K steps between K + 1 states (Ng et al. 1999, ICML).

    With a last potential of 0 the discounted return changes by `-Phi(s_0)` whatever the policy does, so the best
    policy stays the best.
    """
    return [gamma * after - before for before, after in pairwise(potentials)]


def potential_form(scores: Sequence[float], gamma: float) -> list[float]:
    """`shaping` by scores that are the potentials of the states that the steps led to. The start counts 0, and so does
    the state in which the rollout ended, a cut one too.

    >>> potential_form([0.25, 0.75, 1.0], 1.0)
    [0.25, 0.5, -0.75]
    """
    return shaping([0.0, *scores[:-1], 0.0], gamma) if scores else []
