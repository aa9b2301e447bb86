"""What tests of the sandbox share: which backends run here, and looking at processes and containers from outside."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentrl.api import SandboxUnavailable
from agentrl.sandbox import describe, engine

BACKENDS = ("bwrap", "docker")


def need_backend(name: str) -> None:
    """Skip the test where a backend cannot be had, with the reason that tells how to get it."""
    (backend,) = [backend for backend in describe() if backend.name == name]
    if not backend.available:
        pytest.skip(backend.missing)


def containers() -> list[str]:
    """Names of all containers of ours on the engine, started or not; none where there is no engine."""
    try:
        client: Any = engine.connect(None)
    except SandboxUnavailable:
        return []
    with contextlib.closing(client):
        return sorted(
            found["Names"][0].lstrip("/") for found in client.containers(all=True, filters={"label": engine.LABEL})
        )


def descendants(root: int) -> list[int]:
    """All processes below `root`."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            parents[int(name)] = int(fields[1])
    found = [root]
    for process in found:
        found += [pid for pid, parent in parents.items() if parent == process]
    return found[1:]


def command_of(pid: int) -> str:
    """The command line of a process, empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").replace("\0", " ")
    except OSError:
        return ""


def wait_until_gone(pids: Sequence[int], seconds: float = 10.0) -> list[int]:
    """The processes that are still there after a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(os.path.exists(f"/proc/{pid}") for pid in pids):
        time.sleep(0.05)
    return [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
