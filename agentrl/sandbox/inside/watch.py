"""Watching one isolated process tree from outside: output with bounds, time, memory of all processes together."""

from __future__ import annotations

import mmap
import os
import select
import signal
import time
from typing import Any, NamedTuple

from agentrl.sandbox.inside import frames

_RESULT_BYTES, _KEPT_BYTES = 8 << 20, 1 << 16
SAMPLE_EVERY = 0.05
_FIRST_SAMPLE = 0.03
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Ended(NamedTuple):
    """How a tree ended. `stopped`: the limit for which it was killed (`cpu`, `wall`, `memory`, `output`), or "".

    `delayed_seconds`: how long its busiest process waited for a processor, None when the kernel does not tell.
    Example: `Ended(stopped="", cpu_seconds=0.01, seconds=0.02, delayed_seconds=0.0)`.
    """

    stopped: str
    cpu_seconds: float
    seconds: float
    delayed_seconds: float | None


class Streams:
    """The pipes for output, errors, results and the tests' verdict, read into memory that forks do not inherit."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._room: list[int] = []
        self._used: list[int] = []
        self._pipes: list[tuple[int, int]] = []

    def reset(self, output_bytes: int, *, with_verdict: bool) -> None:
        """Make new pipes; each output stream may carry `output_bytes`."""
        # One byte more than allowed tells "too much" from "exactly enough".
        self._room = [output_bytes + 1, output_bytes + 1, *[_RESULT_BYTES + 1] * (1 + with_verdict)]
        self.rewind()
        self._pipes = [os.pipe() for _ in self._room]
        if self._memory is None or len(self._memory) < sum(self._room):
            self._memory = mmap.mmap(-1, sum(self._room), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._memory.madvise(mmap.MADV_DONTFORK)

    def rewind(self) -> None:
        """Forget what was read; the pipes stay."""
        self._used = [0] * len(self._room)

    def keep_read_ends(self) -> None:
        """In the watching process."""
        for reading, writing in self._pipes:
            os.close(writing)
            os.set_blocking(reading, False)

    def keep_write_ends(self) -> list[int]:
        """In the new tree; returns the descriptors for output, errors, results and, with tests, their verdict."""
        self.close()
        return [writing for _, writing in self._pipes]

    @property
    def descriptors(self) -> list[int]:
        """The read ends, in order."""
        return [reading for reading, _ in self._pipes]

    @property
    def sizes(self) -> list[int]:
        """Bytes held of each stream."""
        return [min(used, room - 1) for used, room in zip(self._used, self._room, strict=True)]

    def drain(self, place: int) -> bool:
        """Read what is there from stream `place`; returns whether the stream is still open. Call `full` after it."""
        start = sum(self._room[:place])
        assert self._memory is not None
        with memoryview(self._memory) as whole:
            while self._used[place] < self._room[place]:
                free = whole[start + self._used[place] : start + self._room[place]]
                try:
                    count = os.readv(self._pipes[place][0], [free])
                except BlockingIOError:
                    return True
                finally:
                    free.release()
                if count == 0:
                    return False
                self._used[place] += count
        return True

    @property
    def full(self) -> bool:
        """Whether some stream carried more than it may."""
        return any(used == room for used, room in zip(self._used, self._room, strict=True))

    def write_to(self, descriptor: int, *, streams: int | None = None) -> None:
        """Write the held bytes of all streams, or of the first so many."""
        assert self._memory is not None
        with memoryview(self._memory) as whole:
            for place, size in enumerate(self.sizes[:streams]):
                start = sum(self._room[:place])
                with whole[start : start + size] as part:
                    frames.write_all(descriptor, part)

    def close(self) -> None:
        """Close the read ends; memory that one program filled is given back."""
        if self._memory is not None and sum(self._used) > _KEPT_BYTES:
            self._memory.madvise(mmap.MADV_DONTNEED)
        for reading, _ in self._pipes:
            os.close(reading)


class Tree:
    """One isolated process tree under watch. `limits` is the request's header."""

    def __init__(self, pid: int, limits: dict[str, Any], streams: Streams) -> None:
        self.pid = pid
        self.streams = streams
        self.descriptor = os.pidfd_open(pid)
        self.ended = False
        self.stopped = ""
        self._limits = limits
        # Process 1 is ours, or runs the tests, whose time is not the program's.
        self._with_tests = limits["kind"] == "tests"
        self._delayed: float | None = None
        self._cpu_before = 0.0

    def new_allowance(self) -> None:
        """Count CPU time from here on only."""
        self._cpu_before = self._cpu_seconds(_tree_of(self.pid))

    def stop(self, why: str) -> None:
        """Kill the tree for a limit; the first reason stands."""
        if not self.ended:
            self.stopped = self.stopped or why
            os.kill(self.pid, signal.SIGKILL)

    def finish(self, began: float) -> Ended:
        """Kill what is left, wait until it is dead to its last process, and read what it wrote."""
        os.kill(self.pid, signal.SIGKILL)
        _, _, usage = os.wait4(self.pid, 0)
        os.close(self.descriptor)
        # All writers are dead now, so this sees everything; not waiting for the end of the pipe, which a descriptor
        # in flight on some socket could hold open.
        for place in range(len(self.streams.sizes)):
            self.streams.drain(place)
        if self.streams.full:
            self.stopped = self.stopped or "output"
        return Ended(self.stopped, usage.ru_utime + usage.ru_stime, time.monotonic() - began, self._delayed)

    def sample(self) -> None:
        """Look at all processes together and stop them when they exceed a limit."""
        processes = _tree_of(self.pid)
        cpu = self._cpu_seconds(processes) - self._cpu_before
        if self._with_tests and self.pid in processes:
            in_tests = processes[self.pid][1] / _TICKS
            cpu -= in_tests
            if in_tests > self._limits["cpu_seconds"]:
                self.stop("tests_cpu")
        for pid in processes:
            fields = _read(f"/proc/{pid}/schedstat").split()
            if len(fields) >= 2:
                self._delayed = max(self._delayed or 0.0, int(fields[1]) / 1e9)
        limit = self._limits["memory_mb"] << 20
        if cpu > self._limits["cpu_seconds"]:
            self.stop("cpu")
        elif sum(map(_resident_bytes, processes)) > limit and sum(map(_proportional_bytes, processes)) > limit:
            self.stop("memory")
        elif len(processes) > self._limits["processes"] + 2:
            # Only an old kernel comes here; a newer one refuses the fork.
            self.stop("processes")

    @staticmethod
    def _cpu_seconds(processes: dict[int, tuple[int, int]]) -> float:
        return sum(ticks for _, ticks in processes.values()) / _TICKS


