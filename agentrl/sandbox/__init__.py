"""Isolated execution of untrusted programs: `open_sandbox` gives a sandbox, `describe` says what can run here."""

from agentrl.sandbox.backends import Backend, describe, open_sandbox

__all__ = ["Backend", "describe", "open_sandbox"]
