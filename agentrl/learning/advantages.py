"""Advantages: how good each sampled token, turn or rollout was compared with what could be expected.

Shapes: N rollouts; B rows of T tokens (one row per rollout, right-padded); K_i turns or steps of rollout i. A mask is
boolean and True where the policy sampled the token. Everything runs without gradient (an advantage is a constant).
Statistics are two-pass and in float64, the result has the input's dtype (float32 at least). Values at mask False are
never read, so NaN may stand there; a non-finite value at mask True propagates and is for the caller to count.

Rewards of one group that lie within `EQUAL` of each other give advantages of exactly 0: dividing the rounding error
of a constant group by its own size would make noise of order 1 (0.95 for 16 rewards of 0.7 in float32).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

EQUAL = 1e-6
"""Rewards whose range is at most this are equal."""

Ids: TypeAlias = Tensor | Sequence[int]
Ragged: TypeAlias = Sequence[Tensor | Sequence[float]]


def check_mask(mask: Tensor, **tensors: Tensor) -> None:
    """Raise ValueError unless `mask` is boolean [B,T] and every named tensor has its shape.

    Broadcasting and float masks hide swapped arguments: advantages passed as a mask train on garbage in silence.
    """
    if mask.dtype != torch.bool or mask.dim() != 2:
        raise ValueError(f"mask must be boolean [B,T] (True = sampled), got {mask.dtype} {list(mask.shape)}")
    for name, tensor in tensors.items():
        if tensor.shape != mask.shape:
            raise ValueError(f"{name} has shape {list(tensor.shape)}, mask has {list(mask.shape)}")


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """float64 if any tensor is float64, else float32: half precision and integers are never computed in."""
    return torch.float64 if any(tensor.dtype == torch.float64 for tensor in tensors) else torch.float32


@torch.no_grad()
def gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float | Tensor,
    lam: float,
    bootstrap: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation over the sampled tokens only.

    With the sampled tokens of a row numbered 1..N:
    `delta_k = r_k + gamma V_{k+1} - V_k`, `A_k = delta_k + gamma lam A_{k+1}`, `R_k = A_k + V_k`.
    The next value is the value at the next *sampled* token and there is one decay per sampled token, however many
    tokens of tool output lie between. A finite reward on a token that was not sampled counts for the last sampled
    token before it, undiscounted; before the first sampled token no action earned it, and it is dropped.

    rewards, values, mask: [B,T]; `values[:, t]` is the value of the state *before* token t is sampled.
    gamma: one discount, or one for every token [B,T], which is that of the step from it to the next sampled one.
    bootstrap: [B], the value after the last sampled token, for rows cut by a limit; None or 0 means terminal.
    Returns advantages and returns, [B,T], 0 where mask is False. Schulman et al. 2015, arXiv:1506.02438, eq. 16.
    """
    check_mask(mask, rewards=rewards, values=values)
    rows, length = mask.shape
    dtype = working_dtype(rewards, values)
    rewards, values = rewards.to(dtype), values.to(dtype)
    rewards = torch.where(mask | rewards.isfinite(), rewards, 0.0)
    next_value = rewards.new_zeros(rows) if bootstrap is None else bootstrap.to(dtype)
    if next_value.shape != (rows,):
        raise ValueError(f"bootstrap has shape {list(next_value.shape)}, expected [{rows}]")
    discount = torch.as_tensor(gamma, dtype=dtype).expand(rows, length)
    next_advantage = torch.zeros_like(next_value)
    moved = torch.zeros_like(next_value)
    advantages = torch.zeros_like(rewards)
    for t in reversed(range(length)):
        sampled, reward = mask[:, t], rewards[:, t] + moved
        delta = reward + discount[:, t] * next_value - values[:, t]
        next_advantage = torch.where(sampled, delta + discount[:, t] * lam * next_advantage, next_advantage)
        next_value = torch.where(sampled, values[:, t], next_value)
        moved = torch.where(sampled, 0.0, reward)
        advantages[:, t] = torch.where(sampled, next_advantage, 0.0)
    return advantages, torch.where(mask, advantages + values, 0.0)


@torch.no_grad()
def group_relative(
    rewards: Tensor,
    group_ids: Ids,
    *,
    scale: Literal["std", "none"] = "std",
    ddof: int = 1,
    eps: float = 1e-4,
) -> Tensor:
    """Reward minus the mean of its group, divided by `std + eps` for scale "std".

    rewards: [N], one per rollout; group_ids: [N] integers, in any order; ddof: 1 divides the variance by G-1, 0 by G.
    Returns [N]. Equal rewards and groups of one give exactly 0.
    "std": GRPO, Shao et al. 2024, arXiv:2402.03300, section 4.1.2. "none": Dr. GRPO, Liu et al. 2025,
    arXiv:2503.20783, section 3.2; its expected gradient is (G-1)/G of the policy gradient.
    """
    if scale not in ("std", "none"):
        raise ValueError(f"scale must be 'std' or 'none', got {scale!r}")
    advantages = torch.zeros(len(rewards), dtype=torch.float64, device=rewards.device)
    for members in _groups(group_ids, len(rewards), rewards.device):
        pool = rewards[members].double()
        advantages[members] = _standardised(pool, ddof, eps) if scale == "std" else _centred(pool)
    return advantages.to(working_dtype(rewards))


