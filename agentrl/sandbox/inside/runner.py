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
import signal
import sys
from typing import Any

from agentrl.sandbox.inside import frames, isolate
from agentrl.sandbox.inside.boxes import relay_box
from agentrl.sandbox.inside.start import Role, facts_of, start
from agentrl.sandbox.inside.watch import Streams, Tree, watch


def main(packages_path: str, modules: list[str], covers: list[tuple[str, str]]) -> None:
    """Serve requests until the other side closes the pipe.

    packages_path: where the named packages lie. modules: what to import of them before the first program. covers: as
    for `isolate.cover`. The first entry of sys.path, which leads here, is taken away: programs shall not have it.
    """
    requests, answers = _take_descriptors()
    isolate.cover(covers)
    sys.path = [*sys.path[1:], packages_path]
    _preload(modules)
    # A handler of ours would run in process 1 of a program's tree when the program signals it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    streams = [Streams(), Streams()]
    gc.collect()
    gc.freeze()
    # Each fork pays for every page that is held; what imports left behind need not be.
    ctypes.CDLL(None).malloc_trim(0)
    frames.write_header(answers, {"hello": 1, "python": sys.version.split()[0], "modules": modules})
    while (header := frames.read_header(requests)) is not None:
        serve(header, requests, answers, streams)


def serve(header: dict[str, Any], requests: int, answers: int, streams: list[Streams]) -> None:
    """Run one request and answer it. A failure to start a tree ends this worker; its owner starts another."""
    kind = header["kind"]
    links = _socket.socketpair() if kind in ("tests", "box") else None
    trees: list[Tree] = []
    statuses: list[int] = []
    for place, name in enumerate(("program", "tests") if kind == "tests" else ("program",)):
        foreign = [answers, *statuses, *(pipe for earlier in trees for pipe in earlier.streams.descriptors)]
        if links is not None:
            foreign.append(links[1 - place].fileno())
        role = Role(name, header, header["payloads"][place], links[place] if links else None, tuple(foreign))
        tree, status = start(role, requests, streams[place])
        trees.append(tree)
        statuses.append(status)
    if links is not None:
        links[0].close()
    if links is not None and kind == "box":
        relay_box(trees[0], links[1], header["seconds"], requests, answers)
        raise SystemExit(0)
    if links is not None:
        links[1].close()
    killed_before = _killed_for_memory()
    endings = watch(trees, header["seconds"], requests)
    facts = [facts_of(ended, status) for ended, status in zip(endings, statuses, strict=True)]
    used_up = _killed_for_memory() > killed_before
    if used_up:
        # From now on the container counts as one that ran out of memory, so that it must not serve another program.
        facts[0] |= {"stopped": facts[0]["stopped"] or "memory", "died": True}
    sizes = [size for tree in trees for size in tree.streams.sizes]
    frames.write_header(answers, {"trees": facts, "sizes": sizes})
    for tree in trees:
        tree.streams.write_to(answers)
        tree.streams.close()
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
    register, os.register_at_fork = os.register_at_fork, _forget
    import random

    os.register_at_fork = register
    # One stream for every program, so that a verdict can be repeated; reseeding would also slow down each fork.
    random.seed(0)
    for name in (*_COMMON, *modules):
        __import__(name)


def _forget(**hooks: object) -> None:
    """Stands in for `os.register_at_fork`."""


_KILL_COUNTS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")

_COMMON = (
    "array", "bisect", "collections", "copy", "datetime", "decimal", "enum", "fractions", "functools", "heapq", "io",
    "itertools", "json", "math", "operator", "re", "statistics", "string", "time", "typing",
)  # fmt: skip
