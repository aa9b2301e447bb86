"""The learner: prepare a batch, take a step. It knows no environment, verifier or engine.

Numbers that must not depend on the split into micro-batches are fixed on the whole update first (`loss_weights`,
denominators); micro-batches then only add up.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentrl.api import keyed_seed
from agentrl.config import TrainConfig
from agentrl.learning.algorithms import Algorithm
from agentrl.learning.batch import Batch, loss_weights
from agentrl.learning.losses import kl_estimate, policy_loss, truncated_importance_weights
from agentrl.learning.optimizer import adamw, learning_rate_at, set_learning_rate
from agentrl.learning.outputs import microbatches, token_outputs
from agentrl.learning.world import World

_WANT = frozenset({"logprob", "entropy"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A batch with what was computed on it before the first update.

    old: [B,T] log-probabilities of the policy at the start of the step, or None when the only update of the step is
    the first (they are then the current ones). reference: [B,T] of the start policy, or None without a KL term.
    """

    batch: Batch
    old: Tensor | None
    reference: Tensor | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnerSettings:
    """What a learner is told once. max_tokens: most tokens a rollout may sample (the `constant` aggregation).

    Example: see `agentrl.loops.train`.
    """

    algorithm: Algorithm
    train: TrainConfig
    importance_cap: float
    temperature: float
    max_tokens: int
    seed: int
    autocast: torch.dtype | None


class Learner:
    """Trains `model` in place. The reference is a frozen copy of it as it is given, kept only for a KL term."""

    def __init__(self, model: PreTrainedModel, settings: LearnerSettings, world: World) -> None:
        self.model, self.settings, self.world = model, settings, world
        train = settings.train
        self.optimizer = adamw(model, learning_rate=train.learning_rate, weight_decay=train.weight_decay)
        self.reference: PreTrainedModel | None = None
        if settings.algorithm.kl_coefficient > 0:
            self.reference = copy.deepcopy(model).train(False).requires_grad_(False)

    def prepare(self, batch: Batch) -> Prepared:
        """Old and reference log-probabilities; passes that nothing needs are skipped."""
        once = self.settings.train.epochs * self.settings.train.minibatches == 1
        return Prepared(
            batch=batch,
            old=None if once else self._frozen(self.model, batch),
            reference=None if self.reference is None else self._frozen(self.reference, batch),
        )

    @torch.no_grad()
    def _frozen(self, model: PreTrainedModel, batch: Batch) -> Tensor:
        logprobs = torch.zeros(batch.mask.shape)
        for rows in microbatches(batch.segments, self.settings.train.tokens_per_microbatch):
            logprobs[rows] = self._outputs(model, batch, rows, frozenset({"logprob"})).logprob.cpu()
        return logprobs

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
        set_learning_rate(
            self.optimizer,
            learning_rate_at(
                step, steps=train.steps, peak=train.learning_rate, warmup=train.warmup_steps, schedule=train.schedule
            ),
        )
        totals = _Totals()
        self.model.train()
        for epoch in range(train.epochs):
            generator = torch.Generator().manual_seed(keyed_seed(self.settings.seed, "minibatches", step, epoch))
            order = torch.randperm(len(prepared.batch), generator=generator).tolist()
            for part in range(train.minibatches):
                self._update(prepared, sorted(order[part :: train.minibatches]), totals)
        return totals.metrics() | {"learning_rate": self.optimizer.param_groups[0]["lr"]}

    def _update(self, prepared: Prepared, rows: Sequence[int], totals: _Totals) -> None:
        batch, algorithm = prepared.batch.select(rows), self.settings.algorithm
        weights = loss_weights(batch.mask, algorithm.aggregate, self.settings.max_tokens)
        # Without a KL term a row whose advantages are all 0 has a gradient of exactly 0: it counts in the
        # denominators and needs no pass.
        live = list(range(len(batch)))
        if prepared.reference is None:
            live = [row for row in live if bool(batch.advantages[row].any())]
        for chunk in microbatches([batch.segments[row] for row in live], self.settings.train.tokens_per_microbatch):
            chosen = [live[i] for i in chunk]
            self._backward(prepared, [rows[i] for i in chosen], weights[chosen], totals)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.train.max_grad_norm)
        if bool(torch.isfinite(norm)) and live:
            self.optimizer.step()
            totals.updates += 1
            totals.grad_norm += float(norm)
        elif live:
            totals.skipped += 1
        self.optimizer.zero_grad(set_to_none=True)

    def _backward(self, prepared: Prepared, rows: Sequence[int], weights: Tensor, totals: _Totals) -> None:
        batch, algorithm = prepared.batch.select(rows), self.settings.algorithm
        outputs = self._outputs(self.model, batch, range(len(batch)), _WANT)
        device = outputs.logprob.device
        mask, sampler = batch.mask.to(device), batch.sampler_logprobs.to(device)
        old = outputs.logprob.detach() if prepared.old is None else prepared.old[rows].to(device)
        correction = truncated_importance_weights(old, sampler, mask, cap=self.settings.importance_cap)
        weights = weights.to(device)
        loss, stats = policy_loss(
            outputs.logprob,
            old,
            batch.advantages.to(device),
            mask,
            ratio=algorithm.ratio,
            clip_low=algorithm.clip_low,
            clip_high=algorithm.clip_high,
            weights=weights * correction,
            aggregate="constant",  # the weights carry the aggregation: this only sums
            constant=1.0,
            denominator=1.0,
        )
        if prepared.reference is not None:
            kl = kl_estimate(outputs.logprob, prepared.reference[rows].to(device), kind="k3", mask=mask)
            loss = loss + algorithm.kl_coefficient * (kl * weights).sum()
            totals.add("kl_reference", kl.detach().sum())
        loss.backward()  # type: ignore[no-untyped-call]
        totals.add_losses(loss.detach(), stats)
        totals.add("entropy", outputs.entropy.detach()[mask].sum())
        gap = torch.where(mask, (old - sampler).abs(), 0.0)
        totals.add("logprob_gap", gap.sum())
        totals.gap_max = max(totals.gap_max, float(gap.max()))

    def named_weights(self) -> list[tuple[str, object]]:
        """(name, tensor) of the policy's parameters: what engines update from."""
        return [(name, parameter.detach()) for name, parameter in self.model.named_parameters()]

    def state(self) -> dict[str, Any]:
        """Everything that a resumed learner needs, tensors included. The reference is not in it: see `load_state`."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`. The reference stays the start policy that this learner was built with."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])


class _Totals:
    """Sums over the micro-batches of a step, divided once at the end."""

    def __init__(self) -> None:
        self.sums: dict[str, float] = {}
        self.updates = self.skipped = 0
        self.loss = self.grad_norm = self.gap_max = self.ratio_max = 0.0

    def add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums.get(name, 0.0) + float(value)

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
        return means | {
            "loss": self.loss / max(self.updates + self.skipped, 1),
            "grad_norm": self.grad_norm / updates,
            "ratio_max": self.ratio_max,
            "logprob_gap_max": self.gap_max,
            "updates": self.updates,
            "skipped_updates": self.skipped,
            "tokens_trained": int(self.sums.get("tokens", 0.0)),
        }
