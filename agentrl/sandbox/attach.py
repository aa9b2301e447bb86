"""A process that stands for one container: frames on its own standard streams, the container on the other side.

It creates the container, sends the runner's code, and passes on what is said, until either side ends; then the
container is removed. So the pool treats containers as it treats processes, on any engine that the client reaches.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import struct
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

from agentrl.sandbox import engine, inside
from agentrl.sandbox.inside import frames

_STDOUT = 1
_STREAM_HEADER = struct.Struct(">BxxxI")
_PIECE = 1 << 20


def main(job: dict[str, Any]) -> None:
    """Never returns; a failure's words go to standard error."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    import docker

    status = 1
    try:
        client = engine.connect(job["host"])
        try:
            _serve(client, job)
            status = 0
        finally:
            # Whatever interrupts, no second interruption shall leave the container behind.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            with contextlib.suppress(docker.errors.NotFound):
                client.remove_container(job["name"], force=True, v=True)
    except Exception as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(status)


def _serve(client: Any, job: dict[str, Any]) -> None:
    client.create_container_from_config(engine.container(client, job), job["name"])
    attached = client.attach_socket(job["name"], params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
    link = getattr(attached, "_sock", attached)
    link.settimeout(None)
    client.start(job["name"])
    ended = threading.Event()
    for work in (lambda: _send(client, job["name"], link), lambda: _receive(link)):
        threading.Thread(target=_until_end, args=(work, ended), daemon=True).start()
    ended.wait()
    if client.inspect_container(job["name"])["State"].get("OOMKilled"):
        # The kernel chose the runner itself among the processes of a program that took too much.
        facts = {"stopped": "memory", "died": True}
        frames.write_header(1, {"facts": facts, "sizes": [0, 0, 0]})


def _until_end(work: Any, ended: threading.Event) -> None:
    try:
        work()
    except Exception as error:
        os.write(2, f"{type(error).__name__}: {error}\n".encode())
    finally:
        ended.set()


def _send(client: Any, name: str, link: Any) -> None:
    """Pass on requests until there are no more; each brings its own memory limit."""
    code = runner_code()
    link.sendall(len(code).to_bytes(4, "little") + code)
    memory_mb = None
    while (header := frames.read_header(0)) is not None:
        if header.get("memory_mb", memory_mb) != memory_mb:
            memory_mb = header["memory_mb"]
            client.update_container(name, **engine.memory_limit(memory_mb))
        link.sendall(frames.pack_header(header))
        left = sum(header["payloads"])
        while left:
            piece = frames.read_exactly(0, min(left, _PIECE))
            link.sendall(piece)
            left -= len(piece)


def _receive(link: Any) -> None:
    """Pass on what the container writes, until it ends."""
    while head := _take(link, _STREAM_HEADER.size):
        stream, left = _STREAM_HEADER.unpack(head)
        while left:
            piece = _take(link, min(left, _PIECE))
            if not piece:
                return
            frames.write_all(1 if stream == _STDOUT else 2, memoryview(piece))
            left -= len(piece)


def _take(link: Any, size: int) -> bytes:
    """Exactly `size` bytes, or nothing when the stream ends before."""
    data = b""
    while len(data) < size:
        part = link.recv(size - len(data))
        if not part:
            return b""
        data += part
    return data


def runner_code() -> bytes:
    """The modules of `agentrl.sandbox.inside` as an archive that Python imports from."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_STORED) as archive:
        for package in ("agentrl", "agentrl/sandbox"):
            archive.writestr(f"{package}/__init__.py", "")
        for path in sorted(Path(inside.__file__).parent.glob("*.py")):
            archive.write(path, f"agentrl/sandbox/inside/{path.name}")
    return held.getvalue()
