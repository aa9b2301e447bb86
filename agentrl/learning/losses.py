"""Losses of policy, critic and reward model: pure functions, tensors in, (loss, stats) out. Losses are minimised.

Shapes: B rows (rollouts) of T tokens; `mask` [B,T] is boolean, True where the policy sampled the token. Column t of
every tensor speaks of token t given all before it. Only log-probabilities and values carry gradient; everything else
is a constant. Computed in float64 if any input is float64, else in float32.

Masked tokens are replaced *before* any arithmetic (0 times NaN is NaN, in the backward pass too), so whatever stands
there adds exactly 0 to value and gradient. NaN at a sampled token propagates into the loss; an infinite log-ratio is
clamped like any large one. So callers that want to know count non-finite inputs.

Denominators. Losses over micro-batches and ranks add up to the loss of the global batch only if each divides by the
*global* `denominator`: for "token_mean" its number of sampled tokens, for "sequence_mean" its number of sequences with
at least one sampled token, for "constant" that number of sequences times the constant. Without it, the same count is
taken from the given rows. Weights never change a denominator.

Stats are detached scalars: sums and counts over the sampled tokens (`sequences`: over the rows that have any), to be
added over micro-batches and then divided by the summed `tokens`; of `ratio_max` take the maximum instead.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from agentrl.learning.advantages import check_mask, working_dtype

Aggregate: TypeAlias = Literal["token_mean", "sequence_mean", "constant"]
Stats: TypeAlias = dict[str, Tensor]

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to +-20 before exp: exp(89) overflows float32, and its gradient is then NaN."""


def policy_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    ratio: Literal["token", "sequence"] = "token",
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    weights: Tensor | None = None,
    aggregate: Aggregate = "token_mean",
    constant: float | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, Stats]:
    """Clipped policy-gradient loss of PPO, GRPO, DAPO and GSPO.

    `L_t = -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)`; with `dual_clip` c > 1 and A < 0, `min(L_t, -c A)`.
    "token": `r_t = exp(logp_t - old_t)`. "sequence" (GSPO): `s = exp(mean_t (logp_t - old_t))` over the sampled tokens
    of the row, differentiated as it stands for advantages [B]; for advantages [B,T] GSPO-token, whose r_t has the
    value s and the gradient of logp_t alone. Both agree where advantages and weights are constant along the row.

    logprobs, old_logprobs, mask: [B,T]; advantages: [B] or [B,T]; weights: [B,T], factors of L_t (importance weights,
    0 for excluded tokens). aggregate, constant, denominator: see `aggregate_tokens`.
    Stats: tokens, sequences, clip_low (A < 0 and r < 1 - clip_low), clip_high (A > 0 and r > 1 + clip_high), clip_dual
    (A < 0 and r > c), ratio_sum, ratio_max, kl_old_sum (k3 estimate of KL(old || new) per token, in nats). With
    "sequence" every token counts with the ratio of its row.
    Schulman et al. 2017, arXiv:1707.06347, eq. 7; dual clip: Ye et al. 2020, arXiv:1912.09729; asymmetric clip: DAPO,
    arXiv:2503.14476, section 3.1; GSPO: Zheng et al. 2025, arXiv:2507.18071, eqs. 5 and 7, GSPO-token eqs. 13 and 14.
    Raises ValueError for shapes that differ and options that do not go together.
    """
    _check_policy_options(ratio, aggregate, clip_low, clip_high, dual_clip)
    per_token = advantages.dim() == 2
    _, log_ratio, advantages, weights = _policy_inputs(logprobs, old_logprobs, advantages, mask, weights)
    if ratio == "sequence":
        ratios = _sequence_ratio(log_ratio, mask, per_token=per_token)
    else:
        ratios = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    loss = -torch.minimum(ratios * advantages, ratios.clamp(1 - clip_low, 1 + clip_high) * advantages)
    if dual_clip is not None:
        loss = torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)
    total = aggregate_tokens(loss * weights, mask, aggregate=aggregate, constant=constant, denominator=denominator)
    stats = _ratio_stats(ratios, log_ratio, mask)
    stats["clip_low"] = _count((advantages < 0) & (ratios < 1 - clip_low), mask, loss)
    stats["clip_high"] = _count((advantages > 0) & (ratios > 1 + clip_high), mask, loss)
    dual = float("inf") if dual_clip is None else dual_clip
    stats["clip_dual"] = _count((advantages < 0) & (ratios > dual), mask, loss)
    return total, stats


