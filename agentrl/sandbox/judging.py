"""Worker processes for trusted judging that may hang or eat memory: warm, killable, replaced when they die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from agentrl.api import JSON, CallCrashed, CallFailed, CallTimeout, ConfigError, Workers, WorkersUnavailable

_CHILD = Path(__file__).with_name("judging_child.py")
_START_SECONDS = 60.0
_WALL_SHARE = 2.0  # wall seconds per second of processor time that a call is given
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_CHUNK = 1 << 16


def open_workers(*, workers: int | None = None, memory_mb: int = 1536) -> WorkerProcesses:
    """A pool of at most `workers` processes (None: the number of CPUs); each starts with the first call that needs it.

    memory_mb: private memory that one process may have. Raises ConfigError for a bad argument.
    """
    if workers is not None and workers < 1:
        raise ConfigError(f"sandbox.workers is {workers}; it must be at least 1")
    return WorkerProcesses(workers or os.cpu_count() or 1, memory_mb)


class WorkerProcesses(Workers):
    """The service `workers`. Usable from any asyncio loop; calls wait in order for a free process.

    One thread per process waits for it, so nothing here depends on the loop that asked.
    """

    def __init__(self, size: int, memory_mb: int) -> None:
        self._memory_mb = memory_mb
        self._idle: list[_Process] = []
        # The threads live as long as the pool: a process is ended by the kernel when the thread that started it is.
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="judging")
        self._closed = False

    async def call(self, function: str, *args: JSON, timeout: float) -> JSON:
        """See `agentrl.api.Workers`."""
        if self._closed:
            raise WorkersUnavailable("the worker processes were closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._call, function, args, timeout)

    async def close(self) -> None:
        """End all processes once the calls under way have ended."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        while self._idle:
            self._idle.pop().kill()

    def _call(self, function: str, args: tuple[JSON, ...], timeout: float) -> JSON:
        process = self._idle.pop() if self._idle else _Process(self._memory_mb)
        try:
            value = process.call(function, args, timeout)
        except CallFailed:
            self._idle.append(process)
            raise
        except BaseException:
            process.kill()
            raise
        self._idle.append(process)
        return value


class _Process:
    """One worker process; after any error but CallFailed it is of no more use."""

    def __init__(self, memory_mb: int) -> None:
        command = [sys.executable, "-P", "-X", "utf8", str(_CHILD), str(os.getpid()), str(memory_mb)]
        environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
        try:
            self._process = subprocess.Popen(
                [*command, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                bufsize=0,
            )
        except OSError as error:
            raise WorkersUnavailable(f"no worker process could be started: {error}") from error
        self._loaded: set[str] = set()
        self._rest = b""
        self._started = False

    def call(self, function: str, args: tuple[JSON, ...], timeout: float) -> JSON:
        """Make one call; the time that starting and importing take is not the call's."""
        self._prepare(function)
        request = {"function": function, "args": args, "seconds": timeout}
        try:
            reply = self._exchange(request, timeout * _WALL_SHARE)
        except TimeoutError:
            raise CallTimeout(f"{function} was ended after {timeout * _WALL_SHARE:g} s of wall time") from None
        except EOFError:
            if self._process.wait() == -signal.SIGPROF:
                raise CallTimeout(f"{function} was ended after {timeout:g} s of processor time") from None
            raise CallCrashed(f"the worker process ended in {function} (status {self._process.returncode})") from None
        if "failed" in reply:
            raise CallFailed(f"{function} raised\n{reply['failed']}")
        return reply["value"]

    def kill(self) -> None:
        """End the process and reap it."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _prepare(self, function: str) -> None:
        if function in self._loaded:
            return
        try:
            if not self._started:
                self._read(time.monotonic() + _START_SECONDS)
                self._started = True
            reply = self._exchange({"load": function}, _START_SECONDS)
        except TimeoutError:
            raise WorkersUnavailable(f"a worker process was not ready for {function} in {_START_SECONDS:g} s") from None
        except EOFError:
            status = self._process.wait()
            raise WorkersUnavailable(f"a worker process ended before {function} (status {status})") from None
        if "failed" in reply:
            raise WorkersUnavailable(f"a worker process cannot import {function}\n{reply['failed']}")
        self._loaded.add(function)

    def _exchange(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        deadline = time.monotonic() + seconds
        try:
            left = memoryview(json.dumps(request).encode("ascii") + b"\n")
            while left:
                left = left[self._process.stdin.write(left) :]
        except OSError:
            raise EOFError from None
        return self._read(deadline)

    def _read(self, deadline: float) -> dict[str, Any]:
        """One reply. Raises TimeoutError, and EOFError when the process has ended."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            patience = deadline - time.monotonic()
            if patience <= 0 or not select.select([descriptor], [], [], patience)[0]:
                raise TimeoutError
            parts.append(os.read(descriptor, _CHUNK))
            if not parts[-1]:
                raise EOFError
        line, _, self._rest = b"".join(parts).partition(b"\n")
        reply: dict[str, Any] = json.loads(line)
        return reply
