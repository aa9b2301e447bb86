"""What policy and critic say of every sampled token. The only place that knows how rows are laid out.

Segments are padded on the right: with causal attention a padded position never reaches a real one, so no attention
mask is needed. Logits are computed at the positions that predict a sampled token and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.utils.generic import ModelOutput

from agentrl.api import ModelError, Segment

Row = Sequence[Segment]

LOGITS_AT_ONCE = 1 << 24
"""Most logits that exist at a time (64 MiB in float32): a vocabulary of 150,000 makes 5 GB of 8192 tokens otherwise."""


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

    want: `logprob`, `entropy`. width: T of the result. Gradients flow to the model unless grad is off. The logits
    are made in pieces of at most `LOGITS_AT_ONCE`, and again in the backward pass where there are several.
    """
    segments = [(place, segment) for place, row in enumerate(rows) for segment in row]
    ids, positions, target, place = _layout(segments, width)
    device = model.device
    target = target.to(device)

    def measured(states: Tensor, target: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast(device.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
            logits = _logits(model, body, states)
        scaled = logits.float() / temperature
        normaliser = scaled.logsumexp(-1)
        logprob = scaled.gather(1, target[:, None])[:, 0] - normaliser
        if "entropy" not in want:
            return (logprob,)
        return logprob, normaliser - (scaled.softmax(-1) * scaled).sum(-1)

    with torch.autocast(device.type, dtype=autocast or torch.bfloat16, enabled=autocast is not None):
        body = model.get_decoder()(input_ids=ids.to(device), use_cache=False)
    hidden = body.last_hidden_state[positions[0].to(device), positions[1].to(device)]
    size = max(LOGITS_AT_ONCE // model.config.get_text_config().vocab_size, 1)
    if len(target) <= size:
        columns = list(measured(hidden, target))
    else:
        pieces = [
            checkpoint(measured, *piece, use_reentrant=False)
            for piece in zip(torch.split(hidden, size), torch.split(target, size), strict=True)
        ]
        columns = [torch.cat(column) for column in zip(*pieces, strict=True)]
    logprob, *entropy = (_scatter(column, place, len(rows), width) for column in columns)
    return TokenOutputs(logprob=logprob, entropy=entropy[0] if entropy else None)


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


def _logits(model: PreTrainedModel, output: ModelOutput, hidden: Tensor) -> Tensor:
    """Logits [N,V] of hidden states [N,H], some of those in `output`, which the model's body gave. The model's own
    forward runs around its head, with these states in place of its body, so that what it does to states or logits
    (scaling, soft caps) is kept."""
    body, asked = model.get_decoder(), []

    def given(*_: object, **__: object) -> ModelOutput:
        asked.append(body)
        return type(output)(**{**output, "last_hidden_state": hidden[None]})

    before = vars(body).get("forward")  # what wraps a model may have set one
    body.forward = given  # an attribute of the instance goes before the method of its class
    try:
        logits: Tensor = model(input_ids=torch.zeros_like(hidden[None, :, 0], dtype=torch.long), use_cache=False).logits
    finally:
        if before is None:
            del body.forward
        else:
            body.forward = before
    if not asked:
        raise ModelError(f"{type(model).__name__}: its head cannot be run apart from its body, so it cannot be trained")
    return logits[0]


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
