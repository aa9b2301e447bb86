"""First step of a worker process, before the sandbox: join the cgroup, leave root, become bubblewrap.

Run as a script with one JSON argument: `{"cgroups": [folders], "user": id | null, "binds": [[source, target]..],
"before": [words], "after": [words], "program": path, "libraries": folder | null}`; the command is `before`, the binds,
`after`; `libraries` holds what `program` loads by a path relative to itself. Standard library only, because it runs
without site-packages.

Root gives itself up here: inside a user namespace the user stays the host's root for the file system's and the
kernel's own checks, and no process limit holds for it. An ordinary user may lack the way to the interpreter (root's
home is closed), so that as root every source is first mounted in a place of this process's own.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from typing import Any

_STAGE = "/dev/shm"
_NEW_MOUNTS, _BIND, _RECURSIVE, _PRIVATE, _NOSUID_NODEV = 0x20000, 4096, 16384, 1 << 18, 2 | 4
_EASY_TO_KILL = 800


def main(job: dict[str, Any]) -> None:
    """Never returns. Raises OSError, whose text the parent reads from standard error."""
    for folder in job["cgroups"]:
        with open(os.path.join(folder, "cgroup.procs"), "w") as file:
            file.write(str(os.getpid()))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        # When the machine runs out of memory, a sandbox goes before the training run.
        file.write(str(_EASY_TO_KILL))
    binds, program, environment = job["binds"], job["program"], {}
    if job["user"] is not None:
        extra = [job["libraries"]] if job["libraries"] else []
        binds, program, *libraries = _stage(binds, program, *extra)
        environment = {"LD_LIBRARY_PATH": libraries[0]} if libraries else {}
        os.setgroups([])
        os.setresgid(job["user"], job["user"], job["user"])
        os.setresuid(job["user"], job["user"], job["user"])
    words = [*job["before"]]
    for source, target in binds:
        words += ["--ro-bind", source, target]
    os.execve(program, [program, *words, *job["after"]], environment)


def _stage(binds: list[list[str]], *others: str) -> tuple[Any, ...]:
    """Mount every source below a private tmpfs that anybody may enter; returns the binds and the others' new paths."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"{what}: {os.strerror(error)}")

    def mount(source: str, target: str, kind: str, flags: int, options: str | None = None) -> None:
        data = options.encode() if options else None
        check(
            libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data),
            f"mount {source} on {target}",
        )

    check(libc.unshare(_NEW_MOUNTS), "unshare the mounts")
    mount("none", "/", "none", _RECURSIVE | _PRIVATE)
    mount("tmpfs", _STAGE, "tmpfs", _NOSUID_NODEV, "mode=755")
    staged = []
    for place, (source, target) in enumerate([*binds, *([other, ""] for other in others)]):
        name = f"{_STAGE}/{place}"
        if os.path.isdir(source):
            os.mkdir(name)
        else:
            open(name, "x").close()
        mount(source, name, "none", _BIND)
        staged.append([name, target])
    return staged[: len(binds)], *(name for name, _ in staged[len(binds) :])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
