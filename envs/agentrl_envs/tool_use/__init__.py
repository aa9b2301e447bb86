"""The environment `tool_use`: requests to carry out with tools over a small world of orders and bookings."""

from agentrl_envs.tool_use.env import Options, ToolUse

__all__ = ["Options", "ToolUse"]
