"""The adaptive KL coefficient: bounds, hazards, exact resume."""

from __future__ import annotations

import pytest

from agentrl.learning.kl import AdaptiveKL


def test_a_batch_far_beyond_the_horizon_moves_at_most_a_fifth() -> None:
    controller = AdaptiveKL(0.2, 6.0, 10_000)
    assert controller.update(0.0, 60_000) == pytest.approx(0.2 * 0.8)
    assert controller.update(1e9, 60_000) == pytest.approx(0.2 * 0.8 * 1.2)


def test_the_coefficient_stays_within_its_bounds() -> None:
    controller = AdaptiveKL(0.2, 6.0, 10, minimum=0.1, maximum=0.3)
    for observed, bound in ((0.0, 0.1), (100.0, 0.3)):
        for _ in range(20):
            controller.update(observed, 10)
        assert controller.coefficient == bound


def test_negative_estimates_of_kl_lower_the_coefficient() -> None:
    controller = AdaptiveKL(0.2, 6.0, 100)
    assert controller.update(-3.0, 100) == pytest.approx(0.16)


def test_the_coefficient_of_a_batch_is_the_one_before_its_update() -> None:
    controller = AdaptiveKL(0.2, 6.0, 100)
    assert controller.coefficient == 0.2
    assert controller.update(12.0, 50) == controller.coefficient != 0.2
    before = controller.coefficient
    assert controller.update(12.0, 0) == before


def test_resuming_goes_on_exactly() -> None:
    first, second = AdaptiveKL(0.2, 6.0, 100), AdaptiveKL(0.5, 6.0, 100)
    first.update(7.0, 13)
    second.load_state(first.state())
    assert second.update(3.3, 17) == first.update(3.3, 17)


@pytest.mark.parametrize("observed", [float("nan"), float("inf")])
def test_a_kl_that_is_not_finite_is_refused_and_changes_nothing(observed: float) -> None:
    controller = AdaptiveKL(0.2, 6.0, 100)
    with pytest.raises(ValueError, match="finite"):
        controller.update(observed, 10)
    assert controller.coefficient == 0.2


@pytest.mark.parametrize(
    "options",
    [
        {"initial": 0.0},
        {"initial": 20.0},
        {"target": 0.0},
        {"horizon": 0.0},
        {"minimum": 0.0},
    ],
)
def test_impossible_settings_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"minimum|positive"):
        AdaptiveKL(**{"initial": 0.2, "target": 6.0, "horizon": 100.0, **options})
