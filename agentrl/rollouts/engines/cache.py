"""A key-value cache for batches that shrink: room is taken once, rows can be repeated and dropped."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer


class ReservedLayer(DynamicLayer):
    """One layer's keys and values in buffers with room to grow.

    `DynamicLayer` concatenates at every token, which copies the whole cache; here a token is written in place and
    attention sees a view of the filled part. Shapes: [rows, heads, length, head_dim].
    """

    def __init__(self, reserve: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.reserve = reserve
        self.length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.key_buffer = self._room(key_states, self.reserve)
            self.value_buffer = self._room(value_states, self.reserve)
        end = self.length + key_states.shape[-2]
        if end > self.key_buffer.shape[-2]:
            raise RuntimeError(f"the cache has room for {self.key_buffer.shape[-2]} tokens, {end} are asked for")
        self.key_buffer[:, :, self.length : end] = key_states
        self.value_buffer[:, :, self.length : end] = value_states
        return self._fill(end)

    def select(self, rows: torch.Tensor) -> None:
        """Keep (or repeat) the rows named by `rows` [new_rows]."""
        for name in ("key_buffer", "value_buffer"):
            old = getattr(self, name)
            new = self._room(old, old.shape[-2], len(rows))
            new[:, :, : self.length] = old[:, :, : self.length].index_select(0, rows)
            setattr(self, name, new)
        self._fill(self.length)

    def _fill(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.length = length
        self.keys = keys = self.key_buffer[:, :, :length]
        self.values = values = self.value_buffer[:, :, :length]
        return keys, values

    @staticmethod
    def _room(like: torch.Tensor, length: int, rows: int | None = None) -> torch.Tensor:
        return like.new_empty((rows or like.shape[0], like.shape[1], length, like.shape[3]))


class ReservedCache(Cache):
    """A cache of `layers` layers with room for `reserve` tokens."""

    def __init__(self, layers: int, reserve: int) -> None:
        self.reserved = [ReservedLayer(reserve) for _ in range(layers)]
        super().__init__(layers=list(self.reserved))

    def select(self, rows: torch.Tensor) -> None:
        """Keep (or repeat) rows in every layer."""
        for layer in self.reserved:
            layer.select(rows)
