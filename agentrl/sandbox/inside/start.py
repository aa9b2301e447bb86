"""Starting an isolated process tree: process 1, which sets it up and reaps, and the process of the program."""

from __future__ import annotations

import _socket
import contextlib
import os
import signal
import struct
import sys
import threading
import time
import traceback
from typing import Any, NamedTuple

from agentrl.sandbox.inside import boxes, frames, isolate, program, testing
from agentrl.sandbox.inside.watch import Ended, Streams, Tree

_READY = b"R"
_STATUS = struct.Struct("=iid")  # exit code or -1, signal or 0, CPU seconds of the main process
_MOMENT = 1.0  # seconds for a program whose link to its tests broke to be gone


class Role(NamedTuple):
    """What a new tree is to be: a program, or a program with its tests.

    header: the request. link: the socket that leads to a box's owner. foreign: descriptors of the worker, which must
    not be open in the tree.

    Example: `Role(header={"kind": "run", "payloads": [120], ...}, link=None, foreign=(4,))`.
    """

    header: dict[str, Any]
    link: _socket.socket | None
    foreign: tuple[int, ...]


def start(role: Role, requests: int, streams: Streams) -> tuple[Tree, int]:
    """Start a tree, which reads its payloads from `requests`; returns it and the descriptor of its status.

    Raises OSError when it cannot be forked.
    """
    streams.reset(role.header["output_bytes"], with_verdict=role.header["kind"] == "tests")
    status_read, status_write = os.pipe()
    pid = isolate.spawn()
    if pid == 0:
        for descriptor in (*role.foreign, status_read):
            os.close(descriptor)
        _become_init(role, requests, streams, status_write)
    os.close(status_write)
    streams.keep_read_ends()
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
    """Process 1 of the new tree: sets up the isolation, starts the program, then reaps or runs the tests."""
    header = role.header
    try:
        payload = frames.read_payload(requests, header["payloads"][0])
        isolate.enter(header["disk_mb"])
        _place_stdin(payload.stdin)
        out, err, results, *verdict = streams.keep_write_ends()
        isolate.drop_privileges()
        links = _socket.socketpair() if verdict else (role.link, None)
        if verdict:
            # From here on the program can neither look into this process nor change it; the fork undoes it for itself.
            isolate.set_visible(False)
        main_pid = os.fork()
        if main_pid == 0:
            for descriptor in (requests, status_write, *verdict, *([links[1].fileno()] if links[1] else [])):
                os.close(descriptor)
            _become_program(header, payload, (out, err, results), links[0])
        for descriptor in (out, err, results):
            os.close(descriptor)
        if links[0] is not None:
            links[0].close()
        if links[1] is not None:
            # The program waits until its tests are held here, and so has never held them.
            tests = frames.read_payload(requests, header["payloads"][1]).meta
        os.close(requests)
        os.write(status_write, _READY)
    except BaseException as error:
        os.write(status_write, f"{type(error).__name__}: {error}".encode())
        os._exit(1)
    ended = _judge(header, tests, links[1], verdict[0], main_pid) if links[1] else _reap_until(main_pid)
    os.write(status_write, _STATUS.pack(*ended))
    os._exit(0)


def _reap_until(main_pid: int) -> tuple[int, int, float]:
    """Wait for the program; orphans end up here and are reaped too."""
    while True:
        pid, status, usage = os.wait4(-1, 0)
        if pid == main_pid:
            return _ending(status, usage)


def _judge(
    header: dict[str, Any], tests: dict[str, Any], link: _socket.socket, verdict: int, main_pid: int
) -> tuple[int, int, float]:
    """Run the tests; how the program ended, if it did before they were through with it."""
    isolate.limit_resources(header)
    # What the policy left in the program's working directory is not for the tests.
    os.mkdir(isolate.TESTS_HOME)
    os.chdir(isolate.TESTS_HOME)
    os.dup2(2, 0)
    broken = testing.run_tests(tests, link, program.Results(verdict))
    deadline = time.monotonic() + _MOMENT
    while broken:
        pid, status, usage = os.wait4(main_pid, os.WNOHANG)
        if pid:
            return _ending(status, usage)
        if time.monotonic() > deadline:
            return -1, 0, 0.0
        time.sleep(0.002)
    return 0, 0, 0.0


def _ending(status: int, usage: Any) -> tuple[int, int, float]:
    code = os.waitstatus_to_exitcode(status)
    return max(code, -1), max(-code, 0), usage.ru_utime + usage.ru_stime


def _become_program(
    header: dict[str, Any], payload: frames.Payload, streams: tuple[int, int, int], link: _socket.socket | None
) -> None:
    """The process of the program. Never returns."""
    status = 1
    try:
        os.setsid()
        source = _lay_out(payload)
        for descriptor, target in zip(streams[:2], (1, 2), strict=True):
            os.dup2(descriptor, target)
            os.close(descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        isolate.set_visible(True)
        isolate.limit_resources(header)
        os.register_at_fork(after_in_child=threading._after_fork)  # type: ignore[attr-defined]
        sys.argv = [program.FILE]
        sys.path.insert(0, isolate.HOME)
        status = _work(header, payload.meta, source, link, program.Results(streams[2]))
    except BaseException:
        # Closed descriptors, replaced modules: what a program does to its own process is its own failure.
        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode("utf-8", "replace"))
        status = 1
    finally:
        os._exit(status)


def _work(
    header: dict[str, Any], meta: dict[str, Any], source: str, link: _socket.socket | None, results: program.Results
) -> int:
    kind = header["kind"]
    if kind == "run":
        return program.run_script(source, results)
    if kind == "calls":
        status = program.serve_calls(source, meta["calls"], results, header["output_bytes"])
    else:
        assert link is not None
        serve = boxes.serve_box if kind == "box" else testing.serve_program
        status = serve(source, link, results, header["output_bytes"])
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
    # Not by way of a text file: its machinery alone costs a good part of a millisecond in a fresh fork.
    descriptor = os.open(program.FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    frames.write_all(descriptor, memoryview(source.encode("utf-8", "surrogatepass")))
    os.close(descriptor)
    return source


def _place_stdin(data: bytes) -> None:
    """Make `data` descriptor 0. A file in memory, not a pipe: no writer can hang on a program that never reads."""
    descriptor = os.memfd_create("stdin")
    frames.write_all(descriptor, memoryview(data))
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.dup2(descriptor, 0)
    os.close(descriptor)
