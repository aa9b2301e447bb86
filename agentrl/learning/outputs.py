"""What policy and critic say of every sampled token. The only place that knows how rows are laid out.

Segments are padded on the right: with causal attention a padded position never reaches a real one, so no attention
mask is needed. Logits are computed at the positions that predict a sampled token and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from agentrl.api import Segment

Row = Sequence[Segment]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenOutputs:
    """logprob, entropy: [B,T] float32, 0 beyond a row's sampled tokens; entropy is None unless asked for."""

    logprob: Tensor
    entropy: Tensor | None


def token_outputs(
    model: PreTrainedModel,
    rows: Sequence[Row],
    *,
    want: frozenset[str] = frozenset({"logprob"}),
    width: int,
    temperature: float,
    autocast: torch.dtype | None = None,
) -> TokenOutputs:
    """Log-probabilities (and entropies, in nats) of the sampled tokens of `rows` under softmax(logits / temperature).

    want: `logprob`, `entropy`. width: T of the result. Gradients flow to the model unless grad is off.
    """
    segments = [(place, segment) for place, row in enumerate(rows) for segment in row]
    ids, positions, target, place = _layout(segments, width)
    device = model.device
    hidden_at = (positions[0].to(device), positions[1].to(device))
    with torch.autocast(device.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        logits = _logits_at(model, ids.to(device), hidden_at)
    scaled = logits.float() / temperature
    normaliser = scaled.logsumexp(-1)
    logprob = scaled.gather(1, target.to(device)[:, None])[:, 0] - normaliser
    entropy = None
    if "entropy" in want:
        entropy = normaliser - (scaled.softmax(-1) * scaled).sum(-1)
    return TokenOutputs(
        logprob=_scatter(logprob, place, len(rows), width),
        entropy=None if entropy is None else _scatter(entropy, place, len(rows), width),
    )


def token_values(
    critic: Callable[[Tensor, tuple[Tensor, Tensor]], Tensor],
    rows: Sequence[Row],
    *,
    width: int,
    autocast: torch.dtype | None = None,
) -> Tensor:
    """Values [B,T] float32 of the state *before* each sampled token of `rows`; 0 beyond a row's sampled tokens.

    critic: takes padded ids [S,L] and positions (segment, column), gives one value per position. The position is the
    one that predicts the token, so a value never sees the token that it is a baseline for.
    """
    segments = [(place, segment) for place, row in enumerate(rows) for segment in row]
    ids, (lines, columns), target, place = _layout(segments, width)
    device = next(critic.parameters()).device if isinstance(critic, torch.nn.Module) else target.device
    with torch.autocast(device.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        values = critic(ids.to(device), (lines.to(device), columns.to(device)))
    return _scatter(values.float(), place, len(rows), width)


def _layout(
    segments: Sequence[tuple[int, Segment]], width: int
) -> tuple[Tensor, tuple[Tensor, Tensor], Tensor, Tensor]:
    """Padded ids [S,L]; positions (segment, column) that predict sampled tokens; those tokens; their flat places."""
    length = max(len(segment) for _, segment in segments)
    ids = np.zeros((len(segments), length), dtype=np.int64)
    predict: list[np.ndarray] = []
    targets: list[np.ndarray] = []
    places: list[np.ndarray] = []
    filled: dict[int, int] = {}
    for line, (row, segment) in enumerate(segments):
        ids[line, : len(segment)] = segment.ids
        sampled = np.flatnonzero(segment.sampled)
        start = filled.get(row, 0)
        filled[row] = start + len(sampled)
        predict.append(np.stack([np.full(len(sampled), line), sampled - 1]))
        targets.append(segment.ids[sampled].astype(np.int64))
        places.append(row * width + start + np.arange(len(sampled)))
    both = torch.from_numpy(np.concatenate(predict, axis=1))
    return (
        torch.from_numpy(ids),
        (both[0], both[1]),
        torch.from_numpy(np.concatenate(targets)),
        torch.from_numpy(np.concatenate(places)),
    )


def _logits_at(model: PreTrainedModel, ids: Tensor, positions: tuple[Tensor, Tensor]) -> Tensor:
    """Logits [N,V] at the named positions. The output head sees these positions only, but the model's own forward
    runs around it, so what a model does to its logits afterwards (scaling, soft caps) is kept."""

    def narrow(module: torch.nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return (inputs[0][positions][None], *inputs[1:])

    head: torch.nn.Module = model.get_output_embeddings()
    handle = head.register_forward_pre_hook(narrow)
    try:
        logits: Tensor = model(input_ids=ids, use_cache=False).logits[0]
    finally:
        handle.remove()
    return logits


def _scatter(values: Tensor, places: Tensor, rows: int, width: int) -> Tensor:
    flat = values.new_zeros(rows * width)
    return flat.index_put((places.to(values.device),), values).view(rows, width)


def microbatches(rows: Sequence[Row], budget: int) -> Iterator[list[int]]:
    """Indices of rows in chunks of at most `budget` padded tokens (one row at least), longest rows first."""
    sizes = {i: (max(len(s) for s in row), len(row)) for i, row in enumerate(rows)}
    order = sorted(sizes, key=lambda i: (-sizes[i][0], i))
    chunk: list[int] = []
    lines, longest = 0, 0
    for i in order:
        length, count = sizes[i]
        if chunk and (lines + count) * max(longest, length) > budget:
            yield chunk
            chunk, lines, longest = [], 0, 0
        chunk.append(i)
        lines, longest = lines + count, max(longest, length)
    if chunk:
        yield chunk
