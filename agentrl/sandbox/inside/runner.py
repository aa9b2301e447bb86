"""The warm interpreter: for every request it forks a fresh isolated process tree and watches it from outside.

Requests arrive on descriptor 0, answers leave on descriptor 1, both as frames (`frames.py`). This process stays as
it was at its start: what a request carries (programs, inputs, tests) is read by the fork that needs it, and what
comes back is held in memory that forks do not inherit. So nothing of one program can be found by the next.
"""

from __future__ import annotations

import _socket
import ctypes
import gc
import os
import random
import signal
import sys
from typing import Any

from agentrl.sandbox.inside import frames, isolate
from agentrl.sandbox.inside.boxes import relay_box
from agentrl.sandbox.inside.start import Role, facts_of, start
from agentrl.sandbox.inside.watch import Streams, watch


def main(packages_path: str, modules: list[str], covers: list[tuple[str, str]]) -> None:
    """Serve requests until the other side closes the pipe.

    packages_path: where the named packages lie. modules: what to import of them before the first program. covers: as
    for `isolate.cover`. The first entry of sys.path, which leads here, is taken away: programs shall not have it.
    """
    requests, answers = _take_descriptors()
    isolate.cover(covers)
    isolate.enter_worker()
    sys.path = [*sys.path[1:], packages_path]
    try:
        _preload(modules)
    except Exception as error:
        # Standard error leads nowhere by now: the words take the place of the greeting.
        frames.write_header(answers, {"failed": f"importing {', '.join(modules)}: {type(error).__name__}: {error}"})
        raise
    # A handler of ours would run in process 1 of a program's tree when the program signals it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    streams = Streams()
    gc.collect()
    gc.freeze()
    # Each fork pays for every page that is held; what imports left behind need not be.
    ctypes.CDLL(None).malloc_trim(0)
    frames.write_header(answers, {"hello": 1, "python": sys.version.split()[0], "modules": modules})
    while (header := frames.read_header(requests)) is not None:
        serve(header, requests, answers, streams)


def serve(header: dict[str, Any], requests: int, answers: int, streams: Streams) -> None:
    """Run one request and answer it. A failure to start a tree ends this worker; its owner starts another."""
    killed_before = _killed_for_memory()
    if header["kind"] == "box":
        inner, outer = _socket.socketpair()
        tree, _ = start(Role(header, inner, (answers, outer.fileno())), requests, streams)
        inner.close()
        relay_box(tree, outer, header["seconds"], requests, answers)
        raise SystemExit(0)
    tree, status = start(Role(header, None, (answers,)), requests, streams)
    facts = facts_of(watch(tree, header["seconds"], requests), status)
    used_up = _killed_for_memory() > killed_before
    if used_up:
        # From now on the container counts as one that ran out of memory, so that it must not serve another program.
        facts |= {"stopped": facts["stopped"] or "memory", "died": True}
    frames.write_header(answers, {"facts": facts, "sizes": streams.sizes})
    streams.write_to(answers)
    streams.close()
    if used_up:
        raise SystemExit(0)


def _killed_for_memory() -> int:
    """How often the kernel has killed for memory in this worker's control group; 0 where that cannot be seen."""
    for path in _KILL_COUNTS:
        try:
            with open(path) as file:
                return sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        except OSError:
            continue
    return 0


def _take_descriptors() -> tuple[int, int]:
    """Move the protocol's pipes away from 0 and 1, which programs use, and leave the null device there."""
    requests, answers = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    os.close(null)
    return requests, answers


def _preload(modules: list[str]) -> None:
    """Import what most programs import, once, so that their forks find it loaded."""
    import site

    site.setquit()
    site.setcopyright()
    site.sethelper()
    # One stream for every program, so that a verdict can be repeated.
    random.seed(0)
    for name in (*_COMMON, *modules):
        __import__(name)


_KILL_COUNTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")

# Each fork pays for every library that is loaded, so that only what many programs import stands here.
_COMMON = (
    "bisect", "collections", "copy", "enum", "functools", "heapq", "io", "itertools", "json", "math", "operator", "re",
    "string", "time", "typing",
)  # fmt: skip
