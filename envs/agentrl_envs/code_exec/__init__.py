"""The environment `code_exec`: write a program, see what running it gave, try again."""

from agentrl_envs.code_exec.env import CodeExec, Options

__all__ = ["CodeExec", "Options"]
