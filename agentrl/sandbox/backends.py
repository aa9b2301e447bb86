"""Which isolation can be had on this machine, and opening a sandbox on it."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.api import ConfigError, Sandbox, SandboxUnavailable, nearest
from agentrl.sandbox import bwrap, cgroup
from agentrl.sandbox.inside import frames
from agentrl.sandbox.pool import Pool
from agentrl.sandbox.service import ProcessSandbox

_NAMES = ("auto", "bwrap")
_PROBE_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What one backend offers here. `missing` is empty when it can be used, else a sentence on how to get it.

    Example: `Backend(name="bwrap", version="0.11.0", tier="bwrap+cgroup", missing="")`.
    """

    name: str
    version: str
    tier: str
    missing: str

    @property
    def available(self) -> bool:
        return not self.missing


def open_sandbox(*, backend: str = "auto", workers: int | None = None, packages: Sequence[str] = ()) -> Sandbox:
    """Open a sandbox; its workers start with the first program.

    backend: `auto` (the safest that runs here) or a backend's name. workers: how many programs run at once; None is
    the number of CPUs. packages: distributions that programs may import, besides the standard library.
    Raises SandboxUnavailable with a sentence on how to get one, and ConfigError for a bad argument.
    """
    if backend not in _NAMES:
        raise ConfigError(f"sandbox.backend is '{backend}', not one of {', '.join(_NAMES)}{nearest(backend, _NAMES)}")
    if workers is not None and workers < 1:
        raise ConfigError(f"sandbox.workers is {workers}; it must be at least 1")
    names = tuple(packages)
    grouped, missing = _probe(names)
    if missing:
        raise SandboxUnavailable(missing)
    size = workers or os.cpu_count() or 1
    cgroup.sweep()

    def pool() -> Pool:
        return Pool(lambda number, groups: bwrap.command(number, groups, names), size, use_cgroup=grouped)

    return ProcessSandbox(pool, tier=_tier(grouped))


def describe() -> list[Backend]:
    """Every backend with its version, its tier here, and what is missing."""
    path = bwrap.find_bwrap()
    grouped, missing = _probe(())
    version = bwrap.bwrap_version(path) if path else ""
    return [Backend(name="bwrap", version=version, tier="" if missing else _tier(grouped), missing=missing)]


def _tier(grouped: bool) -> str:
    return "bwrap+cgroup" if grouped else "bwrap"


@functools.cache
def _probe(packages: tuple[str, ...]) -> tuple[bool, str]:
    """Whether control groups work here, and the empty string or a sentence on what stands in the way of a sandbox."""
    if not sys.platform.startswith("linux"):
        missing = f"the bwrap sandbox needs Linux, and this is {sys.platform}: run agentrl in a Linux container"
        return False, missing
    group = cgroup.make(-1)
    if group is not None:
        missing = _try_worker(packages, group.folders)
        group.remove()
        if not missing:
            return True, ""
    return False, _try_worker(packages, [])


def _try_worker(packages: tuple[str, ...], groups: Sequence[str]) -> str:
    """Run one program in a real worker; the empty string, or a sentence on what went wrong."""
    try:
        command = bwrap.command(0, groups, packages)
    except SandboxUnavailable as error:
        return str(error)
    payload = frames.pack_payload({"program": "print(6 * 7)"}, {}, b"")
    header = {"kind": "run", "payloads": [len(payload)], "cpu_seconds": 10, "seconds": 30, "memory_mb": 512}
    header |= {"processes": 16, "output_bytes": 1000, "file_mb": 1, "disk_mb": 16}
    try:
        done = subprocess.run(
            command, input=frames.pack_header(header) + payload, capture_output=True, timeout=_PROBE_SECONDS, env={}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"the bwrap sandbox could not be started: {error}"
    if done.returncode == 0 and done.stdout.endswith(b"42\n"):
        return ""
    words = done.stderr.decode("utf-8", "replace").strip() or repr(done.stdout[-300:])
    return f"the bwrap sandbox does not work here ({words[-300:]}): {_advice(words)}"


def _advice(words: str) -> str:
    if os.path.exists("/proc/sys/kernel/apparmor_restrict_unprivileged_userns"):
        return (
            "on Ubuntu allow user namespaces with `sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0`, or "
            "give bwrap an AppArmor profile with `userns`"
        )
    if os.path.exists("/.dockerenv") or os.path.exists("/run/.containerenv"):
        return (
            "this container forbids nested namespaces; start it with `--security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined`"
        )
    if "mount proc" in words:
        return "parts of /proc are masked here, so that no fresh one can be mounted; unmask them"
    return "the kernel must allow unprivileged user namespaces (`sysctl user.max_user_namespaces`)"
