"""A control group for each worker, where this process may make one: the kernel then bounds memory and processes."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

_TOP = Path("/sys/fs/cgroup")
_PREFIX = "agentrl-"
OWN_MB = 64  # the runner, bubblewrap and the kernel's books for them
MOST_PROCESSES = 4096  # of all programs of a worker; each program has a limit of its own


@dataclass(slots=True)
class Cgroup:
    """Folders of one worker's groups: memory and pids, the same folder where the hierarchy is unified.

    Example: `Cgroup(memory=Path("/sys/fs/cgroup/memory/agentrl-41-0"), pids=Path("/sys/fs/cgroup/pids/agentrl-41-0"),
    unified=False)`.
    """

    memory: Path
    pids: Path
    unified: bool
    _limit: int = field(default=0)
    _killed: int = field(default=0)
    _events: int = field(default=-1)

    @property
    def folders(self) -> list[str]:
        """The folders to join."""
        return sorted({str(self.memory), str(self.pids)})

    def prepare(self, memory_mb: int) -> int:
        """Set the memory limit for the next program; returns how often the kernel has killed in here so far."""
        wanted = (memory_mb + OWN_MB) << 20
        if wanted != self._limit:
            (self.memory / ("memory.max" if self.unified else "memory.limit_in_bytes")).write_text(str(wanted))
            self._limit = wanted
        return self.killed_for_memory()

    def killed_for_memory(self) -> int:
        """How many processes the kernel has killed for memory in this group; also after its removal."""
        if self._events < 0:
            # Kept open: this is asked twice for every program.
            name = "memory.events" if self.unified else "memory.oom_control"
            with contextlib.suppress(OSError):
                self._events = os.open(self.memory / name, os.O_RDONLY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):
            for line in os.pread(self._events, 4096, 0).splitlines():
                if line.startswith(b"oom_kill "):
                    self._killed = int(line.split()[1])
        return self._killed

    def remove(self) -> None:
        """Remove the folders; the kernel needs a moment after the last process died."""
        self.killed_for_memory()
        if self._events >= 0:
            os.close(self._events)
            self._events = -1
        for folder in self.folders:
            _remove(Path(folder))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _remove(folder: Path) -> None:
    for _ in range(50):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.002)
        else:
            return


def make(number: int, *, processes: int = MOST_PROCESSES) -> Cgroup | None:
    """Make the group of worker `number` of this process, or return None where that is not possible."""
    name = f"{_PREFIX}{os.getpid()}-{number}"
    for unified, memory_root, pids_root in _roots():
        group = Cgroup(memory=memory_root / name, pids=pids_root / name, unified=unified)
        try:
            for folder in group.folders:
                os.makedirs(folder, exist_ok=True)
            (group.pids / "pids.max").write_text(str(processes))
            group.prepare(512)
            with contextlib.suppress(OSError):
                swap = "memory.swap.max" if unified else "memory.swappiness"
                (group.memory / swap).write_text("0")
        except OSError:
            group.remove()
            continue
        return group
    return None


def sweep() -> None:
    """Remove the groups of processes that are gone: what a killed run left behind."""
    for _, memory_root, pids_root in _roots():
        for root in {memory_root, pids_root}:
            for folder in root.glob(f"{_PREFIX}*"):
                owner = folder.name.removeprefix(_PREFIX).partition("-")[0]
                if owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
                    with contextlib.suppress(OSError):
                        folder.rmdir()


def _roots() -> list[tuple[bool, Path, Path]]:
    """Where groups could be made: (unified, memory folder, pids folder), the nearest to this process's own first."""
    own = {}
    for line in _read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        own.update(dict.fromkeys(controllers.split(","), path))
    if (_TOP / "cgroup.controllers").exists():
        return [
            (True, folder, folder)
            for folder in _upwards(_TOP, own.get("", "/"))
            if {"memory", "pids"} <= set(_read(folder / "cgroup.subtree_control").split())
        ]
    memory = _upwards(_TOP / "memory", own.get("memory", "/"))
    pids = _upwards(_TOP / "pids", own.get("pids", "/"))
    return [(False, memory[0], pids[0])] if memory and pids else []


def _upwards(root: Path, own: str) -> list[Path]:
    """The writable folders from the process's own group up to `root`."""
    folder = root / own.lstrip("/")
    if not folder.is_dir():
        # In a container the path may speak of the host's tree.
        folder = root
    found = [folder, *folder.parents]
    return [place for place in found[: found.index(root) + 1] if place.is_dir() and os.access(place, os.W_OK)]
