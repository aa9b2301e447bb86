"""Presets: an algorithm is a row of choices, not a class.

| preset  | group baseline and scale | ratio    | aggregation   | clip           | KL in loss | source           |
|---------|--------------------------|----------|---------------|----------------|------------|------------------|
| grpo    | mean, std                | token    | sequence mean | 0.2, 0.2       | k3, 0.04   | arXiv:2402.03300 |
| dr_grpo | mean                     | token    | constant      | 0.2, 0.2       | off        | arXiv:2503.20783 |
| gspo    | mean, std                | sequence | sequence mean | 3e-4, 4e-4     | off        | arXiv:2507.18071 |
| rloo    | leave-one-out mean       | token    | token mean    | 0.2, 0.2       | off        | arXiv:2402.14740 |
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from agentrl.api import ConfigError, nearest
from agentrl.config import AlgorithmConfig, Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The choices of a learner.

    scale: how group rewards become advantages. ratio: level of the probability ratio. aggregate: how token losses
    become one number. clip_low, clip_high: the ratio counts within [1 - clip_low, 1 + clip_high]. kl_coefficient:
    weight of k3 to the start policy.

    Example: `Algorithm(scale="std", ratio="token", aggregate="sequence_mean", clip_low=0.2, clip_high=0.2,
    kl_coefficient=0.0)`.
    """

    scale: Literal["std", "none", "leave_one_out"]
    ratio: Literal["token", "sequence"]
    aggregate: Literal["token_mean", "sequence_mean", "constant"]
    clip_low: float
    clip_high: float
    kl_coefficient: float


_GRPO = Algorithm(
    scale="std", ratio="token", aggregate="sequence_mean", clip_low=0.2, clip_high=0.2, kl_coefficient=0.04
)
PRESETS = {
    "grpo": _GRPO,
    "dr_grpo": replace(_GRPO, scale="none", aggregate="constant", kl_coefficient=0.0),
    "gspo": replace(_GRPO, ratio="sequence", clip_low=3e-4, clip_high=4e-4, kl_coefficient=0.0),
    "rloo": replace(_GRPO, scale="leave_one_out", aggregate="token_mean", kl_coefficient=0.0),
}


def resolve(config: AlgorithmConfig) -> Algorithm:
    """The preset's row with the configuration's overrides; a combination that makes no sense is refused."""
    if config.preset not in PRESETS:
        hint = nearest(config.preset, PRESETS) or f" (known: {', '.join(PRESETS)})"
        raise ConfigError(f"algorithm.preset = '{config.preset}': unknown preset{hint}")
    overrides = config.model_dump(exclude={"preset", "importance_cap"}, exclude_none=True)
    algorithm = replace(PRESETS[config.preset], **overrides)
    if algorithm.ratio == "sequence" and algorithm.aggregate == "token_mean":
        raise ConfigError(
            "algorithm.aggregate = 'token_mean' with algorithm.ratio = 'sequence': a ratio of whole sequences weighs "
            "long ones by their length then; use aggregate: sequence_mean"
        )
    if algorithm.clip_low >= 1:
        raise ConfigError(f"algorithm.clip_low = {algorithm.clip_low}: must be below 1, or nothing is clipped there")
    return algorithm


def check(config: Config) -> None:
    """Refuse settings that the learner cannot honour."""
    resolve(config.algorithm)
    train = config.train
    if train.group_size < 2:
        raise ConfigError("train.group_size = 1: a group-relative advantage needs two rollouts or more per task")
    if train.minibatches > train.tasks_per_step * train.group_size:
        raise ConfigError(
            f"train.minibatches = {train.minibatches} is above the {train.tasks_per_step * train.group_size} rollouts "
            "of a step (train.tasks_per_step x train.group_size)"
        )
    if train.patience and not train.validate_every:
        raise ConfigError("train.patience counts validations: set train.validate_every, or patience to 0")
