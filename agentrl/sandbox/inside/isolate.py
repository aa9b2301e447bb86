"""Fresh namespaces for each program: a fork with its own users, processes, mounts, network, IPC and host name."""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import os
import resource
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.sandbox.inside.seccomp import Filter, machine_index

HOME = "/w"
"""Working directory of a program; a link into the one small file system that it may write to."""

_BOX = "/box"
TESTS_HOME = "/box/tests"
_SIGCHLD = 17
_NEW_ALL = 0x20000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000  # NS, UTS, IPC, USER, PID, NET
_NOSUID_NODEV_NOEXEC, _READ_ONLY, _BIND = 2 | 4 | 8, 1, 4096
_SET_INTERFACE_FLAGS, _INTERFACE_UP = 0x8914, 1
_CAPABILITY_VERSION_3 = 0x20080522
_INODES = 4096
_PR_SET_DUMPABLE = 4

# PyDLL keeps the interpreter lock: between clone and PyOS_AfterFork_Child nothing else may run.
_libc = ctypes.PyDLL(None, use_errno=True)
_CLONE_NUMBER = (56, 220)[machine_index()]
_filter = Filter(for_runner=False)
_covers: list[tuple[str, str]] = []


def cover(covers: Sequence[tuple[str, str]]) -> None:
    """Name what later programs shall see of their own file system in place of a folder: (`w`, `tmp`, `shm`, folder).

    Needed where the folders of the surrounding root are real ones, not links into `/box`; `none` shows nothing.
    """
    _covers[:] = [(f"{_BOX}/{name}", folder) for name, folder in covers if os.path.isdir(folder)]


def enter_worker() -> None:
    """What this process does once for all programs: their common limits and most of their system call filter."""
    for name, value in (
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 1 << 20),
        (resource.RLIMIT_MSGQUEUE, 1 << 16),
        (resource.RLIMIT_STACK, 64 << 20),
    ):
        _set_limit(name, value, value)
    Filter(for_runner=True).install(_libc)


def spawn() -> int:
    """Fork into new namespaces; returns 0 in the child, which is process 1 of its own tree. Raises OSError.

    A bare clone instead of fork and unshare saves a second process. The child has all capabilities over its own
    namespaces and none outside, until `drop_privileges`.
    """
    ctypes.pythonapi.PyOS_BeforeFork()
    pid: int = _libc.syscall(_CLONE_NUMBER, _NEW_ALL | _SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        ctypes.pythonapi.PyOS_AfterFork_Child()
        return 0
    error = ctypes.get_errno()
    ctypes.pythonapi.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(error, f"clone: {os.strerror(error)}")
    return pid


def enter(disk_mb: int) -> None:
    """Finish the new namespaces: user map, /proc, the writable file system, loopback. Raises OSError."""
    user, group = _outer_ids
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        descriptor = os.open(f"/proc/self/{name}", os.O_WRONLY)
        os.write(descriptor, text.encode())
        os.close(descriptor)
    # Where the kernel has to kill for memory, it shall choose the program and never the worker.
    with open("/proc/self/oom_score_adj", "w") as adjust:
        adjust.write("1000")
    _mount("tmpfs", _BOX, _NOSUID_NODEV_NOEXEC, f"size={disk_mb}m,nr_inodes={_INODES},mode=755")
    for name, mode in (("w", 0o755), ("tmp", 0o777), ("shm", 0o777), ("none", 0o555)):
        os.mkdir(f"{_BOX}/{name}", mode)
    for source, folder in _covers:
        _mount("none", folder, _BIND, None, source=source)
    # Read-only, so that no kernel setting can be written whatever the outer user may do.
    _mount("proc", "/proc", _NOSUID_NODEV_NOEXEC | _READ_ONLY, None)
    loopback = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    fcntl.ioctl(loopback.fileno(), _SET_INTERFACE_FLAGS, struct.pack("16sh14x", b"lo", _INTERFACE_UP))
    loopback.close()
    os.chdir(HOME)


def drop_privileges() -> None:
    """Give up every capability for good and install the system call filter. Raises OSError."""
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    if _libc.capset(header, bytes(24)) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    _filter.install(_libc)


def set_visible(visible: bool) -> None:
    """Whether processes of the same user may look into this one (/proc/PID/mem and its like). Raises OSError."""
    if _libc.prctl(_PR_SET_DUMPABLE, int(visible), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def limit_resources(header: Mapping[str, Any]) -> None:
    """Per-process limits, hard and soft alike, of a request. Memory and CPU time of the whole tree are watched outside.

    The address space is left wide: honest programs reserve far more than they touch.
    """
    cpu = int(-(-header["cpu_seconds"] * header.get("commands", 1) // 1))
    limits = {
        resource.RLIMIT_CPU: (cpu, cpu + 1),
        resource.RLIMIT_AS: ((header["memory_mb"] + 4096) << 20,) * 2,
        resource.RLIMIT_FSIZE: (header["file_mb"] << 20,) * 2,
    }
    if _process_limit_is_per_namespace:
        limits[resource.RLIMIT_NPROC] = (header["processes"], header["processes"])
    for name, (soft, hard) in limits.items():
        _set_limit(name, soft, hard)


def _set_limit(name: int, soft: int, hard: int) -> None:
    allowed = _allowed[name]
    if allowed != resource.RLIM_INFINITY:
        soft, hard = min(soft, allowed), min(hard, allowed)
    resource.setrlimit(name, (soft, hard))


def _mount(kind: str, target: str, flags: int, options: str | None, *, source: str | None = None) -> None:
    data = options.encode() if options is not None else None
    what = source or kind
    if _libc.mount(what.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"mount {what} on {target}: {os.strerror(error)}")


def _kernel_version() -> tuple[int, int]:
    major, minor = os.uname().release.split("-")[0].split(".")[:2]
    return int(major), int(minor)


# Before Linux 5.14 the limit counted every process of the user on the whole machine.
_process_limit_is_per_namespace = _kernel_version() >= (5, 14)
_outer_ids = (os.getuid(), os.getgid())
_allowed = {value: resource.getrlimit(value)[1] for name, value in vars(resource).items() if name.startswith("RLIMIT_")}
