"""Advantages: properties and faults. The golden values are in tests/golden."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
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

NAN = float("nan")
REWARDS = st.floats(-10, 10, allow_nan=False).map(lambda x: round(x, 3))


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


# --- gae ---


def test_gae_equals_the_sum_over_later_deltas() -> None:
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(2, 1, 6, generator=generator, dtype=torch.float64)
    gamma, lam, last = 0.9, 0.8, 0.37
    following = torch.cat([values[0, 1:], vector(last)])
    delta = rewards[0] + gamma * following - values[0]
    expected = torch.stack([sum((gamma * lam) ** (u - t) * delta[u] for u in range(t, 6)) for t in range(6)])
    mask = torch.ones(1, 6, dtype=torch.bool)
    advantages, returns = gae(rewards, values, mask, gamma=gamma, lam=lam, bootstrap=vector(last))
    close(advantages[0], expected)
    close(returns, advantages + values)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.tuples(REWARDS, REWARDS, st.integers(0, 3)), min_size=1, max_size=6), st.sampled_from([NAN, 100.0]))
def test_gae_is_blind_to_inserted_tokens(tokens: list[tuple[float, float, int]], poison: float) -> None:
    """Each sampled token is followed by 0-3 unsampled ones with a poisoned value and no (or a NaN) reward."""
    compact_mask = torch.ones(1, len(tokens), dtype=torch.bool)
    rewards, values = (vector(*column)[None] for column in list(zip(*tokens, strict=True))[:2])
    spread_rewards, spread_values, spread_mask = [0.0], [poison], [False]
    for reward, value, gap in tokens:
        spread_rewards += [reward] + [0.0 if poison == poison else NAN] * gap
        spread_values += [value] + [poison] * gap
        spread_mask += [True] + [False] * gap
    mask = torch.tensor([spread_mask])
    compact = gae(rewards, values, compact_mask, gamma=0.97, lam=0.9)
    spread = gae(vector(*spread_rewards)[None], vector(*spread_values)[None], mask, gamma=0.97, lam=0.9)
    for inserted, plain in zip(spread, compact, strict=True):
        assert torch.equal(inserted[mask], plain[0])
        assert torch.equal(inserted[~mask], torch.zeros_like(inserted[~mask]))


def test_gae_moves_every_reward_to_the_action_before_it() -> None:
    mask = torch.tensor([[False, True, False, False, True, False]])
    advantages, _ = gae(
        vector(5.0, 1.0, 10.0, 100.0, 1000.0, 10000.0)[None], torch.zeros(1, 6).double(), mask, gamma=0.5, lam=0.0
    )
    close(advantages[0, mask[0]], vector(111.0, 11000.0))


def test_gae_of_a_row_without_sampled_tokens_is_zero() -> None:
    mask = torch.tensor([[True, True], [False, False]])
    values = torch.tensor([[0.1, 0.2], [NAN, NAN]])
    advantages, returns = gae(torch.ones(2, 2), values, mask, gamma=1.0, lam=1.0, bootstrap=torch.tensor([0.0, 9.0]))
    assert torch.equal(advantages[1], torch.zeros(2))
    assert torch.equal(returns[1], torch.zeros(2))
    assert advantages.isfinite().all()
    assert gae(torch.ones(2, 0), torch.ones(2, 0), mask[:, :0], gamma=1.0, lam=1.0)[0].shape == (2, 0)


def test_gae_carries_no_gradient_to_the_critic() -> None:
    values = torch.zeros(1, 2, requires_grad=True)
    advantages, returns = gae(torch.ones(1, 2), values, torch.ones(1, 2, dtype=torch.bool), gamma=1.0, lam=1.0)
    assert not advantages.requires_grad
    assert not returns.requires_grad


def test_a_nan_at_a_sampled_token_is_not_hidden() -> None:
    mask = torch.ones(1, 3, dtype=torch.bool)
    advantages, _ = gae(vector(0.0, NAN, 1.0)[None], torch.zeros(1, 3).double(), mask, gamma=1.0, lam=1.0)
    assert advantages[0].isnan().tolist() == [True, True, False]


@pytest.mark.parametrize("mask", [torch.ones(1, 2), torch.ones(1, 3, dtype=torch.bool), torch.ones(2).bool()])
def test_swapped_or_broadcast_masks_are_refused(mask: Tensor) -> None:
    with pytest.raises(ValueError, match="mask"):
        gae(torch.ones(1, 2), torch.ones(1, 2), mask, gamma=1.0, lam=1.0)
    with pytest.raises(ValueError, match="mask"):
        whiten(torch.ones(1, 2), mask)


def test_a_bootstrap_of_the_wrong_shape_is_refused() -> None:
    ones = torch.ones(2, 2)
    with pytest.raises(ValueError, match="bootstrap"):
        gae(ones, ones, ones.bool(), gamma=1.0, lam=1.0, bootstrap=torch.ones(2, 1))


# --- groups ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("reward", [0.1, 0.7, 1 / 3])
def test_equal_rewards_give_exactly_zero(reward: float, size: int, dtype: torch.dtype) -> None:
    rewards, ids = torch.full((size,), reward, dtype=dtype), [3] * size
    zero = torch.zeros(size, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    for advantages in (
        group_relative(rewards, ids, eps=1e-9),
        group_relative(rewards, ids, scale="none"),
        leave_one_out(rewards, ids),
    ):
        assert torch.equal(advantages, zero)
    assert not torch.cat(process_group_relative([[reward] * 2] * size, [[0, 1]] * size, [2] * size, ids)).any()
    assert not torch.cat(turn_leave_one_out([[reward]] * size, ids)).any()
    assert not whiten(rewards[None], torch.ones(1, size, dtype=torch.bool)).any()


def test_differences_of_a_millionth_count_as_equal() -> None:
    for rewards in (vector(0.5, 0.5000005, 0.5), vector(0.5, 0.500002, 0.5)):
        real = bool(rewards.max() - rewards.min() > 1e-6)
        ids = [0, 0, 0]
        for advantages in (
            group_relative(rewards, ids, eps=1e-9),
            leave_one_out(rewards, ids),
            torch.cat(process_group_relative(rewards[:, None], [[0]] * 3, [1] * 3, ids, eps=1e-9)),
            torch.cat(turn_leave_one_out(rewards[:, None], ids)),
            whiten(rewards[None], torch.ones(1, 3, dtype=torch.bool)),
        ):
            assert bool(advantages.any()) == real


@settings(derandomize=True, deadline=None, max_examples=50)
@given(st.lists(st.tuples(REWARDS, st.integers(0, 3)), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_the_batch_does_not_matter(members: list[tuple[float, int]], shuffler: random.Random) -> None:
    order = list(range(len(members)))
    shuffler.shuffle(order)
    rewards, ids = vector(*[r for r, _ in members]), torch.tensor([g for _, g in members])
    for function in (group_relative, leave_one_out):
        close(function(rewards[order], ids[order]), function(rewards, ids)[order])
    turns = [[reward, float(group)] for reward, group in members]
    ends, lengths = [[0, 1]] * len(members), [2] * len(members)
    plain = process_group_relative(turns, ends, lengths, ids), turn_leave_one_out(turns, ids)
    turns = [turns[i] for i in order]
    shuffled = process_group_relative(turns, ends, lengths, ids[order]), turn_leave_one_out(turns, ids[order])
    for before, after in zip(plain, shuffled, strict=True):
        close(after, [before[i] for i in order])


def test_groups_are_told_apart_by_id_not_by_place() -> None:
    advantages = group_relative(vector(1.0, 10.0, 3.0, 30.0), torch.tensor([8, 2, 8, 2]), scale="none")
    close(advantages, vector(-1.0, -10.0, 1.0, 10.0))


def test_a_group_of_one_gives_zero() -> None:
    rewards, ids = vector(5.0, 1.0, 2.0), [0, 1, 1]
    for advantages in (group_relative(rewards, ids), group_relative(rewards, ids, ddof=0), leave_one_out(rewards, ids)):
        assert float(advantages[0]) == 0.0
        assert bool(advantages[1:].all())
    assert not process_group_relative([[1.0, 5.0]], [[0, 1]], [2], [0])[0].any()
    assert not turn_leave_one_out([[1.0, 5.0]], [0])[0].any()


def test_a_small_but_real_difference_is_scaled_up() -> None:
    """A variance floor or a float32 mean would shrink or distort it."""
    rewards = torch.tensor([1.0, 1.00001])
    advantages = group_relative(rewards, [0, 0], eps=0.0)
    torch.testing.assert_close(advantages, torch.tensor([-math.sqrt(0.5), math.sqrt(0.5)]))


def test_a_nan_reward_reaches_its_own_group_only() -> None:
    rewards, ids = vector(NAN, 1.0, 0.0, 1.0), [0, 0, 1, 1]
    for advantages in (group_relative(rewards, ids), leave_one_out(rewards, ids)):
        assert advantages.isnan().tolist() == [True, True, False, False]
    turns = turn_leave_one_out([[1.0], [NAN], [0.0]], [0, 0, 0])
    assert [bool(a.isnan()) for a in turns] == [True, True, True]


def test_integer_rewards_are_not_rounded() -> None:
    advantages = leave_one_out(torch.tensor([1, 0, 0]), [0, 0, 0])
    torch.testing.assert_close(advantages, torch.tensor([1.0, -0.5, -0.5]))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"scale": "mad"}, "scale"), ({"ddof": 2}, "ddof")],
)
def test_unknown_group_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        group_relative(vector(1.0, 0.0), [0, 0], **options)


@pytest.mark.parametrize("ids", [torch.tensor([0]), torch.tensor([0.0, 1.0]), torch.tensor([[0], [0]])])
def test_group_ids_must_fit(ids: Tensor) -> None:
    with pytest.raises(ValueError, match="group_ids"):
        leave_one_out(vector(1.0, 0.0), ids)


# --- steps and turns ---


def test_process_advantages_follow_the_definition() -> None:
    generator = random.Random(1)
    lengths, groups = [9, 5, 7, 6], [1, 0, 1, 0]
    ends = [sorted(generator.sample(range(length), 3)) for length in lengths]
    rewards = [[generator.random() for _ in range(3)] for _ in lengths]
    advantages = process_group_relative(rewards, ends, lengths, groups, ddof=1, eps=1e-6)
    for i, length in enumerate(lengths):
        pool = [r for j, row in enumerate(rewards) if groups[j] == groups[i] for r in row]
        mean = sum(pool) / len(pool)
        std = math.sqrt(sum((r - mean) ** 2 for r in pool) / (len(pool) - 1))
        expected = [
            sum((r - mean) / (std + 1e-6) for r, end in zip(rewards[i], ends[i], strict=True) if end >= t)
            for t in range(length)
        ]
        close(advantages[i], vector(*expected))


def test_process_handles_rollouts_without_steps() -> None:
    advantages = process_group_relative([[], [1.0], [0.0]], [[], [0], [1]], [2, 2, 2], [0, 0, 0], ddof=0, eps=0.0)
    close(torch.stack(advantages), torch.tensor([[0.0, 0.0], [1.0, 0.0], [-1.0, -1.0]]).double())


@pytest.mark.parametrize("ends", [[[2]], [[-1]], [[0, 1]]])
def test_step_ends_outside_the_rollout_are_refused(ends: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="step ends"):
        process_group_relative([[1.0]], ends, [2], [0])


def test_turn_leave_one_out_follows_the_definition() -> None:
    generator = random.Random(2)
    rewards = [[generator.random() for _ in range(generator.randint(1, 4))] for _ in range(6)]
    rewards.append([0.5] * 5)  # alone in its last turn
    groups = [0] * len(rewards)
    gamma = 0.9
    returns = [turn_returns(row, gamma=gamma) for row in rewards]
    for i, advantage in enumerate(turn_leave_one_out(rewards, groups, gamma=gamma)):
        for k, own in enumerate(returns[i]):
            siblings = [g for j, g in enumerate(returns) if j != i]
            baseline = [g[k] for g in siblings if len(g) > k] or [g[0] for g in siblings]
            assert float(advantage[k]) == pytest.approx(own - sum(baseline) / len(baseline), abs=1e-12)


def test_members_without_turns_are_no_siblings() -> None:
    advantages = turn_leave_one_out([[1.0], [], [0.0]], [0, 0, 0])
    assert [a.tolist() for a in advantages] == [[1.0], [], [-1.0]]
    advantages = turn_leave_one_out([[1.0, 2.0], [], [0.5]], [0, 0, 0])
    assert [a.tolist() for a in advantages] == [[2.5, 1.5], [], [-2.5]]


def test_turn_returns_of_nothing_is_nothing() -> None:
    assert turn_returns([], gamma=0.5) == []


# --- whitening, length penalty, explained variance ---


def test_whitened_tokens_have_mean_zero_and_variance_one() -> None:
    generator = torch.Generator().manual_seed(3)
    mask = torch.rand(4, 9, generator=generator) < 0.6
    values = torch.where(mask, torch.randn(4, 9, generator=generator).double() * 5 + 3, NAN)
    whitened = whiten(values, mask)
    assert float(whitened[mask].mean()) == pytest.approx(0.0, abs=1e-12)
    assert float(whitened[mask].var()) == pytest.approx(1.0, abs=1e-8)
    assert torch.equal(whitened[~mask], torch.zeros_like(whitened[~mask]))
    kept = whiten(values, mask, shift_mean=False)
    assert float(kept[mask].mean()) == pytest.approx(float(values[mask].mean()))


def test_whitening_one_or_no_token() -> None:
    values = vector(4.0, NAN)[None]
    assert whiten(values, torch.tensor([[True, False]])).tolist() == [[0.0, 0.0]]
    assert whiten(values, torch.tensor([[True, False]]), shift_mean=False).tolist() == [[4.0, 0.0]]
    assert whiten(values, torch.tensor([[False, False]])).tolist() == [[0.0, 0.0]]


def test_soft_overlong_takes_integers_and_checks_the_cache() -> None:
    penalties = soft_overlong(torch.tensor([10, 79, 90, 100, 500]), max_length=100, cache=20)
    torch.testing.assert_close(penalties, torch.tensor([0.0, 0.0, -0.5, -1.0, -1.0]))
    with pytest.raises(ValueError, match="cache"):
        soft_overlong(torch.tensor([1]), max_length=100, cache=0)


def test_explained_variance_at_its_landmarks() -> None:
    returns, mask = vector(1.0, 2.0, 4.0, NAN)[None], torch.tensor([[True, True, True, False]])
    assert float(explained_variance(returns + 7.0, returns, mask)) == pytest.approx(1.0)
    assert float(explained_variance(torch.full_like(returns, 5.0), returns, mask)) == pytest.approx(0.0)
    assert explained_variance(returns, torch.ones_like(returns), mask).isnan()
    assert explained_variance(returns, returns, torch.zeros_like(mask)).isnan()
