"""One worker process: a sandboxed runner, spoken to from asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentrl.sandbox.cgroup import Cgroup
from agentrl.sandbox.inside import frames

_START_SECONDS, _END_SECONDS = 60.0, 20.0
_LARGEST_HEADER = 1 << 20


class WorkerDied(Exception):
    """The worker ended or stopped answering: our failure, or somebody killed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a worker reports of one request; the streams may hold anything that the program wrote.

    facts: how the program's process tree ended. results: what the program's process reported. verdict: what its tests
    concluded, for requests that have tests.

    Example: `Answer(facts={"exit_code": 0, "cpu": 0.01, ...}, stdout=b"3\\n", stderr=b"", results=b"")`.
    """

    facts: Mapping[str, Any]
    stdout: bytes = b""
    stderr: bytes = b""
    results: bytes = b""
    verdict: bytes = b""


class Worker:
    """A started worker. One request at a time; after WorkerDied it is of no more use."""

    def __init__(self, process: asyncio.subprocess.Process, cgroup: Cgroup | None, end_signal: int) -> None:
        self._process = process
        self._cgroup = cgroup
        self._end_signal = end_signal
        # Names this very process also when the loop that would reap it is gone.
        self._handle = os.pidfd_open(process.pid)

    @classmethod
    async def start(cls, command: Sequence[str], cgroup: Cgroup | None, end_signal: int = signal.SIGKILL) -> Worker:
        """Start a worker and wait until it is ready. Raises WorkerDied with what it said.

        end_signal: what ends it; a process that must still clean up elsewhere gets another one than SIGKILL.
        """
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=1 << 20,
            env={},
            # Ctrl-C speaks to the caller, which decides what becomes of its workers.
            start_new_session=True,
        )
        try:
            worker = cls(process, cgroup, end_signal)
        except ProcessLookupError:
            raise WorkerDied("the sandbox worker ended at once") from None
        try:
            async with asyncio.timeout(_START_SECONDS):
                greeting = await worker._read_header()
            if "failed" in greeting:
                raise WorkerDied(greeting["failed"])
        except TimeoutError:
            await worker.close()
            raise WorkerDied(f"the sandbox worker did not start within {_START_SECONDS:g} s") from None
        except BaseException:
            await worker.close()
            raise
        return worker

    async def request(self, header: Mapping[str, Any], payloads: Sequence[bytes], *, patience: float) -> Answer:
        """Send one request and wait at most `patience` seconds for its answer. Raises WorkerDied."""
        try:
            killed_before = self._cgroup.prepare(int(header["memory_mb"])) if self._cgroup else 0
        except OSError as error:
            await self.close()
            raise WorkerDied(f"the memory limit of a sandbox worker could not be set: {error}") from None
        try:
            async with asyncio.timeout(patience):
                answer = await self._exchange(header, payloads)
        except TimeoutError:
            await self.close()
            raise WorkerDied(f"the sandbox worker did not answer within {patience:g} s") from None
        except WorkerDied:
            if self._cgroup and self._cgroup.killed_for_memory() > killed_before:
                # The kernel chose the worker itself among the processes of a program that took too much.
                return Answer(facts={"stopped": "memory", "died": True})
            raise
        except asyncio.CancelledError:
            # Half an exchange is in the pipes: nobody can use this worker again.
            await self.close()
            raise
        if self._cgroup and self._cgroup.killed_for_memory() > killed_before and not answer.facts["stopped"]:
            return dataclasses.replace(answer, facts={**answer.facts, "stopped": "memory"})
        return answer

    async def _exchange(self, header: Mapping[str, Any], payloads: Sequence[bytes]) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(b"".join((frames.pack_header(header), *payloads)))
            await self._process.stdin.drain()
            header = await self._read_header()
            streams = [await self._process.stdout.readexactly(size) for size in header["sizes"]]
        except (OSError, asyncio.IncompleteReadError):
            raise WorkerDied(await self._last_words()) from None
        out, err, results, *verdict = streams
        return Answer(facts=header["facts"], stdout=out, stderr=err, results=results, verdict=b"".join(verdict))

    async def _read_header(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        try:
            length = frames.header_length(await self._process.stdout.readexactly(frames.LENGTH_BYTES))
            if length > _LARGEST_HEADER:
                raise WorkerDied(f"the sandbox worker announced an answer of {length} bytes")
            facts: dict[str, Any] = json.loads(await self._process.stdout.readexactly(length))
        except (OSError, asyncio.IncompleteReadError):
            raise WorkerDied(await self._last_words()) from None
        return facts

    async def _last_words(self) -> str:
        await self.close()
        assert self._process.stderr is not None
        words = (await self._process.stderr.read(4096)).decode("utf-8", "replace").strip()
        return f"the sandbox worker ended (status {self._process.returncode})" + (f": {words}" if words else "")

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.returncode is None

    def kill(self) -> None:
        """End the worker without waiting; for owners whose event loop is gone."""
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, self._end_signal)
            os.close(self._handle)
            self._handle = -1

    def discard(self) -> None:
        """`kill`, and remove the control group."""
        self.kill()
        if self._cgroup is not None:
            self._cgroup.remove()

    async def close(self) -> None:
        """End the worker and everything in it, and wait until it is gone."""
        self.kill()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        if self._cgroup is not None:
            await asyncio.to_thread(self._cgroup.remove)
