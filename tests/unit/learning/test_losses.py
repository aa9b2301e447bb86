"""Losses: properties and faults. The golden values are in tests/golden."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from agentrl.learning.losses import (
    aggregate_tokens,
    bradley_terry,
    cispo_loss,
    kl_estimate,
    policy_loss,
    truncated_importance_weights,
    value_loss,
)

NAN = float("nan")
ROWS, WIDTH = 5, 6
LENGTHS = torch.tensor([6, 1, 3, 0, 4])
MASK = torch.arange(WIDTH) < LENGTHS[:, None]

SETTINGS: dict[str, dict[str, Any]] = {
    "ppo": {"clip_low": 0.2, "clip_high": 0.28, "dual_clip": 3.0},
    "grpo": {"clip_low": 0.2, "clip_high": 0.2, "aggregate": "sequence_mean"},
    "dr_grpo": {"clip_low": 0.2, "clip_high": 0.2, "aggregate": "constant", "constant": 10.0},
    "gspo": {"clip_low": 0.05, "clip_high": 0.1, "ratio": "sequence", "aggregate": "sequence_mean"},
}
DENOMINATORS = {"ppo": 14.0, "grpo": 4.0, "dr_grpo": 40.0, "gspo": 4.0, "cispo": 14.0, "value": 14.0}


def batch(seed: int = 0, spread: float = 0.3) -> dict[str, Tensor]:
    """Random [B,T] inputs in float64, `logprobs` a leaf; the ratios scatter around 1 by about `spread`."""
    generator = torch.Generator().manual_seed(seed)

    def normal() -> Tensor:
        return torch.randn(ROWS, WIDTH, generator=generator, dtype=torch.float64)

    old = -normal().abs()
    return {
        "logprobs": (old + spread * normal()).requires_grad_(),
        "old_logprobs": old,
        "advantages": normal(),
        "weights": normal().abs() + 0.1,
    }


def run(name: str, data: dict[str, Tensor], mask: Tensor, **more: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss called `name` on the batch; for "value", log-probabilities stand in for values."""
    if name == "value":
        columns = (data["logprobs"], data["old_logprobs"], data["advantages"], mask)
        return value_loss(*columns, clip=0.2, **more)
    if name == "cispo":
        return cispo_loss(**data, mask=mask, cap_low=0.8, cap_high=1.3, **more)
    return policy_loss(**data, mask=mask, **SETTINGS[name], **more)


def gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    return torch.autograd.grad(loss, leaf)[0]


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


# --- on-policy gradients, finite differences ---


@pytest.mark.parametrize("name", ["ppo", "grpo", "dr_grpo", "gspo", "cispo"])
def test_on_policy_every_loss_has_the_reinforce_gradient(name: str) -> None:
    data = batch(spread=0.0)
    loss, stats = run(name, data, MASK)
    expected = -data["advantages"] * data["weights"] * MASK / DENOMINATORS[name]
    if name in ("grpo", "gspo"):
        expected = expected / LENGTHS.clamp(min=1)[:, None]
    close(gradient(loss, data["logprobs"]), expected)
    assert float(stats["ratio_max"]) == 1.0
    assert float(stats["ratio_sum"]) == float(stats["tokens"]) == 14.0
    assert float(stats["kl_old_sum"]) == 0.0


@pytest.mark.parametrize("name", ["ppo", "grpo", "dr_grpo"])
def test_token_losses_agree_with_finite_differences_through_a_model(name: str) -> None:
    """A bigram model: row t of the table holds the logits after token t."""
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(0, 4, (ROWS, WIDTH + 1), generator=generator)
    data = batch(1)

    def loss(table: Tensor) -> Tensor:
        logprobs = table[tokens[:, :-1]].log_softmax(-1).gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return run(name, {**data, "logprobs": logprobs}, MASK)[0]

    table = torch.randn(4, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, table)
    assert bool(gradient(loss(table), table).any())


@pytest.mark.parametrize(
    "function",
    [
        lambda x, d: run("ppo", {**d, "logprobs": x}, MASK)[0],
        lambda x, d: run("gspo", {**d, "logprobs": x, "advantages": d["advantages"][:, 0]}, MASK)[0],
        lambda x, d: run("value", {**d, "logprobs": x}, MASK)[0],
        lambda x, d: kl_estimate(x, d["old_logprobs"], kind="k1", mask=MASK).sum(),
        lambda x, d: kl_estimate(x, d["old_logprobs"], kind="k2", mask=MASK).sum(),
        lambda x, d: kl_estimate(x, d["old_logprobs"], kind="k3", mask=MASK).sum(),
        lambda x, d: bradley_terry(x.flatten(), d["old_logprobs"].flatten(), margin=0.3, centering=0.01),
    ],
    ids=["ppo", "gspo", "value", "k1", "k2", "k3", "bradley_terry"],
)
def test_gradients_agree_with_finite_differences(function: Callable[[Tensor, dict[str, Tensor]], Tensor]) -> None:
    data = batch(2)
    logprobs = data["logprobs"]
    assert torch.autograd.gradcheck(lambda x: function(x, data), logprobs)
    assert bool(gradient(function(logprobs, data), logprobs).any())


