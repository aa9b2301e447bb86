"""The learner: prepare a batch, take a step. It knows no environment, verifier or engine.

Numbers that must not depend on the split into micro-batches are fixed on the whole update first (`loss_weights`,
denominators); micro-batches then only add up. Advantages by group come with the batch; those from rewards of single
tokens (a critic, a KL penalty in the reward) are computed in `prepare`, on the whole batch.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentrl.api import keyed_seed
from agentrl.config import TrainConfig
from agentrl.learning.adapters import has_adapters, load_trained, merged_state, trained_state, without_adapters
from agentrl.learning.advantages import explained_variance
from agentrl.learning.algorithms import CRITIC_FACTOR, Algorithm
from agentrl.learning.batch import Batch, loss_weights, token_level_advantages, whitened
from agentrl.learning.critic import CriticLearner
from agentrl.learning.kl import AdaptiveKL
from agentrl.learning.losses import Stats, cispo_loss, kl_estimate, policy_loss, truncated_importance_weights
from agentrl.learning.optimizer import adamw, learning_rate_at, set_learning_rate
from agentrl.learning.outputs import microbatches, token_outputs
from agentrl.learning.world import World

_WANT = frozenset({"logprob", "entropy"})
KL_HORIZON = 10_000
"""Rollouts over which an adaptive coefficient of KL may change by a fifth (Ziegler et al. 2019, arXiv:1909.08593)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A batch with what was computed on it before the first update.

    old: [B,T] log-probabilities of the policy at the start of the step, or None when the only update of the step is
    the first (they are then the current ones). reference: [B,T] of the start policy, or None without a KL term in the
    loss. values, returns: [B,T] of the critic, or None. measures: metrics of the batch as a whole.
    """

    batch: Batch
    old: Tensor | None
    reference: Tensor | None
    values: Tensor | None = None
    returns: Tensor | None = None
    measures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """What a learner is told once. importance_cap, importance_level, importance_above: as in
    `truncated_importance_weights`. max_tokens: most tokens a rollout may sample (the `constant` aggregation).

    Example: see `agentrl.loops.train`.
    """

    algorithm: Algorithm
    train: TrainConfig
    importance_cap: float
    importance_level: Literal["token", "sequence"] = "token"
    importance_above: Literal["truncate", "zero"] = "truncate"
    temperature: float
    max_tokens: int
    seed: int
    autocast: torch.dtype | None


class Learner:
    """Trains `model` in place. The reference of a KL term is a frozen copy of it as it is given, or the model itself
    without the adapters that are trained."""

    def __init__(self, model: PreTrainedModel, settings: LearnerSettings, world: World) -> None:
        self.model, self.settings, self.world = model, settings, world
        train, algorithm = settings.train, settings.algorithm
        if train.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.optimizer = adamw(model, learning_rate=train.learning_rate, weight_decay=train.weight_decay)
        self.reference: PreTrainedModel | None = None
        if algorithm.kl_coefficient > 0 and not has_adapters(model):
            self.reference = copy.deepcopy(model).train(False).requires_grad_(False)
        self.kl: AdaptiveKL | None = None
        if algorithm.kl_coefficient > 0 and algorithm.kl_target > 0:
            self.kl = AdaptiveKL(initial=algorithm.kl_coefficient, target=algorithm.kl_target, horizon=KL_HORIZON)
        self.critic: CriticLearner | None = None
        if algorithm.baseline == "critic":
            self.critic = CriticLearner(
                model,
                seed=settings.seed,
                learning_rate=algorithm.critic_learning_rate or CRITIC_FACTOR * train.learning_rate,
                value_clip=algorithm.value_clip,
                max_grad_norm=train.max_grad_norm,
                tokens_per_microbatch=train.tokens_per_microbatch,
                autocast=settings.autocast,
                world=world,
            )

    def prepare(self, batch: Batch | None) -> Prepared:
        """Old, reference and value passes, and advantages from them; passes that nothing needs are skipped.

        batch: None on a rank that has nothing to train on while others have.
        """
        algorithm = self.settings.algorithm
        batch = Batch.empty() if batch is None else batch
        once = self.settings.train.epochs * self.settings.train.minibatches == 1
        penalised = algorithm.kl_coefficient > 0 and algorithm.kl == "reward"
        old = None if once and not penalised else self._frozen(self.model, batch)
        reference = self._start_logprobs(batch) if algorithm.kl_coefficient > 0 else None
        if algorithm.by_group:
            return Prepared(batch=self._scaled(batch, batch.advantages), old=old, reference=reference)
        rewards, measures = batch.rewards, dict[str, float]()
        if penalised and old is not None and reference is not None:
            rewards, measures = self._penalised(batch, old, reference)
        values = None if self.critic is None else self.critic.values(batch)
        advantages, returns = token_level_advantages(rewards, values, batch.mask, batch.turn, algorithm)
        if values is not None:
            measures |= self._value_measures(values[batch.mask], returns[batch.mask])
        return Prepared(
            batch=self._scaled(batch, advantages),
            old=old,
            reference=None if penalised else reference,
            values=values,
            returns=returns,
            measures=measures,
        )

    def _scaled(self, batch: Batch, advantages: Tensor) -> Batch:
        if self.settings.algorithm.scale == "whiten":
            advantages = whitened(advantages, batch.mask, self.world)
        return replace(batch, advantages=advantages)

    def _value_measures(self, values: Tensor, returns: Tensor) -> dict[str, float]:
        """Of the critic, over all tokens of the step."""
        values, returns = (torch.cat(self.world.gather(column))[None] for column in (values, returns))
        everywhere = torch.ones_like(values, dtype=torch.bool)
        return {
            "explained_variance": float(explained_variance(values, returns, everywhere)),
            "value_mean": float(values.mean()),
        }

    def _penalised(self, batch: Batch, old: Tensor, reference: Tensor) -> tuple[Tensor, dict[str, float]]:
        """Token rewards less the coefficient times k1, and what was measured. The coefficient is then adapted."""
        divergence = kl_estimate(old, reference, kind="k1", mask=batch.mask)
        coefficient = self.settings.algorithm.kl_coefficient if self.kl is None else self.kl.coefficient
        total, rollouts = self.world.total(divergence.sum()), self.world.total(len(batch))
        per_rollout = total / max(rollouts, 1.0)
        if self.kl is not None and math.isfinite(per_rollout):
            self.kl.update(per_rollout, int(rollouts))
        measures = {
            "kl_reference": total / max(self.world.total(batch.mask.sum()), 1.0),
            "kl_per_rollout": per_rollout,
            "kl_coefficient": coefficient,
        }
        return batch.rewards - coefficient * divergence, measures

    @torch.no_grad()
    def _frozen(self, model: PreTrainedModel, batch: Batch) -> Tensor:
        logprobs = torch.zeros(batch.mask.shape)
        for rows in microbatches(batch.segments, self.settings.train.tokens_per_microbatch):
            logprobs[rows] = self._outputs(model, batch, rows, frozenset({"logprob"})).logprob.cpu()
        return logprobs

    def _start_logprobs(self, batch: Batch) -> Tensor:
        if self.reference is not None:
            return self._frozen(self.reference, batch)
        with without_adapters(self.model):
            return self._frozen(self.model, batch)

    def _outputs(self, model: PreTrainedModel, batch: Batch, rows: Sequence[int], want: frozenset[str]) -> Any:
        return token_outputs(
            model,
            [batch.segments[row] for row in rows],
            want=want,
            width=batch.mask.shape[1],
            temperature=self.settings.temperature,
            autocast=self.settings.autocast,
        )

    def step(self, prepared: Prepared, step: int) -> dict[str, float]:
        """All updates of training step `step` (from 0) on one batch; returns the step's metrics."""
        train = self.settings.train
        share = learning_rate_at(step, steps=train.steps, peak=1.0, warmup=train.warmup_steps, schedule=train.schedule)
        set_learning_rate(self.optimizer, train.learning_rate * share)
        totals = _Totals()
        self.model.train()
        for epoch in range(train.epochs):
            generator = torch.Generator().manual_seed(keyed_seed(self.settings.seed, "minibatches", step, epoch))
            order = torch.randperm(len(prepared.batch), generator=generator).tolist()
            for part in range(train.minibatches):
                rows = sorted(order[part :: train.minibatches])
                if self.critic is not None and prepared.values is not None and prepared.returns is not None:
                    chosen = prepared.batch.select(rows)
                    totals.add_all(self.critic.update(chosen, prepared.values[rows], prepared.returns[rows], share))
                if step >= self.settings.algorithm.critic_warmup:
                    self._update(prepared, rows, totals)
        advantages = torch.cat(self.world.gather(prepared.batch.advantages[prepared.batch.mask])).double()
        return (
            totals.over(self.world).metrics()
            | prepared.measures
            | {
                "advantage_std": float(advantages.std(correction=0)),
                "learning_rate": self.optimizer.param_groups[0]["lr"],
            }
        )

    def _update(self, prepared: Prepared, rows: Sequence[int], totals: _Totals) -> None:
        batch, algorithm = prepared.batch.select(rows), self.settings.algorithm
        weights = loss_weights(batch.mask, algorithm.aggregate, self.settings.max_tokens, self.world)
        # Without KL and entropy terms a row whose advantages are all 0 has a gradient of exactly 0: it counts in the
        # denominators and needs no pass.
        live = list(range(len(batch)))
        if prepared.reference is None and not algorithm.entropy_coefficient:
            live = [row for row in live if bool(batch.advantages[row].any())]
        for chunk in microbatches([batch.segments[row] for row in live], self.settings.train.tokens_per_microbatch):
            chosen = [live[i] for i in chunk]
            self._backward(prepared, [rows[i] for i in chosen], weights[chosen], totals)
        if not self.world.total(len(live)):
            return
        self.world.sum_gradients(self.model)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.train.max_grad_norm)
        if bool(torch.isfinite(norm)):
            self.optimizer.step()
            totals.updates += 1
            totals.grad_norm += float(norm)
        else:
            totals.skipped += 1
        self.optimizer.zero_grad(set_to_none=True)

    def _backward(self, prepared: Prepared, rows: Sequence[int], weights: Tensor, totals: _Totals) -> None:
        batch, algorithm = prepared.batch.select(rows), self.settings.algorithm
        outputs = self._outputs(self.model, batch, range(len(batch)), _WANT)
        device = outputs.logprob.device
        mask, sampler = batch.mask.to(device), batch.sampler_logprobs.to(device)
        old = outputs.logprob.detach() if prepared.old is None else prepared.old[rows].to(device)
        correction = truncated_importance_weights(
            old,
            sampler,
            mask,
            level=self.settings.importance_level,
            cap=self.settings.importance_cap,
            above=self.settings.importance_above,
        )
        totals.add_correction(correction[mask])
        weights = weights.to(device)
        loss, stats = policy_term(
            algorithm, outputs.logprob, old, batch.advantages.to(device), mask, weights * correction
        )
        if prepared.reference is not None:
            kl = kl_estimate(outputs.logprob, prepared.reference[rows].to(device), kind="k3", mask=mask)
            loss = loss + algorithm.kl_coefficient * (kl * weights).sum()
            totals.add("kl_reference", kl.detach().sum())
        if algorithm.entropy_coefficient:
            loss = loss - algorithm.entropy_coefficient * (outputs.entropy * weights).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        totals.add_losses(loss.detach(), stats)
        totals.add("entropy", outputs.entropy.detach()[mask].sum())
        gap = torch.where(mask, (old - sampler).abs(), 0.0)
        totals.add("logprob_gap", gap.sum())
        totals.gap_max = max(totals.gap_max, float(gap.max()))

    def named_weights(self) -> list[tuple[str, object]]:
        """(name, tensor) of the policy, adapters merged: what engines update from."""
        return list(merged_state(self.model).items())

    def state(self) -> dict[str, Any]:
        """Everything that a resumed learner needs, tensors included. The reference is not in it: see `load_state`."""
        state = {"model": trained_state(self.model), "optimizer": self.optimizer.state_dict()}
        if self.critic is not None:
            state["critic"] = self.critic.state()
        if self.kl is not None:
            state["kl"] = self.kl.state()
        return state

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`. The reference stays the start policy that this learner was built with."""
        load_trained(self.model, state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.critic is not None:
            self.critic.load_state(state["critic"])
        if self.kl is not None:
            self.kl.load_state(state["kl"])


def policy_term(
    algorithm: Algorithm, logprobs: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, weights: Tensor
) -> tuple[Tensor, Stats]:
    """The policy's loss as a plain sum over tokens: `weights` carry the aggregation, so denominators are 1."""
    low, high = algorithm.clip_low, algorithm.clip_high
    if algorithm.loss == "cispo":
        loss, stats = cispo_loss(
            logprobs, old, advantages, mask, cap_low=1 - low, cap_high=1 + high, weights=weights, denominator=1.0
        )
        return loss, stats | {"clip_low": stats["cap_low"], "clip_high": stats["cap_high"]}
    return policy_loss(
        logprobs,
        old,
        advantages,
        mask,
        ratio=algorithm.ratio,
        clip_low=low,
        clip_high=high,
        dual_clip=algorithm.dual_clip or None,
        weights=weights,
        aggregate="constant",
        constant=1.0,
        denominator=1.0,
    )


class _Totals:
    """Sums over the micro-batches of a step, divided once at the end."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.updates = self.skipped = 0
        self.loss = self.grad_norm = self.gap_max = self.ratio_max = 0.0

    def over(self, world: World) -> _Totals:
        """Those of all ranks together. Updates and gradient norms are the same on each."""
        whole, every = _Totals(), world.gather(self)
        for one in every:
            whole.add_all(one.sums)
        whole.updates, whole.skipped, whole.grad_norm = self.updates, self.skipped, self.grad_norm
        whole.loss = sum(one.loss for one in every)
        whole.gap_max = max(one.gap_max for one in every)
        whole.ratio_max = max(one.ratio_max for one in every)
        return whole

    def add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + float(value)

    def add_correction(self, weights: Tensor) -> None:
        self.add("weight_sum", weights.sum())
        self.add("weight_squares", weights.square().sum())
        self.add("weight_zeros", (weights == 0).sum())

    def add_all(self, sums: Mapping[str, float]) -> None:
        for name, value in sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def add_losses(self, loss: Tensor, stats: dict[str, Tensor]) -> None:
        self.loss += float(loss)
        self.ratio_max = max(self.ratio_max, float(stats["ratio_max"]))
        for name in ("tokens", "clip_low", "clip_high", "kl_old_sum", "ratio_sum"):
            self.add(name, stats[name])

    def metrics(self) -> dict[str, float]:
        tokens = max(self.sums.get("tokens", 0.0), 1.0)
        names = {
            "clip_low": "clip_low",
            "clip_high": "clip_high",
            "kl_old_sum": "kl_old",
            "ratio_sum": "ratio_mean",
            "entropy": "entropy",
            "logprob_gap": "logprob_gap",
            "kl_reference": "kl_reference",
        }
        means = {name: self.sums[key] / tokens for key, name in names.items() if key in self.sums}
        updates = max(self.updates, 1)
        if self.sums.get("weight_squares"):
            means["importance_ess"] = self.sums["weight_sum"] ** 2 / (tokens * self.sums["weight_squares"])
            means["importance_masked"] = self.sums["weight_zeros"] / tokens
        if "value_tokens" in self.sums:
            valued = max(self.sums["value_tokens"], 1.0)
            means |= {name: self.sums[name] / valued for name in ("value_loss", "value_clipped")}
            means["skipped_value_updates"] = self.sums["value_skipped"]
        return means | {
            "loss": self.loss / max(self.updates + self.skipped, 1),
            "grad_norm": self.grad_norm / updates,
            "ratio_max": self.ratio_max,
            "logprob_gap_max": self.gap_max,
            "updates": self.updates,
            "skipped_updates": self.skipped,
            "tokens_trained": int(self.sums.get("tokens", 0.0)),
        }
