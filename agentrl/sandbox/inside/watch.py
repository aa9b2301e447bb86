"""Watching one isolated process tree from outside: output with bounds, time, memory of all processes together."""

from __future__ import annotations

import mmap
import os
import select
import signal
import time
from typing import Any, NamedTuple

from agentrl.sandbox.inside import frames

_RESULT_BYTES = 8 << 20
_FIRST_SAMPLE, _SAMPLE_EVERY = 0.03, 0.05
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
    """The pipes for standard output, standard error and results, read into memory that forks do not inherit."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self._room: list[int] = [0, 0, 0]
        self._used: list[int] = [0, 0, 0]
        self._pipes: list[tuple[int, int]] = []

    def reset(self, output_bytes: int) -> None:
        """Make new pipes; each output stream may carry `output_bytes`."""
        # One byte more than allowed tells "too much" from "exactly enough".
        self._room = [output_bytes + 1, output_bytes + 1, _RESULT_BYTES + 1]
        self._used = [0, 0, 0]
        self._pipes = [os.pipe() for _ in range(3)]
        if self._memory is None or len(self._memory) < sum(self._room):
            self._memory = mmap.mmap(-1, sum(self._room), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._memory.madvise(mmap.MADV_DONTFORK)

    def keep_read_ends(self) -> None:
        """In the watching process."""
        for reading, writing in self._pipes:
            os.close(writing)
            os.set_blocking(reading, False)

    def keep_write_ends(self) -> list[int]:
        """In the new tree; returns the descriptors for output, errors and results."""
        for reading, _ in self._pipes:
            os.close(reading)
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

    def write_to(self, descriptor: int) -> None:
        """Write the held bytes of all three streams and close the pipes."""
        assert self._memory is not None
        with memoryview(self._memory) as whole:
            for place, size in enumerate(self.sizes):
                start = sum(self._room[:place])
                with whole[start : start + size] as part:
                    frames.write_all(descriptor, part)
        for reading, _ in self._pipes:
            os.close(reading)


class Watch:
    """Waits for a tree to end, or ends it."""

    def __init__(self, pid: int, header: dict[str, Any], streams: Streams) -> None:
        self._pid = pid
        self._limits = header
        self._streams = streams
        self._began = time.monotonic()
        self._delayed: float | None = None

    def wait(self) -> Ended:
        """Return when the tree is dead, to its last process, and its output is read."""
        stopped = self._until_ended()
        os.kill(self._pid, signal.SIGKILL)
        _, _, usage = os.wait4(self._pid, 0)
        # Every process of the tree is dead now, so this sees all that was ever written; not waiting for the end of
        # the pipe, which a descriptor in flight on some socket could hold open.
        for place in range(3):
            self._streams.drain(place)
        if not stopped and self._streams.full:
            stopped = "output"
        return Ended(stopped, usage.ru_utime + usage.ru_stime, time.monotonic() - self._began, self._delayed)

    def _until_ended(self) -> str:
        poller = select.poll()
        places = {descriptor: place for place, descriptor in enumerate(self._streams.descriptors)}
        for descriptor in places:
            poller.register(descriptor, select.POLLIN)
        ended = os.pidfd_open(self._pid)
        poller.register(ended, select.POLLIN)
        try:
            return self._poll(poller, places, ended)
        finally:
            os.close(ended)

    def _poll(self, poller: select.poll, places: dict[int, int], ended: int) -> str:
        deadline = self._began + self._limits["seconds"]
        next_sample = self._began + _FIRST_SAMPLE
        while True:
            now = time.monotonic()
            if now >= deadline:
                self._sample()
                return "wall"
            if now >= next_sample:
                next_sample = now + _SAMPLE_EVERY
                if excess := self._sample():
                    return excess
            for descriptor, _ in poller.poll(max(0.0, min(deadline, next_sample) - now) * 1000 + 1):
                if descriptor == ended:
                    return ""
                if not self._streams.drain(places[descriptor]):
                    poller.unregister(descriptor)
                if self._streams.full:
                    return "output"

    def _sample(self) -> str:
        """Look at all processes of the tree; returns the name of a limit that they exceed together."""
        tree = _tree_of(self._pid)
        cpu = sum(ticks for _, ticks in tree.values()) / _TICKS
        self._note_delay(list(tree))
        if cpu > self._limits["cpu_seconds"]:
            return "cpu"
        resident = sum(_resident_bytes(pid) for pid in tree)
        limit = self._limits["memory_mb"] << 20
        if resident > limit and sum(_proportional_bytes(pid) for pid in tree) > limit:
            return "memory"
        # The fork that would exceed this is refused already where the kernel counts per namespace.
        if len(tree) > self._limits["processes"] + 2:
            return "processes"
        return ""

    def _note_delay(self, pids: list[int]) -> None:
        for pid in pids:
            fields = _read(f"/proc/{pid}/schedstat").split()
            if len(fields) >= 2:
                self._delayed = max(self._delayed or 0.0, int(fields[1]) / 1e9)


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
