"""The warm interpreter: for every request it forks a fresh isolated process tree and watches it from outside.

Requests arrive on descriptor 0, answers leave on descriptor 1, both as frames (`frames.py`). This process stays as
it was at its start: what a request carries (programs, inputs, tests) is read by the fork that needs it, and what
comes back is held in memory that forks do not inherit. So nothing of one program can be found by the next.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import struct
import sys
import traceback
from typing import Any

# Three folders up lies `agentrl`, of which nothing but this folder is there.
_ROOT = __file__.rpartition("/agentrl/")[0]
sys.path.insert(0, _ROOT)

from agentrl.sandbox.inside import frames, isolate, program
from agentrl.sandbox.inside.watch import Ended, Streams, Watch

_READY = b"R"
_STATUS = struct.Struct("=iid")  # exit code or -1, signal or 0, CPU seconds of the main process


def main() -> None:
    """Serve requests until the other side closes the pipe."""
    requests, answers = _take_descriptors()
    packages_at, modules = sys.argv[1], sys.argv[2:]
    _preload(packages_at, modules)
    # A handler of ours would run in process 1 of a program's tree when the program signals it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    streams = Streams()
    gc.collect()
    gc.freeze()
    frames.write_header(answers, {"hello": 1, "python": sys.version.split()[0], "modules": modules})
    while (header := frames.read_header(requests)) is not None:
        serve(header, requests, answers, streams)


def serve(header: dict[str, Any], requests: int, answers: int, streams: Streams) -> None:
    """Run one request and answer it; an error of ours becomes an answer that says so."""
    streams.reset(header["output_bytes"])
    status_read, status_write = os.pipe()
    try:
        pid = isolate.spawn()
    except OSError as error:
        raise SystemExit(f"cannot start an isolated process: {error}") from error
    if pid == 0:
        _become_init(header, requests, answers, streams, status_read, status_write)
    os.close(status_write)
    streams.keep_read_ends()
    ended = Watch(pid, header, streams).wait()
    _answer(answers, streams, ended, status_read)
    os.close(status_read)


def _answer(answers: int, streams: Streams, ended: Ended, status_read: int) -> None:
    status = os.read(status_read, 4096)
    answer: dict[str, Any] = {"cpu": ended.cpu_seconds, "seconds": ended.seconds, "stopped": ended.stopped}
    answer["delayed"] = ended.delayed_seconds
    if not status.startswith(_READY):
        answer["broken"] = status.decode("utf-8", "replace") or "the isolated process ended before it was ready"
    elif len(status) >= 1 + _STATUS.size:
        code, killer, cpu = _STATUS.unpack_from(status, 1)
        answer["exit_code"] = code if code >= 0 else None
        answer["signal"] = killer or None
        answer["main_cpu"] = cpu
    frames.write_header(answers, answer | {"sizes": streams.sizes})
    streams.write_to(answers)


def _become_init(
    header: dict[str, Any], requests: int, answers: int, streams: Streams, status_read: int, status_write: int
) -> None:
    """Process 1 of the new tree: set up the isolation, start the program, reap until the program's process ends."""
    try:
        os.close(answers)
        os.close(status_read)
        isolate.enter(header["disk_mb"])
        payload = frames.read_payload(requests, header["payload"])
        os.close(requests)
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
        _become_program(header, payload, out, err, results)
    for descriptor in (out, err, results):
        os.close(descriptor)
    while True:
        # Orphans end up here and must be reaped too.
        pid, status, usage = os.wait4(-1, 0)
        if pid == main_pid:
            code = os.waitstatus_to_exitcode(status)
            os.write(status_write, _STATUS.pack(max(code, -1), max(-code, 0), usage.ru_utime + usage.ru_stime))
            os._exit(0)


def _become_program(header: dict[str, Any], payload: frames.Payload, out: int, err: int, results: int) -> None:
    """The program's own process. Never returns."""
    status = 1
    try:
        os.setsid()
        source = _lay_out(payload)
        for descriptor, target in ((out, 1), (err, 2)):
            os.dup2(descriptor, target)
            os.close(descriptor)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        isolate.limit_resources(
            cpu_seconds=header["cpu_seconds"],
            memory_mb=header["memory_mb"],
            processes=header["processes"],
            file_mb=header["file_mb"],
        )
        sys.argv = [program.FILE]
        sys.path.insert(0, isolate.HOME)
        channel = program.Results(results)
        if header["kind"] == "run":
            status = program.run_script(source, channel)
        else:
            status = program.serve_calls(source, payload.meta["calls"], channel, header["output_bytes"])
            sys.stdout.flush()
    except BaseException:
        # Closed descriptors, replaced modules: what a program does to its own process is its own failure.
        with contextlib.suppress(BaseException):
            os.write(2, traceback.format_exc().encode("utf-8", "replace"))
        status = 1
    finally:
        os._exit(status)


def _lay_out(payload: frames.Payload) -> str:
    """Write the files and the program into the working directory."""
    for path, data in payload.files.items():
        full = os.path.join(isolate.HOME, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(data)
    source: str = payload.meta["program"]
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


def _take_descriptors() -> tuple[int, int]:
    """Move the protocol's pipes away from 0 and 1, which programs use, and leave the null device there."""
    requests, answers = os.dup(0), os.dup(1)
    null = os.open("/dev/null", os.O_RDWR)
    for target in (0, 1, 2):
        os.dup2(null, target)
    os.close(null)
    return requests, answers


def _preload(packages_at: str, modules: list[str]) -> None:
    """Import what most programs import, once, so that their forks find it loaded."""
    import site

    site.setquit()
    site.setcopyright()
    site.sethelper()
    sys.path = [entry for entry in sys.path if entry != _ROOT]
    sys.path.append(packages_at)
    register, os.register_at_fork = os.register_at_fork, _forget
    import random

    os.register_at_fork = register
    # One stream for every program, so that a verdict can be repeated; reseeding would also slow down each fork.
    random.seed(0)
    for name in (*_COMMON, *modules):
        __import__(name)


def _forget(**hooks: object) -> None:
    """Stands in for `os.register_at_fork`."""


_COMMON = (
    "array", "bisect", "collections", "copy", "datetime", "decimal", "enum", "fractions", "functools", "heapq", "io",
    "itertools", "json", "math", "operator", "re", "statistics", "string", "time", "typing",
)  # fmt: skip

if __name__ == "__main__":
    main()
