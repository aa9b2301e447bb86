"""Losses, KL estimates and the KL controller against the golden vectors, gradients included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agentrl.learning.advantages import group_relative
from agentrl.learning.kl import AdaptiveKL
from agentrl.learning.losses import (
    aggregate_tokens,
    bradley_terry,
    cispo_loss,
    kl_estimate,
    policy_loss,
    truncated_importance_weights,
    value_loss,
)

Golden = dict[str, dict[str, Any]]


def vector(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def assert_close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(actual, dtype=torch.float64), vector(expected), rtol=1e-12, atol=1e-9)


def gradient(loss: Tensor, leaf: Tensor) -> Tensor:
    return torch.autograd.grad(loss, leaf)[0]


@pytest.mark.parametrize(("suffix", "dual"), [("", None), ("_dual", 3.0)])
def test_asymmetric_clip(golden: Golden, suffix: str, dual: float | None) -> None:
    given, expected = golden["ppo_clip_asymmetric"]["inputs"], golden["ppo_clip_asymmetric"]["outputs"]
    logprobs = vector(given["ratio"]).log().requires_grad_()
    old, advantages, mask = torch.zeros(2, 5).double(), vector(given["adv"]), vector(given["mask"]).bool()

    def loss(**options: Any) -> tuple[Tensor, dict[str, Tensor]]:
        return policy_loss(
            logprobs,
            old,
            advantages,
            mask,
            clip_low=given["eps_low"],
            clip_high=given["eps_high"],
            dual_clip=dual,
            **options,
        )

    aggregated = expected["agg" + suffix]
    assert_close(loss()[0], aggregated["token_mean"])
    assert_close(loss(aggregate="sequence_mean")[0], aggregated["seq_mean_token_mean"])
    assert_close(loss(aggregate="constant", constant=1.0)[0], aggregated["seq_mean_token_sum"])
    assert_close(loss(aggregate="constant", constant=given["Lmax"])[0], aggregated["seq_mean_token_sum_norm_const"])
    total, stats = loss(denominator=1.0)
    assert_close(gradient(total, logprobs), expected["dloss_dlogp" + suffix])
    assert_close((stats["clip_low"] + stats["clip_high"]) / stats["tokens"], expected["clipfrac"])
    assert_close(stats["clip_dual"] / stats["tokens"], expected["dual_clipfrac"] if dual else 0.0)


def test_gspo(golden: Golden) -> None:
    given, expected = golden["gspo"]["inputs"], golden["gspo"]["outputs"]
    logprobs = vector(given["log_ratio"]).requires_grad_()
    mask, advantages = vector(given["mask"]).bool(), vector(given["adv"])
    # One advantage per row (GSPO) and the same one on every token (GSPO-token) must agree.
    for shape in (advantages, advantages[:, None].expand(4, 4)):
        loss, stats = policy_loss(
            logprobs,
            torch.zeros(4, 4).double(),
            shape,
            mask,
            ratio="sequence",
            clip_low=given["eps_low"],
            clip_high=given["eps_high"],
            aggregate="sequence_mean",
        )
        assert_close(loss, expected["loss"])
        assert_close(gradient(loss, logprobs), expected["dloss_dlogp"])
        # Rows 0 (three tokens, A > 0) and 3 (two tokens, A < 0) are clipped.
        assert (float(stats["clip_high"]), float(stats["clip_low"])) == (3.0, 2.0)
        lengths = mask.sum(1).double()
        assert_close(stats["ratio_sum"], float((vector(expected["s"]) * lengths).sum()))
        assert_close(stats["ratio_max"], max(expected["s"]))


@pytest.mark.parametrize(("key", "low", "high"), [("cap5", 0.0, 5.0), ("verl_eps02", 0.8, 1.2)])
def test_cispo(golden: Golden, key: str, low: float, high: float) -> None:
    given, expected = golden["cispo"]["inputs"], golden["cispo"]["outputs"][key]
    logprobs = vector([given["logp"]]).requires_grad_()
    old = logprobs.detach() - vector([given["ratio"]]).log()
    mask = torch.ones(1, 4, dtype=torch.bool)
    loss, _ = cispo_loss(logprobs, old, vector([given["adv"]]), mask, cap_low=low, cap_high=high)
    assert_close(loss, expected["loss_token_mean"])
    assert_close(4 * gradient(loss, logprobs)[0], expected["dloss_dlogp"])


def test_dr_grpo(golden: Golden) -> None:
    given, expected = golden["dr_grpo"]["inputs"], golden["dr_grpo"]["outputs"]
    advantages = group_relative(vector(given["rewards"]), [0] * 4, scale="none")
    assert_close(advantages, expected["adv"])
    mask = torch.arange(max(given["lengths"])) < torch.tensor(given["lengths"])[:, None]
    logprobs = torch.zeros(mask.shape).double()
    for key, options in [
        ("loss_drgrpo", {"aggregate": "constant", "constant": given["Lmax"]}),
        ("loss_grpo_nostd", {"aggregate": "sequence_mean"}),
        ("loss_token_mean", {"aggregate": "token_mean"}),
    ]:
        loss, _ = policy_loss(logprobs, logprobs, advantages, mask, clip_low=0.2, clip_high=0.2, **options)
        assert_close(loss, expected[key])


def test_micro_batches_add_up_with_a_global_denominator(golden: Golden) -> None:
    given, expected = golden["loss_types_two_microbatches"]["inputs"], golden["loss_types_two_microbatches"]["outputs"]
    rows = [vector([values]) for values in given["loss_tok"]]

    def summed(aggregate: Any, denominator: float) -> float:
        return sum(float(aggregate_tokens(row, row > 0, aggregate=aggregate, denominator=denominator)) for row in rows)

    assert_close(summed("sequence_mean", 2), expected["grpo"])
    assert_close(summed("token_mean", 4), expected["dapo"])
    assert_close(summed("constant", 2 * given["Lmax"]), expected["dr_grpo"])


def test_token_mean_over_an_accumulated_step(golden: Golden) -> None:
    given = golden["grad_accum_token_mean"]["inputs"]
    micro = [torch.full((1, n), loss).double() for n, loss in zip(given["tokens"], given["mean_loss"], strict=True)]
    total = sum(float(aggregate_tokens(x, x > 0, denominator=sum(given["tokens"]))) for x in micro)
    assert_close(total, golden["grad_accum_token_mean"]["outputs"]["correct"])


def test_value_clip(golden: Golden) -> None:
    given, expected = golden["value_clip"]["inputs"], golden["value_clip"]["outputs"]
    values = vector([given["v_new"]]).requires_grad_()
    mask = torch.ones(1, 4, dtype=torch.bool)
    loss, stats = value_loss(values, vector([given["v_old"]]), vector([given["returns"]]), mask, clip=given["eps"])
    assert_close(loss, expected["loss"])
    assert_close(4 * gradient(loss, values)[0], expected["grad"])
    assert_close(stats["clipped"] / stats["tokens"], expected["clipfrac"])


@pytest.mark.parametrize(
    ("kind", "exact"), [("k1", "grad_k1_loss"), ("k2", "grad_exact_reverse_KL"), ("k3", "grad_forward_KL")]
)
def test_kl_estimators(golden: Golden, kind: Any, exact: str) -> None:
    given, expected = golden["kl_estimators"]["inputs"], golden["kl_estimators"]["outputs"]
    estimate = kl_estimate(vector(given["logp"]), vector(given["ref"]), kind=kind)
    assert_close(estimate, expected[kind])
    assert_close(estimate.mean(), expected["mean"][kind])

    q, p = vector(given["q"]), vector(given["p"])
    logits = q.log().requires_grad_()
    mean = (q * kl_estimate(logits.log_softmax(0), p.log(), kind=kind)).sum()
    assert_close(mean, expected[f"E_{kind}"])
    assert_close(gradient(mean, logits), expected[exact])


def test_k3_value_is_not_capped(golden: Golden) -> None:
    given, expected = golden["kl_k3_clamp"]["inputs"], golden["kl_k3_clamp"]["outputs"]
    logprobs = vector(given["d"]).requires_grad_()
    estimate = kl_estimate(logprobs, torch.zeros(5).double(), kind="k3")
    assert_close(estimate, expected["k3"])
    assert_close(gradient(estimate.sum(), logprobs), expected["grad"])


def test_k3_off_policy(golden: Golden) -> None:
    given = golden["kl_k3_offpolicy_corrected"]["inputs"]
    logprobs, old, ref = (vector(given[key]) for key in ("logp", "old", "ref"))
    corrected = (logprobs - old).exp() * kl_estimate(logprobs, ref, kind="k3")
    assert_close(corrected, [golden["kl_k3_offpolicy_corrected"]["outputs"]["corrected"]])


def test_kl_in_reward(golden: Golden) -> None:
    given, expected = golden["kl_in_reward"]["inputs"], golden["kl_in_reward"]["outputs"]
    k1 = kl_estimate(vector(given["logp"]), vector(given["ref"]), kind="k1")
    assert_close(k1, expected["k1"])
    rewards = -given["beta"] * k1
    rewards[-1] += given["score"]
    assert_close(rewards, expected["token_rewards"])


def test_adaptive_kl(golden: Golden) -> None:
    given, expected = golden["adaptive_kl"]["inputs"], golden["adaptive_kl"]["outputs"]
    controller = AdaptiveKL(given["beta0"], given["target"], given["horizon"])
    assert_close([controller.update(kl, given["n_steps"]) for kl in given["kl_seq"]], expected["beta_seq"])


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("ratio", {"cap": 100.0}),
        ("tis_token", {"cap": 2.0}),
        ("icepop_token", {"cap": 2.0, "above": "zero", "floor": 0.5}),
        ("openrlhf_tis", {"cap": 5.0, "floor": 0.5}),
        ("seq_ratio", {"cap": 100.0, "level": "sequence"}),
        ("seq_truncate_C2", {"cap": 2.0, "level": "sequence"}),
        ("seq_mask_C3", {"cap": 3.0, "level": "sequence", "above": "zero"}),
    ],
)
def test_truncated_importance_weights(golden: Golden, key: str, options: dict[str, Any]) -> None:
    given = golden["tis"]["inputs"]
    mask = vector(given["mask"]).bool()
    weights = truncated_importance_weights(
        vector(given["logp_train_old"]), vector(given["logp_rollout"]), mask, **options
    )
    expected = vector(golden["tis"]["outputs"][key])
    assert_close(weights, (expected if expected.dim() == 2 else expected[:, None] * mask).tolist())


def test_bradley_terry(golden: Golden) -> None:
    given, expected = golden["bradley_terry"]["inputs"], golden["bradley_terry"]["outputs"]
    chosen, rejected = vector(given["chosen"]).requires_grad_(), vector(given["rejected"])
    loss = bradley_terry(chosen, rejected)
    assert_close(loss, expected["loss"])
    assert_close(gradient(loss, chosen), expected["grad_chosen"])
    assert_close(bradley_terry(chosen[:3], rejected[:3]), expected["loss_first3"])
    assert_close(bradley_terry(chosen, rejected, margin=vector(given["margin"])), expected["loss_margin"])
    centering = given["center_coef"]
    assert_close(bradley_terry(chosen, rejected, centering=centering), expected["loss_centered"])
    assert_close(bradley_terry(chosen[:3], rejected[:3], centering=centering), expected["loss_first3_centered"])