def test_cispo_differentiates_the_log_probability_only() -> None:
    data = batch(3)
    ratios = (data["logprobs"] - data["old_logprobs"]).exp().detach()
    assert bool((ratios[MASK] > 1.3).any() and (ratios[MASK] < 0.8).any())
    loss, stats = run("cispo", data, MASK)
    expected = -ratios.clamp(0.8, 1.3) * data["advantages"] * data["weights"] * MASK / 14
    close(gradient(loss, data["logprobs"]), expected)
    assert float(stats["cap_high"]) == float((ratios[MASK] > 1.3).sum())
    assert float(stats["cap_low"]) == float((ratios[MASK] < 0.8).sum())
    _, stats = cispo_loss(**data, mask=MASK, cap_high=0.5)
    assert float(stats["cap_high"]) == float((ratios[MASK] > 0.5).sum())


def test_kl_to_the_old_policy_is_that_of_old_relative_to_new() -> None:
    """Tokens in the exact proportions of the old policy, so that the mean over tokens is its expectation."""
    tokens = torch.tensor([[0, 0, 1, 2]])
    old, new = torch.tensor([[0.5, 0.25, 0.25], [0.2, 0.5, 0.3]], dtype=torch.float64).log()
    mask = torch.ones(1, 4, dtype=torch.bool)
    _, stats = policy_loss(new[tokens], old[tokens], torch.ones(1), mask, clip_low=0.2, clip_high=0.2)
    close(stats["kl_old_sum"] / stats["tokens"], (old.exp() * (old - new)).sum())


def test_gspo_token_gives_each_token_its_own_advantage() -> None:
    data = batch(4, spread=0.01)
    loss, _ = run("gspo", data, MASK)
    lengths = LENGTHS.clamp(min=1)[:, None]
    log_ratio = torch.where(MASK, data["logprobs"] - data["old_logprobs"], 0.0).detach()
    sequence_ratio = (log_ratio.sum(1, keepdim=True) / lengths).exp()
    per_token = -sequence_ratio * data["advantages"] * data["weights"] * MASK / lengths / 4
    close(loss, per_token.sum())
    close(gradient(loss, data["logprobs"]), per_token)


# --- masks and denominators ---


@pytest.mark.parametrize("poison", [NAN, float("inf"), 1e4])
@pytest.mark.parametrize("name", ["ppo", "grpo", "dr_grpo", "gspo", "cispo", "value"])
def test_unsampled_tokens_change_nothing(name: str, poison: float) -> None:
    clean = batch(6)
    loss, stats = run(name, clean, MASK)
    expected = gradient(loss, clean["logprobs"])
    assert not expected[~MASK].any()

    # The same tokens with an unsampled one before each, and two columns of padding after the last.
    wide = torch.zeros(ROWS, 2 * WIDTH + 2, dtype=torch.bool)
    wide[:, 1 : 2 * WIDTH : 2] = MASK
    poisoned = {key: torch.full(wide.shape, poison, dtype=torch.float64) for key in clean}
    for key, tensor in clean.items():
        poisoned[key][wide] = tensor.detach()[MASK]
    poisoned["logprobs"].requires_grad_()
    wide_loss, wide_stats = run(name, poisoned, wide)
    close(wide_loss, loss)
    actual = gradient(wide_loss, poisoned["logprobs"])
    close(actual[wide], expected[MASK])
    assert torch.equal(actual[~wide], torch.zeros_like(actual[~wide]))
    for key, value in stats.items():
        close(wide_stats[key], value)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_a_masked_kl_lets_no_nan_into_the_gradient(kind: Any) -> None:
    logprobs = torch.full((1, 2), NAN, requires_grad=True)
    estimate = kl_estimate(logprobs, logprobs.detach(), kind=kind, mask=torch.tensor([[False, False]]))
    assert torch.equal(gradient(estimate.sum(), logprobs), torch.zeros(1, 2))
    assert torch.equal(estimate, torch.zeros(1, 2))


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [3, 4, 1, 0, 2]])
@pytest.mark.parametrize("sizes", [[5], [2, 3], [1, 1, 1, 1, 1]])
@pytest.mark.parametrize("name", ["ppo", "grpo", "dr_grpo", "gspo", "cispo", "value"])
def test_micro_batches_add_up_to_the_batch(name: str, sizes: list[int], order: list[int]) -> None:
    data = batch(7)
    whole, stats = run(name, data, MASK)
    expected = gradient(whole, data["logprobs"])
    actual, total = torch.zeros_like(expected), torch.zeros_like(whole)
    summed = {key: torch.zeros_like(value) for key, value in stats.items()}
    for rows in torch.tensor(order).split(sizes):
        micro = {key: tensor[rows] for key, tensor in data.items()}
        loss, micro_stats = run(name, micro, MASK[rows], denominator=DENOMINATORS[name])
        actual += gradient(loss, data["logprobs"])
        total += loss.detach()
        for key, value in micro_stats.items():
            summed[key] = torch.maximum(summed[key], value) if key == "ratio_max" else summed[key] + value
    close(actual, expected)
    close(total, whole.detach())
    for key, value in stats.items():
        close(summed[key], value)


