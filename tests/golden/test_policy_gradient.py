"""The expected gradient of each estimator, over every outcome of a toy problem, against the true policy gradient.

Two turns of one token each: first "stop" or "go on", then, only after "go on", one of two answers. Both turns are
rewarded, and the length of a rollout is the policy's own choice, which is what makes careless baselines biased.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from agentrl.learning.advantages import group_relative, leave_one_out, turn_leave_one_out, turn_returns
from agentrl.learning.algorithms import PRESETS, Algorithm
from agentrl.learning.batch import build_batch, loss_weights, token_level_advantages, whitened
from agentrl.learning.learner import policy_term
from agentrl.learning.losses import policy_loss
from agentrl.learning.world import World
from agentrl.rollouts.steps import potential_form
from tests.unit.learning.test_batch import group as group_of
from tests.unit.learning.test_batch import member, segment

OUTCOMES = [(0,), (1, 0), (1, 1)]
TURN_REWARDS = [[0.3], [0.1, 1.0], [0.1, -0.4]]


def parameters() -> Tensor:
    """Logits of the two decisions, [2,2]."""
    return torch.tensor([[0.4, -0.3], [-0.2, 0.5]], dtype=torch.float64, requires_grad=True)


def outcome_logprobs(logits: Tensor) -> Tensor:
    """[3,2] log-probabilities of the tokens of each outcome; NaN where an outcome has no second token."""
    table = logits.log_softmax(1)
    unused = torch.full((), torch.nan, dtype=torch.float64)
    rows = [[table[t, o[t]] if t < len(o) else unused for t in range(2)] for o in OUTCOMES]
    return torch.stack([torch.stack(row) for row in rows])


def true_gradient() -> Tensor:
    logits = parameters()
    probabilities = outcome_logprobs(logits).nan_to_num(0.0).sum(1).exp()
    value = sum(p * sum(r) for p, r in zip(probabilities, TURN_REWARDS, strict=True))
    return torch.autograd.grad(value, logits)[0]


@dataclass
class Enumeration:
    """Every group of `size` rollouts as rows of one batch, each row weighted by the probability of its group."""

    size: int

    def __post_init__(self) -> None:
        self.groups = list(itertools.product(range(3), repeat=self.size))
        self.rows = [outcome for group in self.groups for outcome in group]
        self.ids = torch.arange(len(self.groups)).repeat_interleave(self.size)
        self.rewards = torch.tensor([sum(TURN_REWARDS[o]) for o in self.rows], dtype=torch.float64)
        self.mask = torch.tensor([[True, len(OUTCOMES[o]) > 1] for o in self.rows])

    def gradient(self, advantages: Tensor, aggregate: str) -> Tensor:
        """Expectation of minus the gradient of the loss of one group."""
        logits = parameters()
        outcomes = outcome_logprobs(logits)
        logprobs = outcomes[self.rows]
        probability = outcomes.detach().nan_to_num(0.0).sum(1).exp()
        weights = torch.stack([math.prod(probability[list(g)]) for g in self.groups]).repeat_interleave(self.size)
        loss, _ = policy_loss(
            logprobs,
            logprobs.detach(),
            advantages,
            self.mask,
            clip_low=0.2,
            clip_high=0.2,
            weights=weights[:, None].expand(-1, 2),
            aggregate=aggregate,
            denominator=float(self.size),
        )
        return -torch.autograd.grad(loss, logits)[0]


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_rloo_is_the_policy_gradient(size: int) -> None:
    groups = Enumeration(size)
    assert_close(groups.gradient(leave_one_out(groups.rewards, groups.ids), "constant"), true_gradient())


@pytest.mark.parametrize("size", [2, 3, 4])
def test_turn_leave_one_out_is_the_policy_gradient(size: int) -> None:
    groups = Enumeration(size)
    per_turn = turn_leave_one_out([TURN_REWARDS[o] for o in groups.rows], groups.ids)
    advantages = torch.nn.utils.rnn.pad_sequence(per_turn, batch_first=True)
    assert_close(groups.gradient(advantages, "constant"), true_gradient())


@pytest.mark.parametrize("size", [2, 3, 4])
def test_dr_grpo_is_the_policy_gradient_times_a_known_factor(size: int) -> None:
    groups = Enumeration(size)
    advantages = group_relative(groups.rewards, groups.ids, scale="none")
    assert_close(groups.gradient(advantages, "constant"), (size - 1) / size * true_gradient())


def test_a_baseline_that_includes_the_rollout_itself_would_be_seen() -> None:
    groups = Enumeration(4)
    returns = [turn_returns(TURN_REWARDS[o], gamma=1.0) for o in groups.rows]
    advantages = torch.zeros(len(groups.rows), 2, dtype=torch.float64)
    for i, own in enumerate(returns):
        group = returns[i - i % 4 : i - i % 4 + 4]
        for k, value in enumerate(own):
            reached = [g[k] for g in group if len(g) > k]
            advantages[i, k] = value - sum(reached) / len(reached)
    ratio = groups.gradient(advantages, "constant") / true_gradient()
    torch.testing.assert_close(ratio[0], torch.full((2,), 0.75).double())
    assert float(ratio[1].max()) < 0.75


def test_grpo_is_the_expectation_of_its_published_estimator() -> None:
    size, eps = 4, 1e-4
    groups = Enumeration(size)
    table = parameters().detach().softmax(1)
    expected = torch.zeros(2, 2, dtype=torch.float64)
    for group in groups.groups:
        rewards = [sum(TURN_REWARDS[o]) for o in group]
        mean = sum(rewards) / size
        std = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (size - 1))
        chance = math.prod(float(table[t, token]) for o in group for t, token in enumerate(OUTCOMES[o]))
        for outcome, reward in zip(group, rewards, strict=True):
            for t, token in enumerate(OUTCOMES[outcome]):
                score = -table[t].clone()
                score[token] += 1.0
                expected[t] += chance * (reward - mean) / (std + eps) * score / len(OUTCOMES[outcome]) / size
    advantages = group_relative(groups.rewards, groups.ids, eps=eps)
    assert_close(groups.gradient(advantages, "sequence_mean"), expected)


@pytest.mark.parametrize("discount", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("potential", [None, 0.7])
@pytest.mark.parametrize("preset", ["rloo", "reinforce_pp"])
def test_a_discount_per_turn_is_the_gradient_of_the_discounted_returns(
    preset: str, potential: float | None, discount: float
) -> None:
    """The first turn's reward is a process score, the last one's the outcome. Every turn's score function stands with
    the discounted return from that turn; a rollout's own number of turns is in no baseline. A potential changes
    nothing of it."""
    size = 3
    algorithm = replace(PRESETS[preset], turn_gamma=discount, scale="none", kl_coefficient=0.0, aggregate="constant")
    logits = parameters()
    outcomes = outcome_logprobs(logits)
    probability = outcomes.detach().nan_to_num(0.0).sum(1).exp()
    loss = torch.zeros((), dtype=torch.float64)
    for group in itertools.product(range(3), repeat=size):
        loss = loss + math.prod(probability[list(group)]) * of_the_learner(
            algorithm, group, outcomes, by_turn=True, potential=potential
        )
    found = -torch.autograd.grad(loss, logits)[0]
    table = logits.detach().softmax(1)
    expected = torch.zeros(2, 2, dtype=torch.float64)
    for outcome, chance in enumerate(probability):
        returns = turn_returns(TURN_REWARDS[outcome], gamma=discount)
        for t, token in enumerate(OUTCOMES[outcome]):
            score = -table[t].clone()
            score[token] += 1.0
            expected[t] += chance * returns[t] * score
    torch.testing.assert_close(found, expected / MAX_TOKENS, rtol=0, atol=1e-6)


MAX_TOKENS = 2
VALUES = {(): 0.2, (1,): 0.6}
"""What the critic of the toy says before the first and before the second token."""


def of_the_learner(
    algorithm: Algorithm,
    group: tuple[int, ...],
    outcomes: Tensor,
    *,
    by_turn: bool = False,
    potential: float | None = None,
) -> Tensor:
    """The loss of one group through what the learner is made of, float64. by_turn: all rewards but the last are those
    of turns; without it their sum stands at the end. potential: of the state behind "go on", which shapes them."""
    members = []
    for i, o in enumerate(group):
        turns = len(OUTCOMES[o])
        tokens = segment("." + "s" * turns, "0" + "01"[:turns] if by_turn else None)
        steps = [*TURN_REWARDS[o][:-1], 0.0] if by_turn else []
        if potential is not None:
            shaped = potential_form([potential, 9.0][:turns], algorithm.turn_gamma)
            steps = [step + more for step, more in zip(steps, shaped, strict=True)]
        total = TURN_REWARDS[o][-1] + sum(steps) if by_turn else sum(TURN_REWARDS[o])
        members.append(member(i, total, tokens, steps=tuple(steps), turns=turns if by_turn else 1))
    batch, _ = build_batch([group_of(*members)], algorithm)
    assert batch is not None
    mask, advantages = batch.mask, batch.advantages.double()
    rows = outcomes[list(group)][:, : mask.shape[1]]
    if not algorithm.by_group:
        values = [
            [VALUES[OUTCOMES[o][:t]] if t < len(OUTCOMES[o]) else 0.0 for t in range(mask.shape[1])] for o in group
        ]
        critic = torch.tensor(values).double() if algorithm.baseline == "critic" else None
        advantages, _ = token_level_advantages(batch.rewards.double(), critic, mask, batch.turn, algorithm)
    if algorithm.scale == "whiten":
        advantages = whitened(advantages, mask, World())
    weights = loss_weights(mask, algorithm.aggregate, MAX_TOKENS, World()).double()
    logprobs = torch.where(mask, rows, 0.0)
    return policy_term(algorithm, logprobs, logprobs.detach(), advantages, mask, weights)[0]


def published(name: str, group: tuple[int, ...]) -> list[list[float]]:
    """What the paper of preset `name` multiplies each token's score function with, for one group; no library code."""
    rewards = [sum(TURN_REWARDS[o]) for o in group]
    lengths = [len(OUTCOMES[o]) for o in group]
    size, tokens, mean = len(group), sum(lengths), sum(rewards) / len(group)
    spread = math.sqrt(sum((r - mean) ** 2 for r in rewards) / (size - 1))
    standard = [(r - mean) / (spread + 1e-4) if spread > 1e-9 else 0.0 for r in rewards]
    if name in ("grpo", "gspo"):
        return [[a / (size * n)] * n for a, n in zip(standard, lengths, strict=True)]
    if name in ("dapo", "cispo"):
        return [[a / tokens] * n for a, n in zip(standard, lengths, strict=True)]
    if name == "dr_grpo":
        return [[(r - mean) / (size * MAX_TOKENS)] * n for r, n in zip(rewards, lengths, strict=True)]
    if name == "rloo":
        others = [(sum(rewards) - r) / (size - 1) for r in rewards]
        return [[(r - o) / (size * MAX_TOKENS)] * n for r, o, n in zip(rewards, others, lengths, strict=True)]
    # One reward at the end, gamma = lambda = 1: reward to go less the value, then whitened over the batch's tokens.
    values = [[VALUES[OUTCOMES[o][:t]] if name == "ppo" else 0.0 for t in range(len(OUTCOMES[o]))] for o in group]
    plain = [[r - v for v in row] for r, row in zip(rewards, values, strict=True)]
    every = [a for row in plain for a in row]
    middle = sum(every) / tokens
    variance = sum((a - middle) ** 2 for a in every) / (tokens - 1)
    scale = 1 / math.sqrt(variance + 1e-8) if max(every) - min(every) > 1e-9 else 0.0
    return [[(a - middle) * scale / tokens for a in row] for row in plain]


