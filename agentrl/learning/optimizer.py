"""AdamW with the usual parameter groups, and learning-rate schedules as a function of the step."""

from __future__ import annotations

import math
from typing import Literal

import torch

Schedule = Literal["constant", "linear", "cosine"]


def adamw(model: torch.nn.Module, *, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW over the trainable parameters; matrices decay, vectors (norms, biases) do not."""
    trainable = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, 0.95), fused=True)


def learning_rate_at(step: int, *, steps: int, peak: float, warmup: int, schedule: Schedule) -> float:
    """Learning rate of update `step` (from 0) of `steps`: linear warm-up, then constant or decay towards 0.

    >>> [round(learning_rate_at(s, steps=4, peak=1.0, warmup=2, schedule="linear"), 2) for s in range(4)]
    [0.5, 1.0, 1.0, 0.5]
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(steps - warmup, 1)
    if schedule == "linear":
        return peak * (1 - progress)
    if schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * progress))
    return peak


def set_learning_rate(optimizer: torch.optim.Optimizer, value: float) -> None:
    """Use `value` from the next update on."""
    for group in optimizer.param_groups:
        group["lr"] = value