@torch.no_grad()
def leave_one_out(rewards: Tensor, group_ids: Ids) -> Tensor:
    """Reward minus the mean reward of the *other* members: `r_i - mean_{j != i} r_j = G/(G-1) (r_i - mean)`.

    rewards: [N]; group_ids: [N]. Returns [N]. Equal rewards and groups of one give exactly 0. The baseline does not
    depend on the rollout's own actions, so the gradient is unbiased. RLOO: Ahmadian et al. 2024, arXiv:2402.14740,
    section 3.3. Do not divide it by a leave-one-out standard deviation, which can be 0 where the numerator is not.
    """
    advantages = torch.zeros(len(rewards), dtype=torch.float64, device=rewards.device)
    for members in _groups(group_ids, len(rewards), rewards.device):
        size = len(members)
        if size > 1:
            advantages[members] = _centred(rewards[members].double()) * (size / (size - 1))
    return advantages.to(working_dtype(rewards))


@torch.no_grad()
def process_group_relative(
    step_rewards: Ragged, step_ends: Sequence[Ids], lengths: Ids, group_ids: Ids, *, ddof: int = 1, eps: float = 1e-6
) -> list[Tensor]:
    """Process-supervised GRPO: all step rewards of a group are standardised together, a token gets the sum to go.

    `r~ = (r - mean) / (std + eps)` over every step of every member; `A_{i,t} = sum over steps j with end_j >= t of
    r~_{i,j}`. Tokens after the last step end get 0. Sums grow with the number of steps that remain, and the number
    of baseline terms is the policy's choice, so this estimator is biased; see `turn_leave_one_out`.

    step_rewards: N sequences of K_i rewards. step_ends: N sequences of K_i 0-based indices of the *last* token of
    each step (inclusive). lengths: [N], number of tokens T_i. group_ids: [N]. Returns N tensors [T_i].
    Equal step rewards and groups of one rollout give exactly 0. Shao et al. 2024, arXiv:2402.03300, section 4.1.3.
    """
    rewards = [_vector(row) for row in step_rewards]
    ends = [torch.as_tensor(row, dtype=torch.long) for row in step_ends]
    sizes = [int(size) for size in lengths]
    for i, (row, end, size) in enumerate(zip(rewards, ends, sizes, strict=True)):
        if row.shape != end.shape or bool(((end < 0) | (end >= size)).any()):
            raise ValueError(f"rollout {i}: step ends {end.tolist()} do not fit {len(row)} rewards in {size} tokens")
    advantages = [row.new_zeros(size, dtype=torch.float64) for row, size in zip(rewards, sizes, strict=True)]
    for group in _groups(group_ids, len(rewards), torch.device("cpu")):
        members = group.tolist()
        pool = torch.cat([rewards[i].double() for i in members])
        standard = _standardised(pool, ddof, eps) if len(members) > 1 else torch.zeros_like(pool)
        start = 0
        for i in members:
            own = standard[start : start + len(rewards[i])]
            start += len(rewards[i])
            advantages[i].index_add_(0, ends[i].to(own.device), own)
            advantages[i] = advantages[i].flip(0).cumsum(0).flip(0)
    return [a.to(working_dtype(row)) for a, row in zip(advantages, rewards, strict=True)]


@torch.no_grad()
def whiten(values: Tensor, mask: Tensor, *, shift_mean: bool = True, ddof: int = 1, eps: float = 1e-8) -> Tensor:
    """`(x - mean) / sqrt(var + eps)` over all sampled tokens, plus the mean again if not `shift_mean`.

    values, mask: [B,T] of the *global* batch: whitening a micro-batch or one rank changes the objective. Returns
    [B,T], 0 where mask is False. Equal values whiten to exactly 0 (to their mean without `shift_mean`). Compute
    returns first: whitened advantages plus values are no returns. Ziegler et al. 2019, arXiv:1909.08593 (code);
    ddof 1 is TRL's and verl's, 0 OpenAI's and OpenRLHF's.
    """
    check_mask(mask, values=values)
    whitened = torch.zeros_like(values, dtype=working_dtype(values))
    sampled = values[mask].double()
    if sampled.numel() == 0:
        return whitened
    scaled = _centred(sampled)
    if bool(scaled.any()):
        scaled = scaled / (_variance(scaled, ddof) + eps).sqrt()
    whitened[mask] = (scaled if shift_mean else scaled + sampled.mean()).to(whitened.dtype)
    return whitened


def turn_returns(turn_rewards: Tensor | Sequence[float], *, gamma: float) -> list[float]:
    """Discounted return from each turn of one rollout: `G_k = sum_{j >= k} gamma^(j-k) r_j`.

    turn_rewards: [K]. gamma decays once per *turn*, not per token, so long answers are not discounted for being long.
    Returns K floats; every sampled token of turn k gets G_k. Sutton and Barto 2018, eq. 3.9.
    """
    returns: list[float] = []
    for reward in reversed([float(reward) for reward in turn_rewards]):
        returns.append(reward + gamma * (returns[-1] if returns else 0.0))
    return returns[::-1]


