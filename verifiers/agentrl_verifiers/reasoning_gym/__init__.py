"""The verifier `reasoning_gym`."""

from agentrl_verifiers.reasoning_gym.verifier import ReasoningGym, ReasoningGymOptions

__all__ = ["ReasoningGym", "ReasoningGymOptions"]
