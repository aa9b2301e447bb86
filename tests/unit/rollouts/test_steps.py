"""Forms of process rewards: published values, and what no number of steps can earn."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.rollouts.steps import bounded, clipped, delta_form, mean_form, min_form, potential_form, shaping

EIGHTHS = st.integers(-24, 24).map(lambda n: n / 8)
SCORES = st.lists(st.floats(-10, 10), min_size=1, max_size=30)


@given(st.lists(EIGHTHS, max_size=12), st.integers(1, 24).map(lambda n: n / 8))
def test_the_bound_telescopes(scores: list[float], bound: float) -> None:
    result = bounded(scores, bound)
    running = 0.0
    for score, total in zip(scores, itertools.accumulate(result), strict=True):
        running = max(-bound, min(bound, running + score))
        assert total == running
    if all(abs(total) <= bound for total in itertools.accumulate(scores)):
        assert result == scores


@given(st.lists(st.floats(-1e6, 1e6), max_size=30), st.floats(0.01, 1e3))
def test_no_number_of_steps_earns_more_than_the_bound(scores: list[float], bound: float) -> None:
    for total in itertools.accumulate(bounded(scores, bound)):
        assert abs(total) <= bound * (1 + 1e-9)


@given(SCORES)
def test_every_other_form_is_bounded_by_the_scores(scores: list[float]) -> None:
    least, most = min(scores), max(scores)
    assert least - 1e-9 <= sum(mean_form(scores)) <= most + 1e-9
    assert least - 1e-9 <= sum(min_form(scores)) <= most + 1e-9
    assert sum(clipped(scores, 0.5)) <= 0
    assert sum(potential_form(scores, 1.0)) == pytest.approx(0.0, abs=1e-9)
    rewards = delta_form(scores)
    for step, score in enumerate(scores):
        assert sum(rewards[step:]) == pytest.approx(score, abs=1e-9), "what is to come is the step's own score"


@given(SCORES)
def test_a_cold_minimum_is_the_minimum(scores: list[float]) -> None:
    separated = [float(round(score)) for score in scores]
    assert sum(min_form(separated, 1e-3)) == pytest.approx(min(separated))


@given(st.lists(EIGHTHS, max_size=8), st.lists(EIGHTHS, min_size=1, max_size=8), st.floats(0.0, 1.0))
def test_shaping_moves_the_return_by_the_start_alone(
    rewards: list[float], potentials: list[float], gamma: float
) -> None:
    states = [*potentials[: len(rewards)], *[0.25] * (len(rewards) - len(potentials)), 0.0]
    added = shaping(states, gamma)
    assert len(added) == len(rewards)
    plain = sum(gamma**t * reward for t, reward in enumerate(rewards))
    shaped = sum(gamma**t * (reward + more) for t, (reward, more) in enumerate(zip(rewards, added, strict=True)))
    assert shaped == pytest.approx(plain - states[0], abs=1e-9) if rewards else added == []


def test_no_steps_are_no_rewards() -> None:
    for form in (mean_form, min_form, delta_form):
        assert form([]) == []
    assert potential_form([], 0.9) == bounded([], 1.0) == clipped([], 0.5) == []
