"""The environment `reasoning_gym`: any dataset of the library of that name, one question and one answer."""

from agentrl_envs.reasoning_gym.env import Options, ReasoningGym

__all__ = ["Options", "ReasoningGym"]
