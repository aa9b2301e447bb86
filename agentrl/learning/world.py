"""Ranks and reductions, in one small object."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as distributed


@dataclass(frozen=True, slots=True)
class World:
    """The processes that train together. Example: `World(rank=0, size=1)` when there is one."""

    rank: int = 0
    size: int = 1

    @classmethod
    def current(cls) -> World:
        """The world that torch.distributed knows, or one process."""
        if distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size())
        return cls()

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum of `values` over all ranks."""
        if self.size > 1:
            values = values.clone()
            distributed.all_reduce(values)
        return values