def watch(tree: Tree, seconds: float, requests: int) -> Ended:
    """Wait until `tree` has ended, or end it at the limit of `seconds`.

    requests: the pipe of the worker's owner; when its other end is closed, nobody waits for an answer any more, and
    this raises SystemExit.
    """
    began = time.monotonic()
    deadline, next_sample = began + seconds, began + _FIRST_SAMPLE
    poller = select.poll()
    pipes = {pipe: place for place, pipe in enumerate(tree.streams.descriptors)}
    for descriptor in (tree.descriptor, *pipes):
        poller.register(descriptor, select.POLLIN)
    poller.register(requests, 0)
    while not tree.ended:
        now = time.monotonic()
        if now >= next_sample:
            next_sample = now + SAMPLE_EVERY
            tree.sample()
        if now >= deadline:
            tree.stop("wall")
        for descriptor, _ in poller.poll(max(0.0, min(deadline, next_sample) - now) * 1000 + 1):
            if descriptor == tree.descriptor:
                tree.ended = True
            elif descriptor == requests:
                raise SystemExit("the owner of this worker is gone")
            elif not tree.streams.drain(pipes[descriptor]):
                poller.unregister(descriptor)
            if tree.streams.full:
                tree.stop("output")
    return tree.finish(began)


def _tree_of(root: int) -> dict[int, tuple[int, int]]:
    """Process id to (parent, CPU ticks with those of waited-for children), for `root` and all below it."""
    everyone: dict[int, tuple[int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            # The command name in parentheses may hold anything.
            fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
            if len(fields) > 14:
                everyone[int(name)] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {root: everyone[root]} if root in everyone else {}
    grown = True
    while grown:
        below = {pid: entry for pid, entry in everyone.items() if pid not in tree and entry[0] in tree}
        tree |= below
        grown = bool(below)
    return tree


def _resident_bytes(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def _proportional_bytes(pid: int) -> int:
    """Memory with shared pages divided among those who share them; forks share most of theirs."""
    for line in _read(f"/proc/{pid}/smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) << 10
    return _resident_bytes(pid)


def _read(path: str) -> bytes:
    """A file of /proc, or nothing when its process is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
