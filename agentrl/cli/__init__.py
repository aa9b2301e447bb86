"""The command line. Heavy imports live inside the commands: `agentrl --help` loads no torch."""

from agentrl.cli.app import main

__all__ = ["main"]
