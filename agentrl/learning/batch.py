"""The batch: one row per rollout over its sampled tokens only, whatever its segments.

Column t of a row speaks of the t-th sampled token given everything before it. `mask` is True where a row has a
sampled token; rows are shorter than the width T otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from agentrl.api import Group, Rollout, Scored, Segment
from agentrl.learning.advantages import (
    EQUAL,
    gae,
    group_relative,
    leave_one_out,
    process_group_relative,
    turn_leave_one_out,
    whiten,
)
from agentrl.learning.algorithms import Algorithm
from agentrl.learning.world import World


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """What the learner trains on. B rows (rollouts), T columns (most sampled tokens of a row).

    segments: [B] the token sequences of each row. ids, sampler_logprobs, turn, rewards, advantages: [B,T]; 0 where
    mask is False. group: [B]. rewards: the outcome at the last sampled token, a process score at the last token of
    its step. advantages: by group; all 0 for an algorithm whose learner computes them from `rewards`.

    Example: a rollout with 3 and one with 2 sampled tokens: `mask = [[T, T, T], [T, T, F]]`.
    """

    segments: tuple[tuple[Segment, ...], ...]
    mask: Tensor
    ids: Tensor
    sampler_logprobs: Tensor
    turn: Tensor
    group: Tensor
    rewards: Tensor
    advantages: Tensor

    def __len__(self) -> int:
        return len(self.segments)

    def select(self, rows: Sequence[int]) -> Batch:
        """The batch of the named rows, in their order."""
        index = torch.as_tensor(rows, dtype=torch.long)
        return Batch(
            segments=tuple(self.segments[row] for row in rows),
            **{name: getattr(self, name)[index] for name in _COLUMNS},
        )

    @classmethod
    def empty(cls) -> Batch:
        """No rows: what a rank trains on that has nothing, beside others that have."""
        nothing = torch.zeros(0, 0)
        columns = dict.fromkeys(("sampler_logprobs", "rewards", "advantages"), nothing)
        counted = {name: nothing.long() for name in ("ids", "turn")}
        return cls(segments=(), mask=nothing.bool(), group=torch.zeros(0, dtype=torch.long), **columns, **counted)


_COLUMNS = ("mask", "ids", "sampler_logprobs", "turn", "group", "rewards", "advantages")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCounts:
    """What became of the rollouts of a step. Example: `BatchCounts(rows=155, excluded=5, zero_variance_groups=4)`."""

    rows: int
    excluded: int
    zero_variance_groups: int


def build_batch(groups: Sequence[Group], algorithm: Algorithm) -> tuple[Batch | None, BatchCounts]:
    """Rows of all members that have a reward, a sampled token and finite log-probabilities; None when there are none.

    Any other member (failed, unjudged, empty) leaves its group: it is no row and no part of the baseline.
    """
    counts = count_rollouts(groups)
    kept = [(place, m) for place, group in enumerate(groups) for m in _trained(group)]
    if not kept:
        return None, counts
    group = torch.tensor([place for place, _ in kept], dtype=torch.long)
    scored = [m for _, m in kept]
    turn = _column([_sampled(m, "turn") for m in scored], torch.long)
    mask = _column([torch.ones(m.rollout.sampled_tokens) for m in scored], torch.bool)
    batch = Batch(
        segments=tuple(m.rollout.segments for m in scored),
        mask=mask,
        ids=_column([_sampled(m, "ids") for m in scored], torch.long),
        sampler_logprobs=_column([_sampled(m, "logprobs") for m in scored], torch.float32),
        turn=turn,
        group=group,
        rewards=token_rewards(scored, turn, mask),
        advantages=token_advantages(scored, group, turn, mask, algorithm)
        if algorithm.by_group
        else torch.zeros(mask.shape),
    )
    return batch, counts


def staleness(rollout: Rollout, version: int) -> int:
    """By how many updates the policy at `version` is ahead of the one that sampled the rollout's oldest token."""
    sampled = [turn.completion for turn in rollout.turns if turn.completion is not None]
    return version - min((old for completion in sampled for _, old in completion.versions), default=version)


def fresh_groups(groups: Sequence[Group], version: int, bound: int) -> list[Group]:
    """The groups without the members that are more than `bound` updates old."""
    return [
        replace(group, members=tuple(m for m in group.members if staleness(m.rollout, version) <= bound))
        for group in groups
    ]


