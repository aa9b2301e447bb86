"""The configuration: frozen pydantic models, resolved from layers (defaults, recipes, file, `--set`)."""

from agentrl.config.layers import Layer, assignment, describe, merge, parse, parse_options, read_yaml, sources, value_at
from agentrl.config.models import (
    AlgorithmConfig,
    ChatConfig,
    Config,
    EngineConfig,
    EvalConfig,
    ModelConfig,
    PartConfig,
    RewardConfig,
    RolloutConfig,
    SandboxConfig,
    SftConfig,
    SuccessConfig,
    TrainConfig,
)

__all__ = [
    "AlgorithmConfig",
    "ChatConfig",
    "Config",
    "EngineConfig",
    "EvalConfig",
    "Layer",
    "ModelConfig",
    "PartConfig",
    "RewardConfig",
    "RolloutConfig",
    "SandboxConfig",
    "SftConfig",
    "SuccessConfig",
    "TrainConfig",
    "assignment",
    "describe",
    "merge",
    "parse",
    "parse_options",
    "read_yaml",
    "sources",
    "value_at",
]
