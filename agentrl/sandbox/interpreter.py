"""What of the host a sandbox may see: the interpreter, its library, the shared libraries they load, named packages."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentrl.api import ConfigError, SandboxUnavailable

# Extensions of the standard library that programs do without and that would pull in many libraries.
_LEFT_OUT = ("_tkinter", "nis", "_gdbm", "_dbm")
_LIBRARY_NAME = re.compile(rb"\0([\w.+-]+\.so[\w.]*)")
_PUBLIC = ("/usr/share/zoneinfo", "/etc/ld.so.cache")

RUNNER = "/runner"
"""The entry of sys.path that leads a worker to `agentrl.sandbox.inside`."""

ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/w",
    "USER": "box",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONUTF8": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MPLCONFIGDIR": "/tmp",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""The whole environment of a worker, and so of every program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visible:
    """The host paths that a sandbox sees read-only, and how Python starts there.

    binds: (host path, path inside). hidden: folders inside those that must look empty. packages_at: where the named
    packages lie inside. modules: their import names.

    Example: `Visible(python="/usr/bin/python3.11", binds=(("/usr/lib/python3.11", "/usr/lib/python3.11"),),
    hidden=("/usr/lib/python3.11/dist-packages",), packages_at="/packages", modules=())`.
    """

    python: str
    binds: tuple[tuple[str, str], ...]
    hidden: tuple[str, ...]
    packages_at: str
    modules: tuple[str, ...]


# What these two do after a fork costs more than the fork itself, and each verdict forks twice. The runner has one
# thread; a program gets the hook of `threading` back before its first line.
_WITHOUT_FORK_HOOKS = """import os
register, os.register_at_fork = os.register_at_fork, lambda **_: None
import random, threading
os.register_at_fork = register"""


def runner_words(seen: Visible, start: str, *, covers: Sequence[tuple[str, str]] = ()) -> list[str]:
    """The command that becomes the runner; `start` is Python text that puts `RUNNER` or its like on sys.path first.

    covers: see `isolate.cover`.
    """
    start += f"\n{_WITHOUT_FORK_HOOKS}\nfrom agentrl.sandbox.inside.runner import main; "
    start += f"main({seen.packages_at!r}, {list(seen.modules)!r}, {list(covers)!r})"
    return [seen.python, "-P", "-s", "-S", "-c", start]


@functools.cache
def visible(packages: tuple[str, ...] = ()) -> Visible:
    """Find what to show for this interpreter and the named distributions.

    Raises ConfigError for a distribution that is not installed, and SandboxUnavailable when `ldd` is missing.
    """
    python = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    base = {"base": sys.base_prefix, "installed_base": sys.base_prefix, "platbase": sys.base_exec_prefix}
    libraries = {sysconfig.get_path(kind, vars=base) for kind in ("stdlib", "platstdlib")}
    folders = sorted(path for path in libraries if path and os.path.isdir(path))
    extensions = [
        str(path)
        for folder in folders
        for path in sorted(Path(folder, "lib-dynload").glob("*.so"))
        if not path.name.startswith(_LEFT_OUT)
    ]
    packages_at = "/packages"
    entries, modules = _package_entries(packages)
    for entry in entries:
        extensions += [str(path) for path in (sorted(entry.rglob("*.so*")) if entry.is_dir() else [])]
    binds = [(path, path) for path in (python, *folders, *(path for path in _PUBLIC if os.path.exists(path)))]
    binds += [
        (os.path.realpath(path), path)
        for path in _shared_libraries((python, *extensions))
        if not any(Path(path).is_relative_to(entry) for entry in entries)
    ]
    binds += [(str(entry), f"{packages_at}/{entry.name}") for entry in entries]
    hidden = [
        os.path.join(folder, name)
        for folder in folders
        for name in ("site-packages", "dist-packages")
        if os.path.isdir(os.path.join(folder, name))
    ]
    return Visible(
        python=python, binds=tuple(binds), hidden=tuple(hidden), packages_at=packages_at, modules=tuple(modules)
    )


def _shared_libraries(files: Sequence[str]) -> list[str]:
    """Every library that the dynamic linker would load for `files`, by the paths that it would open.

    Asking it takes milliseconds a file; files of one folder that name the same libraries get the same answer.
    """
    alike: dict[tuple[str, frozenset[bytes]], str] = {}
    for file in files:
        names = frozenset(_LIBRARY_NAME.findall(Path(file).read_bytes()))
        alike.setdefault((os.path.dirname(file), names), file)
    asked = list(alike.values())
    found: set[str] = set()
    for start in range(0, len(asked), 200):
        try:
            listed = subprocess.run(
                ["ldd", *asked[start : start + 200]],
                capture_output=True,
                text=True,
                check=False,
                env={"PATH": os.defpath},
            )
        except OSError as error:
            raise SandboxUnavailable(
                f"`ldd`, which names the libraries of the interpreter, cannot be run ({error}): install it (libc-bin)"
            ) from error
        for line in listed.stdout.splitlines():
            match = re.match(r"^\s+(?:\S+ => )?(/\S+) \(0x", line)
            if match:
                found.add(match[1])
    return sorted(found)


def _package_entries(packages: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Top-level files and folders of the named distributions and of what they require, and the named import names."""
    entries: dict[str, Path] = {}
    modules: list[str] = []
    waiting, seen = list(packages), set()
    while waiting:
        name = waiting.pop(0)
        normal = re.sub(r"[-_.]+", "-", name).lower()
        if normal in seen:
            continue
        seen.add(normal)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in packages:
                raise ConfigError(f"sandbox.packages names '{name}', which is not installed here") from None
            continue
        for file in distribution.files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__"):
                entries[top] = Path(str(distribution.locate_file(top)))
        if name in packages:
            modules += _import_names(distribution)
        for requirement in distribution.requires or ():
            text, _, marker = requirement.partition(";")
            if "extra" not in marker and (match := re.match(r"[\w.-]+", text.strip())):
                waiting.append(match[0])
    return [path for path in entries.values() if path.exists()], modules


def _import_names(distribution: importlib.metadata.Distribution) -> list[str]:
    names = {
        file.parts[0].removesuffix(".py")
        for file in distribution.files or ()
        if (len(file.parts) == 2 and file.name == "__init__.py") or (len(file.parts) == 1 and file.suffix == ".py")
    }
    return sorted(name for name in names if name.isidentifier() and not name.startswith("_"))