@torch.no_grad()
def turn_leave_one_out(turn_rewards: Ragged, group_ids: Ids, *, gamma: float = 1.0) -> list[Tensor]:
    """Return from each turn minus the mean return from that turn of the *siblings* that reached it.

    `A_{i,k} = G_{i,k} - mean_{j != i, K_j > k} G_{j,k}`, with G from `turn_returns`. Where no sibling reached turn k,
    the mean total return `G_{j,0}` of all siblings. No baseline depends on the rollout's own actions, so the gradient
    is exactly unbiased, whereas a mean that includes the rollout itself, or a mean reward per turn index, makes the
    policy's decision to stop part of its own baseline.

    turn_rewards: N sequences of K_i rewards; group_ids: [N]. Returns N tensors [K_i]. Members without turns are no
    siblings; without siblings, or where all compared returns are equal, exactly 0.
    Leave-one-out baseline of Kool et al. 2019 (ICLR workshop) and arXiv:2402.14740, per turn.
    """
    rows = [_vector(row) for row in turn_rewards]
    returns = [turn_returns(row, gamma=gamma) for row in rows]
    advantages = [torch.zeros(len(row), dtype=working_dtype(row), device=row.device) for row in rows]
    for group in _groups(group_ids, len(rows), torch.device("cpu")):
        members = [i for i in group.tolist() if returns[i]]
        for i in members:
            siblings = [returns[j] for j in members if j != i]
            for k, own in enumerate(returns[i]):
                compared = [g[k] for g in siblings if len(g) > k] or [g[0] for g in siblings]
                # "not <=" rather than ">": a NaN must come out as NaN, not as 0.
                if any(not abs(own - other) <= EQUAL for other in compared):
                    advantages[i][k] = own - sum(compared) / len(compared)
    return advantages


def soft_overlong(lengths: Tensor, *, max_length: int, cache: int) -> Tensor:
    """Penalty for answers that come near the length limit, to be added to the reward.

    0 up to `max_length - cache` tokens, then falling linearly to -1 at `max_length`, and -1 beyond.
    lengths: [N] sampled tokens per rollout. Returns [N] in [-1, 0]. DAPO: Yu et al. 2025, arXiv:2503.14476, eq. 13.
    """
    if not 0 < cache <= max_length:
        raise ValueError(f"cache must be in 1..max_length={max_length}, got {cache}")
    over = lengths.to(working_dtype(lengths)) - (max_length - cache)
    return -(over / cache).clamp(0.0, 1.0)


@torch.no_grad()
def explained_variance(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
    """`1 - Var(R - V) / Var(R)` over the sampled tokens: 1 is a perfect critic, 0 one that knows only the mean.

    values, returns, mask: [B,T] of the whole batch (a mean over micro-batches is another number). Returns a scalar;
    NaN where it is undefined (equal returns, or no token). Population variances (ddof 0), as in CleanRL.
    """
    check_mask(mask, values=values, returns=returns)
    target, error = returns[mask].double(), (returns - values)[mask].double()
    total = _centred(target).square().sum()
    explained = 1.0 - (error - error.mean()).square().sum() / total
    return torch.where(total > 0, explained, torch.nan).to(working_dtype(values, returns))


def _groups(group_ids: Ids, size: int, device: torch.device) -> list[Tensor]:
    """The indices of each group's members, ascending; groups by ascending id."""
    ids = torch.as_tensor(group_ids, device=device)
    if ids.shape != (size,) or ids.is_floating_point():
        raise ValueError(f"group_ids must be {size} integers, got {ids.dtype} {list(ids.shape)}")
    return [torch.nonzero(ids == group).squeeze(1) for group in sorted(set(ids.tolist()))]


def _centred(pool: Tensor) -> Tensor:
    """float64 [M] minus its mean; exactly 0 if empty or equal. NaN fails the comparison and propagates."""
    if pool.numel() == 0 or bool(pool.max() - pool.min() <= EQUAL):
        return torch.zeros_like(pool)
    return pool - pool.mean()


def _standardised(pool: Tensor, ddof: int, eps: float) -> Tensor:
    """float64 [M], centred and divided by std + eps; exactly 0 if empty or equal."""
    centred = _centred(pool)
    if not bool(centred.any()):
        return centred
    return centred / (_variance(centred, ddof).sqrt() + eps)


def _variance(centred: Tensor, ddof: int) -> Tensor:
    """Of values whose mean is already subtracted (two-pass: mean of squares minus square of mean cancels)."""
    if ddof not in (0, 1):
        raise ValueError(f"ddof must be 0 or 1, got {ddof}")
    return centred.square().sum() / (centred.numel() - ddof)


def _vector(row: Tensor | Sequence[float]) -> Tensor:
    """[K]; plain Python floats stay float64."""
    return row if isinstance(row, Tensor) else torch.tensor(row, dtype=torch.float64)