def count_rollouts(groups: Sequence[Group]) -> BatchCounts:
    """What becomes of the rollouts of `groups` in a batch."""
    trained = [_trained(group) for group in groups]
    rows = sum(map(len, trained))
    flat = sum(_equal(torch.tensor([_total(m) for m in members]).double()) for members in trained)
    return BatchCounts(
        rows=rows, excluded=sum(len(group.members) for group in groups) - rows, zero_variance_groups=flat
    )


def _trained(group: Group) -> list[Scored]:
    """Members with a reward, a sampled token, and log-probabilities that are numbers: one NaN would take the whole
    update with it."""
    return [
        m
        for m in group.members
        if m.reward.total is not None
        and m.rollout.sampled_tokens
        and all(np.isfinite(s.logprobs[s.sampled]).all() for s in m.rollout.segments)
    ]


def token_rewards(members: Sequence[Scored], turn: Tensor, mask: Tensor) -> Tensor:
    """Rewards [B,T] that sum to each rollout's total.

    The outcome stands at the last sampled token, a step's score at its last token: the turn's last one, or the one
    before `Step.end`. A score of a turn without a sampled token goes to the last token before it, and if there is none
    to the first.
    """
    rewards = torch.zeros(mask.shape, dtype=torch.float64)
    for row, member in enumerate(members):
        turns = turn[row][mask[row]]
        for step, end in zip(member.reward.step_values, _step_ends(member, turns), strict=True):
            rewards[row, end] += step.score
        rewards[row, len(turns) - 1] += _outcome(member)
    return rewards.float()


def _step_ends(member: Scored, turns: Tensor) -> list[int]:
    """The place of each step's last token among the rollout's sampled ones, whose turns are given."""
    ends = []
    for step in member.reward.step_values:
        first = int((turns < step.turn).sum())
        size = int((turns == step.turn).sum())
        length = size if step.end is None else min(step.end, size)
        ends.append(max(first + length - 1, 0))
    return ends


def token_advantages(
    members: Sequence[Scored], group: Tensor, turn: Tensor, mask: Tensor, algorithm: Algorithm
) -> Tensor:
    """Advantages [B,T]: the outcome's group-relative advantage plus, per turn, that of the process parts.

    The process parts' values are summed by turn (a step inside a turn counts for its turn) and compared by
    return-to-go with the siblings that reached the turn, leave-one-out (algorithms whose scale is `std` divide by
    the group's spread of totals, as they do with the outcome; `whitened` comes later, over all tokens of a step).
    With a `turn_gamma` below 1 the outcome is the last turn's value and is discounted and compared with them: a
    discounted outcome less an undiscounted mean would pay for the number of turns.
    """
    outcome = torch.tensor([_outcome(m) for m in members]).double()
    if algorithm.process == "pooled":
        return _pooled(members, group, turn, mask, outcome)
    process = [_turn_values(m) for m in members]
    if algorithm.turn_gamma < 1:
        for values, last in zip(process, outcome, strict=True):
            values[-1] += last
        outcome = torch.zeros_like(outcome)
    compare = leave_one_out if algorithm.baseline == "leave_one_out" else _centred
    per_row = compare(outcome, group)
    per_turn = turn_leave_one_out(process, group, gamma=algorithm.turn_gamma)
    spread = _spread(torch.tensor([_total(m) for m in members]).double(), group)
    factor = 1 / spread if algorithm.scale == "std" else torch.ones_like(spread)
    advantages = torch.zeros(mask.shape, dtype=torch.float32)
    for row, values in enumerate(per_turn):
        token_values = per_row[row] + values.double()[turn[row]]
        advantages[row] = (token_values * factor[row]).float()
    return torch.where(mask, advantages, 0.0)


def _pooled(members: Sequence[Scored], group: Tensor, turn: Tensor, mask: Tensor, outcome: Tensor) -> Tensor:
    """DeepSeekMath's two estimators added up: the outcome's, and that of all steps of a group standardised together."""
    turns = [turn[row][mask[row]] for row in range(len(members))]
    process = process_group_relative(
        [[step.score for step in m.reward.step_values] for m in members],
        [_step_ends(m, own) for m, own in zip(members, turns, strict=True)],
        [len(own) for own in turns],
        group,
    )
    steps = _column(process, torch.float32)
    return torch.where(mask, steps + group_relative(outcome, group).float()[:, None], 0.0)


