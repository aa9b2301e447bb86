"""An image made of this machine's interpreter: what the bubblewrap backend shows, as an image. No registry needed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentrl.api import SandboxUnavailable
from agentrl.sandbox.interpreter import Visible

REPOSITORY = "agentrl-sandbox-own"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def own_image(client: Any, seen: Visible) -> str:
    """The name of an image on the engine that holds exactly what `seen` shows; it is made when it is not there yet.

    Raises SandboxUnavailable when this machine's interpreter cannot run on the engine's machine.
    """
    import docker

    machine = client.version().get("Arch", "")
    if not sys.platform.startswith("linux") or _MACHINES.get(machine, machine) != platform.machine():
        raise SandboxUnavailable(
            f"this machine's Python does not run on the Docker engine's machine ({machine}): build an image there with "
            f"`docker build -t agentrl-sandbox {Path(__file__).with_name('recipe')}` and set "
            "sandbox.docker.image=agentrl-sandbox"
        )
    name = _name_of(seen)
    try:
        client.inspect_image(name)
    except docker.errors.ImageNotFound:
        _import(client, seen, name)
    return name


@functools.cache
def _name_of(seen: Visible) -> str:
    """A name by content: sizes and times of some thousand files, looked at once, not for every container."""
    key = hashlib.blake2b(digest_size=8)
    for source, target in _files(seen):
        info = os.lstat(source)
        key.update(f"{target} {info.st_size} {info.st_mtime_ns}\n".encode())
    return f"{REPOSITORY}:{key.hexdigest()}"


def _import(client: Any, seen: Visible, name: str) -> None:
    repository, _, tag = name.partition(":")
    with tempfile.TemporaryDirectory() as folder:
        archive = os.path.join(folder, "image.tar")
        with tarfile.open(archive, "w") as tar:
            for source, target in _files(seen):
                tar.add(source, target.lstrip("/"), recursive=False, filter=_readable)
        client.import_image_from_file(archive, repository=repository, tag=tag)


def _readable(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """Root's, readable by everybody, and without setuid: the host's folders may be closed to the container's user."""
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def _files(seen: Visible) -> Iterator[tuple[str, str]]:
    """Every file and folder as (path here, path inside), without what must look empty."""
    hidden = set(seen.hidden)
    for source, target in sorted(seen.binds, key=lambda bind: bind[1]):
        yield os.path.realpath(source), target
        for folder, folders, files in os.walk(source):
            folders[:] = sorted(name for name in folders if os.path.join(folder, name) not in hidden)
            inside = target + folder.removeprefix(source)
            for name in (*folders, *sorted(files)):
                path = os.path.join(folder, name)
                with contextlib.suppress(FileNotFoundError):
                    os.lstat(path)
                    yield path, os.path.join(inside, name)
