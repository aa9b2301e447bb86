"""Isolated execution of untrusted programs: `open_sandbox` gives a sandbox, `describe` says what can run here."""

from agentrl.sandbox.backends import Backend, describe, open_sandbox
from agentrl.sandbox.engine import DockerSettings

__all__ = ["Backend", "DockerSettings", "describe", "open_sandbox"]
