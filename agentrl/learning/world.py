"""Ranks and reductions, in one small object."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as distributed

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class World:
    """The processes that train together, each on its own rollouts; all make the same calls in the same order.

    Example: `World(rank=0, size=1)` when there is one.
    """

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> World:
        """The world that torch.distributed knows, or one process."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls()

    def total(self, value: float | torch.Tensor) -> float:
        """Sum of a number over all ranks."""
        return sum(self.gather(float(value)))

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, by rank."""
        if self.size == 1:
            return [value]
        found: list[Any] = [None] * self.size
        distributed.all_gather_object(found, value)
        return found

    def sum_gradients(self, model: torch.nn.Module) -> None:
        """Make every gradient its sum over all ranks; a rank that has none counts 0.

        Denominators are those of all ranks, so the sum is the gradient that one process would have.
        """
        if self.size == 1:
            return
        for parameter in model.parameters():
            if parameter.requires_grad:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
                distributed.all_reduce(parameter.grad)
