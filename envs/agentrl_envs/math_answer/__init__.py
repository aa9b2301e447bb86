"""The environment `math_answer`: a question with one right answer, the user's own or embedded arithmetic."""

from agentrl_envs.math_answer.env import MathAnswer, Options

__all__ = ["MathAnswer", "Options"]
