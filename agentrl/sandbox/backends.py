"""Which isolation can be had on this machine, and opening a sandbox on it."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentrl.api import ConfigError, Sandbox, SandboxUnavailable, nearest
from agentrl.sandbox import bwrap, cgroup, engine
from agentrl.sandbox.engine import DockerSettings
from agentrl.sandbox.inside import frames
from agentrl.sandbox.pool import Pool
from agentrl.sandbox.service import ProcessSandbox

_PROBE_SECONDS = 60.0
_STOPS = (
    "network, the host's files, other programs, privileges, tracing, new namespaces; and CPU and wall time, memory, "
    "processes, output and disk beyond the limits"
)
_SHARED_KERNEL = "kernel bugs (the kernel is shared)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """What one backend offers here. `missing` is empty when it can be used, else a sentence on how to get it.

    stops, lets_through: what the tier in force does and does not stop, for people.

    Example: `Backend(name="bwrap", version="0.11.0", tier="bwrap+cgroup", missing="", stops="network, ...",
    lets_through="kernel bugs")`.
    """

    name: str
    version: str
    tier: str
    missing: str
    stops: str = _STOPS
    lets_through: str = _SHARED_KERNEL

    @property
    def available(self) -> bool:
        return not self.missing


def open_sandbox(
    *,
    backend: str = "auto",
    workers: int | None = None,
    packages: Sequence[str] = (),
    docker: DockerSettings | None = None,
) -> Sandbox:
    """Open a sandbox; its workers start with the first program.

    backend: a backend's name, or `auto`: bubblewrap, else Docker where that runs. workers: how many programs run at
    once; None is the number of CPUs. packages: distributions that programs may import, besides the standard library.
    Raises SandboxUnavailable with a sentence on how to get one, and ConfigError for a bad argument.
    """
    names = ("auto", *_OPEN)
    if backend not in names:
        raise ConfigError(f"sandbox.backend is '{backend}', not one of {', '.join(names)}{nearest(backend, names)}")
    if workers is not None and workers < 1:
        raise ConfigError(f"sandbox.workers is {workers}; it must be at least 1")
    settings, size = docker or DockerSettings(), workers or os.cpu_count() or 1
    failures = []
    for name in ("bwrap", "docker") if backend == "auto" else (backend,):
        try:
            return _OPEN[name](settings, tuple(packages), size)
        except SandboxUnavailable as error:
            failures.append(str(error))
    raise SandboxUnavailable("; and ".join(failures))


def _open_bwrap(settings: DockerSettings, packages: tuple[str, ...], size: int) -> Sandbox:
    grouped, missing = _probe(packages)
    if missing:
        raise SandboxUnavailable(missing)
    cgroup.sweep()

    def pool() -> Pool:
        return Pool(lambda number, groups: bwrap.command(number, groups, packages), size, use_cgroup=grouped)

    return ProcessSandbox(pool, tier=_tier(grouped))


def _open_docker(settings: DockerSettings, packages: tuple[str, ...], size: int) -> Sandbox:
    missing = _probe_docker(settings, packages)
    if missing:
        raise SandboxUnavailable(missing)

    def pool() -> Pool:
        # The process that stands for a container needs a moment to remove it, so that it is not killed outright.
        return Pool(lambda *_: engine.command(settings, packages), size, use_cgroup=False, end_signal=signal.SIGTERM)

    return ProcessSandbox(pool, tier=settings.tier)


_OPEN: dict[str, Callable[[DockerSettings, tuple[str, ...], int], Sandbox]] = {
    "bwrap": _open_bwrap,
    "docker": _open_docker,
}


def describe(docker: DockerSettings | None = None) -> list[Backend]:
    """Every backend with its version, its tier here, and what is missing."""
    settings = docker or DockerSettings()
    path = bwrap.find_bwrap()
    grouped, missing = _probe(())
    weaker = "" if grouped else "; memory is sampled every 50 ms, not bounded by the kernel"
    return [
        Backend(
            name="bwrap",
            version=bwrap.bwrap_version(path) if path else "",
            tier="" if missing else _tier(grouped),
            missing=missing,
            lets_through=_SHARED_KERNEL + weaker,
        ),
        Backend(
            name="docker",
            version=engine.engine_version(settings),
            tier="" if (failed := _probe_docker(settings, ())) else settings.tier,
            missing=failed,
            lets_through=_SHARED_KERNEL if settings.runtime in (None, "runc") else f"bugs of {settings.runtime}",
        ),
    ]


def _tier(grouped: bool) -> str:
    return "bwrap+cgroup" if grouped else "bwrap"


@functools.cache
def _probe(packages: tuple[str, ...]) -> tuple[bool, str]:
    """Whether control groups work here, and the empty string or a sentence on what stands in the way of a sandbox."""
    if not sys.platform.startswith("linux"):
        return False, f"the bwrap sandbox needs Linux, and this is {sys.platform}: use the docker backend"
    group = cgroup.make(-1)
    if group is not None:
        missing = _try_bwrap(packages, group.folders)
        group.remove()
        if not missing:
            return True, ""
    return False, _try_bwrap(packages, [])


def _try_bwrap(packages: tuple[str, ...], groups: Sequence[str]) -> str:
    try:
        words = _try_worker(bwrap.command(0, groups, packages), signal.SIGKILL)
    except SandboxUnavailable as error:
        return str(error)
    return f"the bwrap sandbox does not work here ({words[-300:]}): {_advice(words)}" if words else ""


@functools.cache
def _probe_docker(settings: DockerSettings, packages: tuple[str, ...]) -> str:
    """The empty string, or a sentence on what stands in the way of containers. Leftovers are removed on the way."""
    try:
        engine.prepare(settings, packages)
        words = _try_worker(engine.command(settings, packages), signal.SIGTERM)
    except SandboxUnavailable as error:
        return str(error)
    return f"the docker sandbox does not work here ({words[-300:]}): {_DOCKER_ADVICE}" if words else ""


def _try_worker(command: Sequence[str], end_signal: int) -> str:
    """Run one program in a real worker; the empty string, or words on what went wrong."""
    payload = frames.pack_payload({"program": "print(6 * 7)"}, {}, b"")
    header = {"kind": "run", "payloads": [len(payload)], "cpu_seconds": 10, "seconds": 30, "memory_mb": 512}
    header |= {"processes": 16, "output_bytes": 1000, "file_mb": 1, "disk_mb": 16}
    with tempfile.TemporaryFile() as errors:
        try:
            worker = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, env={}, start_new_session=True
            )
        except OSError as error:
            return str(error)
        assert worker.stdin is not None
        assert worker.stdout is not None
        timer = threading.Timer(_PROBE_SECONDS, worker.kill)
        timer.start()
        output = b""
        try:
            greeting = frames.read_header(worker.stdout.fileno())
            if greeting is not None and "failed" in greeting:
                raise SandboxUnavailable(f"the sandbox's packages cannot be loaded: {greeting['failed']}")
            if greeting is not None:
                frames.write_all(worker.stdin.fileno(), memoryview(frames.pack_header(header) + payload))
                answer = frames.read_header(worker.stdout.fileno()) or {}
                output = frames.read_exactly(worker.stdout.fileno(), sum(answer.get("sizes", ())))
                errors.write(str(answer.get("facts", {}).get("broken", "")).encode())
        except (OSError, EOFError) as error:
            errors.write(str(error).encode())
        finally:
            worker.send_signal(end_signal)
            worker.communicate()
            timer.cancel()
        errors.seek(0)
        words = errors.read().decode("utf-8", "replace").strip()
    return "" if output == b"42\n" else words or repr(output[-300:])


_DOCKER_ADVICE = (
    "the engine's kernel must allow user namespaces inside containers (on Ubuntu `sudo sysctl "
    "kernel.apparmor_restrict_unprivileged_userns=0`) and an image needs Python 3.11 or newer"
)


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