def token_level_advantages(
    rewards: Tensor, values: Tensor | None, mask: Tensor, turn: Tensor, algorithm: Algorithm
) -> tuple[Tensor, Tensor]:
    """Advantages and returns [B,T] from rewards of tokens, for a critic (`values` [B,T]) or for no baseline (None).

    `turn_gamma` is a further discount at the last token of each turn of `turn` [B,T]. Without values GAE is the
    discounted reward to go.
    """
    baseline, lam = (torch.zeros_like(rewards), 1.0) if values is None else (values, algorithm.lam)
    gamma = torch.full(mask.shape, algorithm.gamma)
    gamma[:, :-1][turn[:, 1:] > turn[:, :-1]] *= algorithm.turn_gamma
    return gae(rewards, baseline, mask, gamma=gamma, lam=lam)


def whitened(advantages: Tensor, mask: Tensor, world: World) -> Tensor:
    """Advantages [B,T] whitened over the sampled tokens of all ranks. Returns are not: they keep the true scale."""
    everything = world.gather(advantages[mask])
    pool = torch.cat(everything)[None]
    own = sum(len(values) for values in everything[: world.rank])
    result = torch.zeros_like(advantages)
    scaled = whiten(pool, torch.ones_like(pool, dtype=torch.bool))[0]
    result[mask] = scaled[own : own + len(everything[world.rank])].to(result.dtype)
    return result


def live_groups(groups: Sequence[Group]) -> list[Group]:
    """The groups whose judged members do not all have one reward: those that a group baseline learns from.

    With a success predicate, groups that differ in it (arXiv:2503.14476, section 3.2): members that differ only in a
    penalty would teach the penalty alone.
    """
    return [group for group in groups if not _equal(_signal(group))]


def _signal(group: Group) -> Tensor:
    kept = _trained(group)
    if all(m.reward.success is not None for m in kept):
        return torch.tensor([float(bool(m.reward.success)) for m in kept], dtype=torch.float64)
    return torch.tensor([_total(m) for m in kept], dtype=torch.float64)


def _equal(totals: Tensor) -> bool:
    return len(totals) == 0 or float(totals.max() - totals.min()) <= EQUAL


def _centred(rewards: Tensor, group: Tensor) -> Tensor:
    return group_relative(rewards, group, scale="none")


def _spread(totals: Tensor, group: Tensor, eps: float = 1e-4) -> Tensor:
    """Standard deviation of each row's group plus eps; 1 where it has no spread (its advantages are 0 anyway)."""
    spread = torch.ones_like(totals)
    for place in set(group.tolist()):
        own = group == place
        if int(own.sum()) > 1 and not _equal(totals[own]):
            spread[own] = totals[own].std() + eps
    return spread


def _total(member: Scored) -> float:
    assert member.reward.total is not None  # members without a total were left out
    return member.reward.total


def _outcome(member: Scored) -> float:
    return _total(member) - sum(step.score for step in member.reward.step_values)


def _turn_values(member: Scored) -> Tensor:
    values = torch.zeros(len(member.rollout.turns), dtype=torch.float64)
    for step in member.reward.step_values:
        values[step.turn] += step.score
    return values


def _sampled(member: Scored, column: str) -> Tensor:
    return torch.cat([torch.from_numpy(getattr(s, column)[s.sampled]) for s in member.rollout.segments])


def _column(rows: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([row.to(dtype) for row in rows], batch_first=True)


def loss_weights(mask: Tensor, aggregate: str, constant: int, world: World) -> Tensor:
    """Weight of every token in the loss of one update, [B,T]; the weights carry the aggregation. Rows and tokens are
    counted over all ranks.

    token_mean: 1 / all tokens. sequence_mean: 1 / (rows x the row's tokens). constant: 1 / (rows x constant), with
    `constant` the most tokens a rollout may sample, never the width of the batch. Summing token losses with these
    weights over any split into micro-batches and ranks gives the same number.
    """
    if aggregate == "token_mean":
        tokens = max(world.total(mask.sum()), 1.0)
        per_row = torch.full((len(mask),), 1 / tokens, dtype=torch.float64)
    else:
        rows = max(world.total(mask.any(1).sum()), 1.0)
        lengths = mask.sum(1).clamp_min(1).double()
        per_row = 1 / (rows * (lengths if aggregate == "sequence_mean" else torch.full_like(lengths, constant)))
    return torch.where(mask, per_row[:, None].float(), 0.0)
