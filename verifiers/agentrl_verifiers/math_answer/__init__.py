"""The verifier `math_answer`: whether a response's final answer is the task's."""

from agentrl_verifiers.math_answer.verifier import MathAnswer

__all__ = ["MathAnswer"]