def expectation_of_published(name: str, size: int) -> Tensor:
    table = parameters().detach().softmax(1)
    total = torch.zeros(2, 2, dtype=torch.float64)
    for group in itertools.product(range(3), repeat=size):
        chance = math.prod(float(table[t, token]) for o in group for t, token in enumerate(OUTCOMES[o]))
        for outcome, factors in zip(group, published(name, group), strict=True):
            for t, token in enumerate(OUTCOMES[outcome]):
                score = -table[t].clone()
                score[token] += 1.0
                total[t] += chance * factors[t] * score
    return total


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_is_the_expectation_of_its_published_estimator(name: str, size: int) -> None:
    logits = parameters()
    outcomes = outcome_logprobs(logits)
    probability = outcomes.detach().nan_to_num(0.0).sum(1).exp()
    loss = torch.zeros((), dtype=torch.float64)
    for group in itertools.product(range(3), repeat=size):
        loss = loss + math.prod(probability[list(group)]) * of_the_learner(PRESETS[name], group, outcomes)
    found = -torch.autograd.grad(loss, logits)[0]
    torch.testing.assert_close(found, expectation_of_published(name, size), rtol=0, atol=1e-6)
    cosine = float(torch.nn.functional.cosine_similarity(found.flatten(), true_gradient().flatten(), dim=0))
    print(f"{name}, groups of {size}: cosine to the policy gradient {cosine:.4f}")
    if name in ("rloo", "dr_grpo"):
        factor = 1.0 if name == "rloo" else (size - 1) / size
        torch.testing.assert_close(found, factor / MAX_TOKENS * true_gradient(), rtol=0, atol=1e-6)