def test_a_batch_without_tokens_has_zero_loss_and_gradient() -> None:
    for name in DENOMINATORS:
        data = batch(8)
        assert float(run(name, {k: x[:, :0] for k, x in data.items()}, MASK[:, :0])[0].detach()) == 0.0
        loss, stats = run(name, data, torch.zeros_like(MASK))
        assert float(loss.detach()) == 0.0
        assert not gradient(loss, data["logprobs"]).any()
        assert all(float(value) == 0.0 for value in stats.values())


def test_weights_leave_the_denominator_alone() -> None:
    data = batch(9)
    full, _ = run("ppo", data, MASK)
    half, _ = run("ppo", {**data, "weights": data["weights"] * 0.5}, MASK)
    close(half, full / 2)
    excluded = data["weights"].clone()
    excluded[0] = 0.0
    loss, _ = run("ppo", {**data, "weights": excluded}, MASK)
    rest, _ = run("ppo", data, MASK & (torch.arange(ROWS) > 0)[:, None], denominator=14)
    close(loss, rest)
    assert not gradient(loss, data["logprobs"])[0].any()


def test_only_log_probabilities_get_a_gradient() -> None:
    data = {key: tensor.detach().requires_grad_() for key, tensor in batch(10).items()}
    for name in ("ppo", "gspo", "cispo", "value"):
        loss, _ = run(name, data, MASK)
        others = [tensor for key, tensor in data.items() if key != "logprobs"]
        assert torch.autograd.grad(loss, others, allow_unused=True) == (None, None, None)


def test_a_nan_at_a_sampled_token_is_not_hidden() -> None:
    for name in DENOMINATORS:
        for key in ("logprobs", "old_logprobs", "advantages"):
            data = batch(11)
            with torch.no_grad():
                data[key][0, 0] = NAN
            assert run(name, data, MASK)[0].isnan()


# --- numerical range ---


@pytest.mark.parametrize("gap", [-200.0, 200.0])
def test_extreme_log_ratios_stay_finite_in_float32(gap: float) -> None:
    mask = torch.ones(1, 1, dtype=torch.bool)
    for advantage in (-1.0, 1.0):
        for ratio, aggregate in (("token", "token_mean"), ("sequence", "sequence_mean")):
            logprobs = torch.tensor([[gap]], requires_grad=True)
            loss, stats = policy_loss(
                logprobs,
                torch.zeros(1, 1),
                torch.tensor([advantage]),
                mask,
                ratio=ratio,  # type: ignore[arg-type]
                aggregate=aggregate,  # type: ignore[arg-type]
                clip_low=0.2,
                clip_high=0.2,
            )
            assert loss.isfinite()
            assert gradient(loss, logprobs).isfinite().all()
            assert all(value.isfinite() for value in stats.values())
    logprobs = torch.tensor([[gap]], requires_grad=True)
    estimate = kl_estimate(logprobs, torch.zeros(1, 1), kind="k3")
    assert estimate.isfinite().all()
    assert gradient(estimate.sum(), logprobs).isfinite().all()
    weights = truncated_importance_weights(logprobs, torch.zeros(1, 1), mask, cap=1e30)
    assert float(weights) == pytest.approx(float(torch.tensor(20.0 if gap > 0 else -20.0).exp()))


def test_k3_of_a_tiny_difference_keeps_its_digits_in_float32() -> None:
    difference = 1e-4
    estimate = kl_estimate(torch.tensor([difference]), torch.zeros(1), kind="k3")
    assert float(estimate) == pytest.approx(difference**2 / 2, rel=1e-2)


def test_half_precision_is_computed_in_float32() -> None:
    data = {key: tensor.detach().to(torch.bfloat16) for key, tensor in batch(12).items()}
    data["logprobs"].requires_grad_()
    loss, _ = run("ppo", data, MASK)
    wide, _ = run("ppo", {key: tensor.detach().float() for key, tensor in data.items()}, MASK)
    assert loss.dtype == torch.float32
    assert torch.equal(loss, wide)
    assert gradient(loss, data["logprobs"]).dtype == torch.bfloat16