def cispo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    cap_low: float = 0.0,
    cap_high: float,
    weights: Tensor | None = None,
    denominator: float | None = None,
) -> tuple[Tensor, Stats]:
    """REINFORCE with a capped importance weight: `L_t = -sg(clip(r_t, cap_low, cap_high)) A_t logp_t`, token mean.

    No token loses its gradient, as clipped tokens of `policy_loss` do. `cap_high` is the cap itself, not 1 + epsilon.
    Shapes and `weights` as in `policy_loss`. denominator: global number of sampled tokens, see `aggregate_tokens`.
    Stats: tokens, sequences, cap_low and cap_high (tokens whose ratio lies beyond), ratio_sum, ratio_max, kl_old_sum.
    MiniMax-M1 2025, arXiv:2506.13585, eq. 4. Raises ValueError for shapes that differ and caps out of order.
    """
    if not 0 <= cap_low < cap_high:
        raise ValueError(f"need 0 <= cap_low < cap_high, got {cap_low} and {cap_high}")
    logprobs, log_ratio, advantages, weights = _policy_inputs(logprobs, old_logprobs, advantages, mask, weights)
    ratios = log_ratio.detach().clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    loss = -ratios.clamp(cap_low, cap_high) * advantages * logprobs
    total = aggregate_tokens(loss * weights, mask, denominator=denominator)
    stats = _ratio_stats(ratios, log_ratio, mask)
    stats["cap_low"] = _count(ratios < cap_low, mask, loss)
    stats["cap_high"] = _count(ratios > cap_high, mask, loss)
    return total, stats


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    clip: float | None,
    denominator: float | None = None,
) -> tuple[Tensor, Stats]:
    """Clipped squared error of the critic: `0.5 max((V - R)^2, (clip(V, V_old - e, V_old + e) - R)^2)`, token mean.

    values, old_values, returns, mask: [B,T]. clip: e, in units of the return; None leaves the plain squared error.
    denominator: global number of sampled tokens, see `aggregate_tokens`.
    Stats: tokens, clipped (tokens where the clipped error is the larger one), squared_error_sum (unclipped).
    As in the code of Schulman et al. 2017 (OpenAI baselines, ppo2). Raises ValueError for shapes that differ.
    """
    check_mask(mask, values=values, old_values=old_values, returns=returns)
    if clip is not None and not clip > 0:
        raise ValueError(f"clip must be positive or None, got {clip}")
    dtype = working_dtype(values, old_values, returns)
    values, old, target = (_masked(x, mask, dtype) for x in (values, old_values.detach(), returns.detach()))
    error = (values - target).square()
    clipped = error if clip is None else (old + (values - old).clamp(-clip, clip) - target).square()
    total = aggregate_tokens(0.5 * torch.maximum(error, clipped), mask, denominator=denominator)
    stats = {
        "tokens": mask.sum().to(dtype),
        "clipped": _count(clipped > error, mask, error),
        "squared_error_sum": error.detach().sum(),
    }
    return total, stats


def kl_estimate(
    logprobs: Tensor, ref_logprobs: Tensor, *, kind: Literal["k1", "k2", "k3"], mask: Tensor | None = None
) -> Tensor:
    """Per-token estimate of KL(pi || pi_ref) from tokens sampled by pi, in nats; d = logp - ref.

    k1 = d: unbiased, for rewards; as a loss its expected gradient is 0, so never use it there.
    k2 = d^2 / 2: biased value; as a loss exactly the gradient of KL(pi || ref).
    k3 = exp(-d) - 1 + d: unbiased, never negative; as a loss the gradient of KL(ref || pi).
    In k3 d is clamped to +-20; the value is not capped: a cap of 10 would remove the gradient where the policy is more
    than 13.6 times less likely than the reference. Off-policy, multiply by the (constant) ratio pi / pi_old.

    logprobs, ref_logprobs: [B,T] (any equal shape); `ref_logprobs` gets no gradient. mask: True = sampled; give it
    whenever the result is differentiated and unsampled slots may hold anything, they then come out as 0.
    Returns the shape of `logprobs`. Schulman 2020, "Approximating KL divergence"; k3 in GRPO: arXiv:2402.03300, eq. 4.
    """
    if logprobs.shape != ref_logprobs.shape:
        raise ValueError(f"logprobs {list(logprobs.shape)} and ref_logprobs {list(ref_logprobs.shape)} differ in shape")
    dtype = working_dtype(logprobs, ref_logprobs)
    logprobs, ref_logprobs = logprobs.to(dtype), ref_logprobs.detach().to(dtype)
    if mask is not None:
        check_mask(mask, logprobs=logprobs)
        logprobs, ref_logprobs = _masked(logprobs, mask, dtype), _masked(ref_logprobs, mask, dtype)
    difference = logprobs - ref_logprobs
    if kind == "k1":
        return difference
    if kind == "k2":
        return 0.5 * difference.square()
    if kind == "k3":
        difference = difference.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        return torch.expm1(-difference) + difference
    raise ValueError(f"kind must be 'k1', 'k2' or 'k3', got {kind!r}")


