"""The critic: a value for every sampled token, with a model, an optimiser and a learning rate of its own."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentrl.learning.batch import Batch
from agentrl.learning.losses import value_loss
from agentrl.learning.optimizer import adamw, set_learning_rate
from agentrl.learning.outputs import microbatches, token_values
from agentrl.learning.world import World


class Critic(torch.nn.Module):
    """A copy of the policy's body with a head that gives one number per position.

    The head starts at N(0, 1/(d+1)) for a hidden width d, so first values are small beside a reward of 1.
    """

    def __init__(self, policy: PreTrainedModel, seed: int) -> None:
        super().__init__()
        self.body: torch.nn.Module = copy.deepcopy(policy.base_model)
        width = policy.get_output_embeddings().weight.shape[1]
        self.head = torch.nn.Linear(width, 1, bias=True)
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            self.head.weight.copy_(torch.randn(1, width, generator=generator) / (width + 1))
            self.head.bias.zero_()
        self.head.to(policy.device)

    def forward(self, ids: Tensor, positions: tuple[Tensor, Tensor]) -> Tensor:
        """Values [N] before the tokens that follow the named positions of ids [S,L]."""
        hidden = self.body(input_ids=ids, use_cache=False).last_hidden_state
        values: Tensor = self.head(hidden[positions])[:, 0]
        return values.float()


class CriticLearner:
    """Trains a critic beside the policy, on the same rows."""

    def __init__(
        self,
        policy: PreTrainedModel,
        *,
        seed: int,
        learning_rate: float,
        value_clip: float,
        max_grad_norm: float,
        tokens_per_microbatch: int,
        autocast: torch.dtype | None,
        world: World,
    ) -> None:
        self.world = world
        self.critic = Critic(policy, seed)
        self.optimizer = adamw(self.critic, learning_rate=learning_rate, weight_decay=0.0)
        self.learning_rate, self.value_clip, self.max_grad_norm = learning_rate, value_clip, max_grad_norm
        self.tokens_per_microbatch, self.autocast = tokens_per_microbatch, autocast

    def _values(self, batch: Batch, rows: Sequence[int]) -> Tensor:
        segments = [batch.segments[row] for row in rows]
        return token_values(self.critic, segments, width=batch.mask.shape[1], autocast=self.autocast)

    @torch.no_grad()
    def values(self, batch: Batch) -> Tensor:
        """[B,T] values before each sampled token."""
        values = torch.zeros(batch.mask.shape)
        for rows in microbatches(batch.segments, self.tokens_per_microbatch):
            values[rows] = self._values(batch, rows).cpu()
        return values

    def update(self, batch: Batch, old_values: Tensor, returns: Tensor, share: float) -> dict[str, float]:
        """One update on a batch; `share` of the peak learning rate. Returns sums for `value_metrics`."""
        set_learning_rate(self.optimizer, self.learning_rate * share)
        own = float(batch.mask.sum())
        tokens = max(self.world.total(own), 1.0)
        sums = {"value_loss": 0.0, "value_clipped": 0.0, "value_tokens": own, "value_skipped": 0.0}
        for rows in microbatches(batch.segments, self.tokens_per_microbatch):
            values = self._values(batch, rows)
            loss, stats = value_loss(
                values,
                old_values[rows].to(values.device),
                returns[rows].to(values.device),
                batch.mask[rows].to(values.device),
                clip=self.value_clip or None,
                denominator=tokens,
            )
            loss.backward()  # type: ignore[no-untyped-call]
            sums["value_loss"] += float(loss.detach()) * tokens
            sums["value_clipped"] += float(stats["clipped"])
        self.world.sum_gradients(self.critic)
        norm = torch.nn.utils.clip_grad_norm_(self.critic.parameters(), self.max_grad_norm)
        if bool(torch.isfinite(norm)):
            self.optimizer.step()
        elif self.world.rank == 0:  # sums are added up over ranks, and all of them skip together
            sums["value_skipped"] = 1.0
        self.optimizer.zero_grad(set_to_none=True)
        return sums

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds of the critic."""
        return {"model": self.critic.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        self.critic.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