def test_bradley_terry_is_finite_where_exp_overflows() -> None:
    chosen = torch.tensor([-100.0, 100.0], requires_grad=True)
    loss = bradley_terry(chosen, torch.zeros(2))
    assert float(loss.detach()) == pytest.approx(50.0)
    torch.testing.assert_close(gradient(loss, chosen), torch.tensor([-0.5, 0.0]))


# --- options ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": "sequence"}, "token_mean"),
        ({"ratio": "turn"}, "ratio"),
        ({"aggregate": "mean"}, "aggregate"),
        ({"aggregate": "constant"}, "constant"),
        ({"constant": 5.0}, "constant"),
        ({"aggregate": "constant", "constant": 5.0, "denominator": 4.0}, "denominator"),
        ({"aggregate": "constant", "constant": 5.0, "denominator": 8.0}, "denominator"),
        ({"aggregate": "constant", "constant": 0.0}, "constant"),
        ({"denominator": 0.0}, "denominator"),
        ({"dual_clip": 0.9}, "dual_clip"),
        ({"clip_low": -0.1}, "clip_low"),
    ],
)
def test_options_that_cannot_be_honoured_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy_loss(**batch(), mask=MASK, **{"clip_low": 0.2, "clip_high": 0.2, **options})


@pytest.mark.parametrize("key", ["logprobs", "old_logprobs", "advantages", "weights"])
def test_shapes_must_match(key: str) -> None:
    data = batch()
    data[key] = data[key][:, :1]
    with pytest.raises(ValueError, match="shape"):
        run("ppo", data, MASK)


def test_other_losses_refuse_what_they_cannot_honour() -> None:
    data, zeros = batch(), torch.zeros(ROWS, WIDTH)
    with pytest.raises(ValueError, match="cap_low"):
        cispo_loss(**data, mask=MASK, cap_low=2.0, cap_high=1.0)
    with pytest.raises(ValueError, match="clip"):
        value_loss(zeros, zeros, zeros, MASK, clip=0.0)
    with pytest.raises(ValueError, match="kind"):
        kl_estimate(zeros, zeros, kind="k4")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shape"):
        kl_estimate(zeros, zeros[:, :1], kind="k1")
    with pytest.raises(ValueError, match="floor"):
        truncated_importance_weights(zeros, zeros, MASK, cap=1.0, floor=2.0)
    with pytest.raises(ValueError, match="above"):
        truncated_importance_weights(zeros, zeros, MASK, cap=1.0, above="drop")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rejected"):
        bradley_terry(torch.zeros(2), torch.zeros(1))
    with pytest.raises(ValueError, match="margin"):
        bradley_terry(torch.zeros(2), torch.zeros(2), margin=torch.zeros(3))


def test_value_loss_without_clip_is_the_squared_error() -> None:
    values, returns = torch.tensor([[3.0, 9.0]]), torch.tensor([[1.0, 0.0]])
    loss, stats = value_loss(values, torch.zeros(1, 2), returns, torch.tensor([[True, False]]), clip=None)
    assert float(loss) == 2.0
    assert (float(stats["squared_error_sum"]), float(stats["clipped"])) == (4.0, 0.0)


def test_sequence_weights_are_the_product_and_never_a_gradient() -> None:
    trainer = torch.tensor([[0.1, 0.2, 5.0], [3.0, -1.0, 0.5]], requires_grad=True)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    options: dict[str, Any] = {"level": "sequence", "cap": 2.0}
    truncated = truncated_importance_weights(trainer, torch.zeros(2, 3), mask, **options)
    zeroed = truncated_importance_weights(trainer, torch.zeros(2, 3), mask, above="zero", **options)
    first = float(torch.tensor(0.3).exp())
    torch.testing.assert_close(truncated, torch.tensor([[first, first, 0.0], [2.0, 2.0, 2.0]]))
    torch.testing.assert_close(zeroed, torch.tensor([[first, first, 0.0], [0.0, 0.0, 0.0]]))
    assert not truncated.requires_grad


def test_aggregates_ignore_padding_width_and_empty_rows() -> None:
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, NAN, NAN], [NAN, NAN, NAN]])
    mask = torch.tensor([[True, True, True], [True, False, False], [False, False, False]])
    assert float(aggregate_tokens(x, mask)) == 2.5
    assert float(aggregate_tokens(x, mask, aggregate="sequence_mean")) == 3.0
    assert float(aggregate_tokens(x, mask, aggregate="constant", constant=5.0)) == 1.0
    assert float(aggregate_tokens(x, mask, aggregate="constant", constant=5.0, denominator=20.0)) == 0.5
    assert float(aggregate_tokens(x, mask, aggregate="constant", denominator=20.0)) == 0.5