@torch.no_grad()
def truncated_importance_weights(
    trainer_logprobs: Tensor,
    sampler_logprobs: Tensor,
    mask: Tensor,
    *,
    level: Literal["token", "sequence"] = "token",
    cap: float,
    above: Literal["truncate", "zero"] = "truncate",
    floor: float | None = None,
) -> Tensor:
    """Weights pi_trainer / pi_sampler that correct for an engine whose probabilities differ from the trainer's.

    "token": one ratio per token. "sequence": the product over the row's sampled tokens, the same for all of them.
    "truncate": `min(w, cap)`, and `max(w, floor)` if there is a floor (TIS). "zero": w where `floor <= w <= cap`, else
    0 (IcePop, masked importance sampling). Multiply only where the ratio of the loss is pi / pi_trainer: if the
    sampler's log-probabilities are the loss's old ones, its ratio holds this correction already.

    trainer_logprobs (at the start of the batch), sampler_logprobs, mask: [B,T]. Returns constants [B,T], 0 where mask
    is False. Ionides 2008, "Truncated importance sampling"; for language models Yao et al. 2025, "Your efficient RL
    framework secretly brings you off-policy RL training". Raises ValueError unless 0 <= floor <= cap and cap > 0.
    """
    check_mask(mask, trainer_logprobs=trainer_logprobs, sampler_logprobs=sampler_logprobs)
    low = 0.0 if floor is None else floor
    if not (0 <= low <= cap and cap > 0):
        raise ValueError(f"need 0 <= floor <= cap and cap > 0, got {floor} and {cap}")
    if level not in ("token", "sequence") or above not in ("truncate", "zero"):
        raise ValueError(f"level is 'token' or 'sequence', above 'truncate' or 'zero'; got {level!r} and {above!r}")
    dtype = working_dtype(trainer_logprobs, sampler_logprobs)
    log_ratio = _masked(trainer_logprobs, mask, dtype) - _masked(sampler_logprobs, mask, dtype)
    if level == "sequence":
        log_ratio = log_ratio.sum(dim=1, keepdim=True).expand_as(log_ratio)
    weights = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
    if above == "truncate":
        weights = weights.clamp(low, cap)
    else:
        # Written as what to drop: a NaN weight stays NaN and is seen.
        weights = torch.where((weights < low) | (weights > cap), 0.0, weights)
    return torch.where(mask, weights, 0.0)


def bradley_terry(
    chosen: Tensor, rejected: Tensor, *, margin: Tensor | float | None = None, centering: float = 0.0
) -> Tensor:
    """Preference loss of a reward model: `mean(-log sigmoid(r_c - r_r - margin)) + centering mean((r_c + r_r)^2)`.

    chosen, rejected: [N] scores of the preferred and the other answer; margin: scalar or [N]; both in score units.
    Returns a scalar. Ouyang et al. 2022, arXiv:2203.02155, eq. 1; margin: Llama 2, arXiv:2307.09288, eq. 2; centering:
    Eisenstein et al. 2023, arXiv:2312.09244. Raises ValueError for shapes that differ and for no pairs.
    """
    if chosen.shape != rejected.shape or chosen.dim() != 1 or len(chosen) == 0:
        raise ValueError(f"need chosen and rejected [N], N > 0; got {list(chosen.shape)} and {list(rejected.shape)}")
    if isinstance(margin, Tensor) and margin.dim() > 0 and margin.shape != chosen.shape:
        raise ValueError(f"margin has shape {list(margin.shape)}, expected {list(chosen.shape)}")
    dtype = working_dtype(chosen, rejected)
    chosen, rejected = chosen.to(dtype), rejected.to(dtype)
    gap = chosen - rejected if margin is None else chosen - rejected - margin
    return -logsigmoid(gap).mean() + centering * (chosen + rejected).square().mean()


