"""Advantages against the golden vectors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agentrl.learning.advantages import (
    explained_variance,
    gae,
    group_relative,
    leave_one_out,
    process_group_relative,
    soft_overlong,
    turn_leave_one_out,
    turn_returns,
    whiten,
)

Golden = dict[str, dict[str, Any]]


def vector(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def row(values: Any) -> Tensor:
    return vector([values])


def mask_row(values: Any) -> Tensor:
    return torch.tensor([values]).bool()


def assert_close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(actual, dtype=torch.float64), vector(expected), rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["gae_masked", "gae_masked_gamma1_lam1"])
def test_gae_skips_unsampled_tokens(golden: Golden, name: str) -> None:
    given, expected = golden[name]["inputs"], golden[name]["outputs"]
    mask = mask_row(given["mask"])
    advantages, returns = gae(row(given["rewards"]), row(given["values"]), mask, gamma=given["gamma"], lam=given["lam"])
    assert_close(advantages[0], expected["adv_skip"])
    if "ret_skip" in expected:
        assert_close(returns[0], expected["ret_skip"])
        assert_close(whiten(advantages, mask)[0], expected["whitened_skip_ddof1_eps1e8"])
        assert_close(whiten(advantages, mask, ddof=0)[0], expected["whitened_skip_ddof0_eps1e8"])


def test_gae_moves_a_reward_from_the_masked_tail(golden: Golden) -> None:
    given, expected = golden["gae_reward_on_masked_tail"]["inputs"], golden["gae_reward_on_masked_tail"]["outputs"]
    for rewards in (given["rewards"], given["moved_rewards"]):
        advantages, _ = gae(
            row(rewards), row(given["values"]), mask_row(given["mask"]), gamma=given["gamma"], lam=given["lam"]
        )
        assert_close(advantages[0], expected["adv_skip_moved"])


def test_gae_bootstraps_truncated_rows(golden: Golden) -> None:
    given, expected = golden["gae_truncated_bootstrap"]["inputs"], golden["gae_truncated_bootstrap"]["outputs"]
    advantages, _ = gae(
        vector([given["rewards"]] * 2),
        vector([given["values"]] * 2),
        torch.ones(2, 3, dtype=torch.bool),
        gamma=given["gamma"],
        lam=given["lam"],
        bootstrap=vector([given["last_value"], 0.0]),
    )
    assert_close(advantages, [expected["adv_bootstrap"], expected["adv_terminal"]])


def test_gae_with_the_score_on_the_last_sampled_token(golden: Golden) -> None:
    given, expected = golden["reward_placement"]["inputs"], golden["reward_placement"]["outputs"]
    # The fifth slot is padding; a score put there must count exactly like one put on the end-of-text token.
    for slot in (3, 4):
        rewards = torch.zeros(1, 5, dtype=torch.float64)
        rewards[0, slot] = given["score"]
        advantages, _ = gae(
            rewards, row(given["values"]), mask_row([1, 1, 1, 1, 0]), gamma=given["gamma"], lam=given["lam"]
        )
        assert_close(advantages[0, :4], expected["adv_eos"])


def test_whiten_keeps_the_mean_on_request(golden: Golden) -> None:
    rewards = row(golden["reward_whiten"]["inputs"]["rewards"])
    mask = torch.ones_like(rewards, dtype=torch.bool)
    for ddof in (0, 1):
        whitened = whiten(rewards, mask, shift_mean=False, ddof=ddof)
        assert_close(whitened[0], golden["reward_whiten"]["outputs"][f"ddof{ddof}"])


@pytest.mark.parametrize(
    ("key", "options"),
    [
        ("ddof0_eps0", {"ddof": 0, "eps": 0.0}),
        ("ddof1_eps0", {"eps": 0.0}),
        ("ddof1_eps1e-4_TRL", {}),
        ("ddof1_eps1e-6_verl", {"eps": 1e-6}),
        ("ddof1_eps1e-8_oat", {"eps": 1e-8}),
        ("ddof1_eps1e-9_openrlhf", {"eps": 1e-9}),
        ("no_std_drgrpo", {"scale": "none"}),
    ],
)
def test_group_relative(golden: Golden, key: str, options: dict[str, Any]) -> None:
    groups = golden["grpo_outcome"]["inputs"]["groups"]
    ids = torch.arange(len(groups)).repeat_interleave(4)
    assert_close(
        group_relative(vector(groups).flatten(), ids, **options).view(-1, 4), golden["grpo_outcome"]["outputs"][key]
    )


@pytest.mark.parametrize("ddof", [0, 1])
def test_group_relative_of_binary_rewards(golden: Golden, ddof: int) -> None:
    given, expected = golden["grpo_binary_closed_form"]["inputs"], golden["grpo_binary_closed_form"]["outputs"]
    right, size = given["c"], given["G"]
    advantages = group_relative(vector([1.0] * right + [0.0] * (size - right)), [0] * size, ddof=ddof, eps=0.0)
    wanted = [expected[f"pos_ddof{ddof}"]] * right + [expected[f"neg_ddof{ddof}"]] * (size - right)
    assert_close(advantages, wanted)


@pytest.mark.parametrize(("key", "ddof", "eps"), [("ddof0_eps0", 0, 0.0), ("ddof1_eps1e-6", 1, 1e-6)])
def test_process_group_relative(golden: Golden, key: str, ddof: int, eps: float) -> None:
    given, expected = golden["grpo_process"]["inputs"], golden["grpo_process"]["outputs"][key]
    advantages = process_group_relative(
        given["step_rewards"], given["step_end_index"], given["lengths"], [7, 7, 7], ddof=ddof, eps=eps
    )
    for actual, wanted in zip(advantages, expected["token_adv"], strict=True):
        assert_close(actual, wanted)


def test_leave_one_out(golden: Golden) -> None:
    given, expected = golden["rloo"]["inputs"], golden["rloo"]["outputs"]
    rewards = vector(given["rewards"])
    assert_close(leave_one_out(rewards, [0] * 4), expected["adv"])
    assert_close(leave_one_out(rewards - given["beta"] * vector(given["seq_kl"]), [0] * 4), expected["adv_with_kl"])


def test_reinforce_pp_is_whitening_over_tokens(golden: Golden) -> None:
    given, expected = golden["reinforce_pp"]["inputs"], golden["reinforce_pp"]["outputs"]
    rewards, lengths = vector(given["rewards"]), torch.tensor(given["lengths"])
    mask = torch.arange(3) < lengths[:, None]
    baseline = group_relative(rewards, given["group"], scale="none")
    for key, advantages, ddof in [
        ("plain_ddof1", rewards, 1),
        ("baseline_ddof1", baseline, 1),
        ("baseline_ddof0", baseline, 0),
    ]:
        assert_close(whiten(advantages[:, None].expand(6, 3), mask, ddof=ddof)[:, 0], expected[key])


def test_discounted_return_carries_through_tool_output(golden: Golden) -> None:
    given = golden["reinforce_pp_tool_span"]["inputs"]
    mask = mask_row(given["mask"])
    _, returns = gae(row(given["rewards"]), torch.zeros(1, 3).double(), mask, gamma=given["gamma"], lam=1.0)
    assert_close(returns[0], golden["reinforce_pp_tool_span"]["outputs"]["skip"])


def test_soft_overlong(golden: Golden) -> None:
    cases = golden["dapo_overlong"]["inputs"]["cases"]
    penalties = [
        float(soft_overlong(vector([length]), max_length=limit, cache=cache)) for length, limit, cache in cases
    ]
    assert_close(penalties, golden["dapo_overlong"]["outputs"]["penalty"])


def test_turn_returns(golden: Golden) -> None:
    given = golden["turn_discount"]["inputs"]
    assert_close(turn_returns(given["turn_rewards"], gamma=given["gamma"]), golden["turn_discount"]["outputs"]["G"])


def test_turn_leave_one_out(golden: Golden) -> None:
    rewards = golden["turn_leave_one_out"]["inputs"]["turn_rewards"]
    for actual, wanted in zip(
        turn_leave_one_out(rewards, [0, 0, 0]),
        golden["turn_leave_one_out"]["outputs"]["leave_one_out"],
        strict=True,
    ):
        assert_close(actual, wanted)


@pytest.mark.parametrize("name", ["explained_variance", "explained_variance_2"])
def test_explained_variance(golden: Golden, name: str) -> None:
    given = golden[name]["inputs"]
    mask = torch.ones(1, 4, dtype=torch.bool)
    actual = explained_variance(row(given["values"]), row(given["returns"]), mask)
    assert_close(actual, golden[name]["outputs"]["ev"])


@pytest.mark.parametrize(("key", "options"), [("A_mean_norm", {"scale": "none"}), ("A_mean_std_norm", {"eps": 1e-6})])
def test_gigpo_is_two_group_comparisons(golden: Golden, key: str, options: dict[str, Any]) -> None:
    given = golden["gigpo"]["inputs"]
    rollouts = given["trajectories"]
    anchors = [observation for rollout in rollouts for observation in rollout["obs"]]
    names = sorted(set(anchors))
    step_returns = [g for rollout in rollouts for g in turn_returns(rollout["r"], gamma=given["gamma"])]
    step = group_relative(vector(step_returns), [names.index(anchor) for anchor in anchors], **options)
    episode = group_relative(vector([sum(rollout["r"]) for rollout in rollouts]), [0] * len(rollouts), **options)
    owner = torch.arange(len(rollouts)).repeat_interleave(torch.tensor([len(rollout["r"]) for rollout in rollouts]))
    expected = [value for rollout in golden["gigpo"]["outputs"][key] for value in rollout]
    assert_close(episode[owner] + given["omega"] * step, expected)


def test_mt_grpo_is_a_sum_of_group_comparisons(golden: Golden) -> None:
    given, expected = golden["mt_grpo"]["inputs"], golden["mt_grpo"]["outputs"]
    turn, outcome = vector(given["turn"]), vector(given["outcome"])
    assert_close(group_relative(outcome, [0] * 4) + group_relative(turn, [0] * 4), expected["aae_turn1"])
    assert_close(group_relative(outcome, [0] * 4), expected["aae_turn2"])
    assert_close(group_relative(turn + outcome, [0] * 4), expected["cae_turn1"])
