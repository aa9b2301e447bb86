"""Isolated execution of untrusted programs, and killable processes for judging.

`open_sandbox` gives a sandbox, `open_workers` worker processes, `describe` says what can run here.
"""

from agentrl.sandbox.backends import Backend, describe, open_sandbox
from agentrl.sandbox.engine import DockerSettings
from agentrl.sandbox.judging import WorkerProcesses, open_workers

__all__ = ["Backend", "DockerSettings", "WorkerProcesses", "describe", "open_sandbox", "open_workers"]