def aggregate_tokens(
    per_token: Tensor,
    mask: Tensor,
    *,
    aggregate: Aggregate = "token_mean",
    constant: float | None = None,
    denominator: float | None = None,
) -> Tensor:
    """One number from per-token losses x [B,T] (also KL and entropy terms), over the sampled tokens.

    "token_mean": `sum x / D`, D = sampled tokens (DAPO, arXiv:2503.14476, section 3.3).
    "sequence_mean": `sum_i mean_t x_it / D`, D = rows with a sampled token (GRPO, arXiv:2402.03300, eq. 3).
    "constant": `sum x / D`, D = constant times rows with a sampled token; the constant is the largest allowed number
    of tokens per rollout, whatever the width of the batch (Dr. GRPO, arXiv:2503.20783).
    `denominator` is D of the global batch; of "constant" it *contains* the constant, which is then needed no more and,
    if given, only checked to divide it (a plain number of sequences would be taken for D in silence otherwise).

    Returns a scalar, 0 with a zero gradient if nothing was sampled. Raises ValueError for options that do not fit.
    """
    check_mask(mask, per_token=per_token)
    _check_denominator(aggregate, constant, denominator)
    sums = torch.where(mask, per_token, 0.0).sum(dim=1)
    lengths = mask.sum(dim=1)
    if aggregate == "token_mean":
        count = lengths.sum()
    elif aggregate in ("sequence_mean", "constant"):
        count = (lengths > 0).sum()
    else:
        raise ValueError(f"aggregate must be 'token_mean', 'sequence_mean' or 'constant', got {aggregate!r}")
    if aggregate == "sequence_mean":
        sums = sums / lengths.clamp(min=1)
    total = sums.sum()
    return total / (denominator if denominator is not None else count.clamp(min=1) * (constant or 1.0))


def _check_policy_options(
    ratio: str, aggregate: str, clip_low: float, clip_high: float, dual_clip: float | None
) -> None:
    if ratio not in ("token", "sequence"):
        raise ValueError(f"ratio must be 'token' or 'sequence', got {ratio!r}")
    if ratio == "sequence" and aggregate == "token_mean":
        raise ValueError("ratio='sequence' with aggregate='token_mean' would weight sequences by length: sequence_mean")
    if not (clip_low >= 0 and clip_high >= 0):
        raise ValueError(f"clip_low and clip_high must not be negative, got {clip_low} and {clip_high}")
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip bounds the ratio from above and must exceed 1, got {dual_clip}")


def _check_denominator(aggregate: str, constant: float | None, denominator: float | None) -> None:
    if denominator is not None and not denominator > 0:
        raise ValueError(f"denominator must be positive, got {denominator}")
    if constant is not None and not constant > 0:
        raise ValueError(f"constant must be positive, got {constant}")
    if aggregate == "constant":
        if constant is None and denominator is None:
            raise ValueError("aggregate='constant' needs constant (or a denominator that contains it)")
        sequences = 1.0 if constant is None or denominator is None else denominator / constant
        if abs(sequences - round(sequences)) > 1e-6 * sequences:
            raise ValueError(f"denominator {denominator} must be sequences times constant {constant}")
    elif constant is not None:
        raise ValueError(f"constant belongs to aggregate='constant', not {aggregate!r}")


def _masked(tensor: Tensor, mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 wherever mask is False, whatever stood there; so is the gradient."""
    return torch.where(mask, tensor.to(dtype), 0.0)


def _policy_inputs(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, mask: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Checked and masked (logprobs, logprobs - old, advantages, weights), all [B,T]; the last two are constants."""
    check_mask(mask, logprobs=logprobs, old_logprobs=old_logprobs)
    if advantages.dim() == 1 and len(advantages) == len(mask):
        advantages = advantages.unsqueeze(1).expand_as(mask)
    weights = torch.ones_like(logprobs) if weights is None else weights
    check_mask(mask, advantages=advantages, weights=weights)
    dtype = working_dtype(logprobs, old_logprobs, advantages, weights)
    logprobs = _masked(logprobs, mask, dtype)
    log_ratio = logprobs - _masked(old_logprobs.detach(), mask, dtype)
    return logprobs, log_ratio, _masked(advantages.detach(), mask, dtype), _masked(weights.detach(), mask, dtype)


def _sequence_ratio(log_ratio: Tensor, mask: Tensor, *, per_token: bool) -> Tensor:
    """The geometric mean of each row's token ratios, [B,T]; `log_ratio` is 0 where mask is False."""
    log_mean = log_ratio.sum(dim=1, keepdim=True) / mask.sum(dim=1, keepdim=True).clamp(min=1)
    if per_token:
        # In parentheses, because only x - x is exactly 0; adding x first would lose the low bits of a tiny mean.
        log_mean = log_mean.detach() + (log_ratio - log_ratio.detach())
    return log_mean.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp().expand_as(log_ratio)


def _count(condition: Tensor, mask: Tensor, like: Tensor) -> Tensor:
    return (condition & mask).sum().to(like.dtype)


@torch.no_grad()
def _ratio_stats(ratios: Tensor, log_ratio: Tensor, mask: Tensor) -> Stats:
    sampled = torch.where(mask, ratios, 0.0)
    clamped = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return {
        "tokens": mask.sum().to(ratios.dtype),
        "sequences": mask.any(dim=1).sum().to(ratios.dtype),
        "ratio_sum": sampled.sum(),
        "ratio_max": sampled.amax() if sampled.numel() else sampled.sum(),
        "kl_old_sum": (torch.expm1(clamped) - clamped).sum(),
    }
