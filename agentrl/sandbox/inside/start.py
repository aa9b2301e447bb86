"""Starting an isolated process tree: process 1, which sets it up and reaps, and the process of the program."""

from __future__ import annotations

import _socket
import contextlib
import os
import signal
import struct
import sys
import traceback
from typing import Any, NamedTuple

from agentrl.sandbox.inside import boxes, frames, isolate, program, testing
from agentrl.sandbox.inside.watch import Ended, Streams, Tree

_TAKEN, _READY = b"T", b"R"
_STATUS = struct.Struct("=iid")  # exit code or -1, signal or 0, CPU seconds of the main process


class Role(NamedTuple):
    """What a new tree is to be.

    name: `program` or `tests`. link: the end of a socket that leads to the tests, the program, or a box's owner.
    foreign: descriptors of other trees and of the worker, which must not be open in this one.

    Example: `Role(name="program", header={"kind": "run", ...}, payload_bytes=120, link=None, foreign=(4,))`.
    """

    name: str
    header: dict[str, Any]
    payload_bytes: int
    link: _socket.socket | None
    foreign: tuple[int, ...]


def start(role: Role, requests: int, streams: Streams) -> tuple[Tree, int]:
    """Start a tree, which reads its own payload from `requests`; returns it and the descriptor of its status.

    Raises OSError when it cannot be forked or does not take its payload.
    """
    streams.reset(role.header["output_bytes"])
    status_read, status_write = os.pipe()
    pid = isolate.spawn()
    if pid == 0:
        for descriptor in (*role.foreign, status_read):
            os.close(descriptor)
        _become_init(role, requests, streams, status_write)
    os.close(status_write)
    streams.keep_read_ends()
    # Whoever reads the pipe next must find what follows.
    if os.read(status_read, 1) != _TAKEN:
        raise OSError("an isolated process could not read its input")
    return Tree(pid, role.header, streams), status_read


def facts_of(ended: Ended, status_read: int) -> dict[str, Any]:
    """What is known of a tree that has ended; closes its status descriptor."""
    status = os.read(status_read, 4096)
    os.close(status_read)
    facts: dict[str, Any] = {"cpu": ended.cpu_seconds, "seconds": ended.seconds, "stopped": ended.stopped}
    facts["delayed"] = ended.delayed_seconds
    if not status.startswith(_READY):
        facts["broken"] = status.decode("utf-8", "replace") or "the isolated process ended before it was ready"
    elif len(status) >= 1 + _STATUS.size:
        code, killer, cpu = _STATUS.unpack_from(status, 1)
        facts["exit_code"] = code if code >= 0 else None
        facts["signal"] = killer or None
        facts["main_cpu"] = cpu
    return facts


def _become_init(role: Role, requests: int, streams: Streams, status_write: int) -> None:
    """Process 1 of the new tree: set up the isolation, start the program, reap until its process ends."""
    try:
        payload = frames.read_payload(requests, role.payload_bytes)
        os.write(status_write, _TAKEN)
        os.close(requests)
        isolate.enter(role.header["disk_mb"])
        _place_stdin(payload.stdin)
        out, err, results = streams.keep_write_ends()
        isolate.drop_privileges()
        os.write(status_write, _READY)
    except BaseException as error:
        os.write(status_write, f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    main_pid = os.fork()
    if main_pid == 0:
        os.close(status_write)
        _become_program(role, payload, out, err, results)
    for descriptor in (out, err, results):
        os.close(descriptor)
    if role.link is not None:
        role.link.close()
    while True:
        # Orphans end up here and must be reaped too.
        pid, status, usage = os.wait4(-1, 0)
        if pid == main_pid:
            code = os.waitstatus_to_exitcode(status)
            os.write(status_write, _STATUS.pack(max(code, -1), max(-code, 0), usage.ru_utime + usage.ru_stime))
            os._exit(0)


def _become_program(role: Role, payload: frames.Payload, out: int, err: int, results: int) -> None:
    """The process of the program, or of the tests. Never returns."""
    status = 1
    header = role.header
    try:
        os.setsid()
        source = _lay_out(payload)
        for descriptor, target in ((out, 1), (err, 2)):
            os.dup2(descriptor, target)
            os.close(descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        isolate.limit_resources(
            cpu_seconds=header["cpu_seconds"] * header.get("commands", 1),
            memory_mb=header["memory_mb"],
            processes=header["processes"],
            file_mb=header["file_mb"],
        )
        sys.argv = [program.FILE]
        sys.path.insert(0, isolate.HOME)
        status = _work(role, payload.meta, source, program.Results(results))
    except BaseException:
        # Closed descriptors, replaced modules: what a program does to its own process is its own failure.
        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode("utf-8", "replace"))
        status = 1
    finally:
        os._exit(status)


def _work(role: Role, meta: dict[str, Any], source: str, results: program.Results) -> int:
    kind = role.header["kind"]
    if kind == "run":
        return program.run_script(source, results)
    if kind == "calls":
        status = program.serve_calls(source, meta["calls"], results, role.header["output_bytes"])
    else:
        assert role.link is not None
        if kind == "box":
            status = boxes.serve_box(source, role.link, role.header["output_bytes"])
        elif role.name == "program":
            status = testing.serve_program(source, role.link, results)
        else:
            status = testing.run_tests(meta, role.link, results)
    sys.stdout.flush()
    return status


def _lay_out(payload: frames.Payload) -> str:
    """Write the files and the program into the working directory; returns the program's source."""
    for path, data in payload.files.items():
        full = os.path.join(isolate.HOME, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)
    source: str = payload.meta.get("program", "")
    with open(program.FILE, "w", encoding="utf-8", errors="surrogatepass", newline="") as text:
        text.write(source)
    return source


def _place_stdin(data: bytes) -> None:
    """Make `data` descriptor 0. A file in memory, not a pipe: no writer can hang on a program that never reads."""
    descriptor = os.memfd_create("stdin")
    frames.write_all(descriptor, memoryview(data))
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.close(descriptor)
