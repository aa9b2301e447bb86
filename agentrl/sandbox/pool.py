"""A pool of workers in one asyncio loop: queue, retry on our own failures, and runs that must be alone."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from agentrl.api import SandboxUnavailable
from agentrl.sandbox import cgroup
from agentrl.sandbox.worker import Answer, Worker, WorkerDied

ANSWER_GRACE = 15.0  # seconds beyond the wall limit that a worker has for its own work on a loaded machine
_DELAYED_SHARE = 0.2
_MOST_OWN = 64


class Pool:
    """At most `size` workers, started when they are needed; callers wait in order for a free one."""

    def __init__(
        self,
        command: Callable[[int, Sequence[str]], list[str]],
        size: int,
        *,
        use_cgroup: bool,
        end_signal: int = signal.SIGKILL,
    ) -> None:
        self._command = command
        self._end_signal = end_signal
        self._size = size
        self._use_cgroup = use_cgroup
        self._started = 0
        self._idle: list[Worker] = []
        self._places = asyncio.Semaphore(size)
        self._own_places = asyncio.Semaphore(_MOST_OWN)
        self._alone = asyncio.Lock()
        self._all: set[Worker] = set()
        self._closed = False

    async def submit(self, header: Mapping[str, Any], payloads: Sequence[bytes]) -> Answer:
        """Run a request; a worker that dies is replaced and the request tried once more. Raises WorkerDied.

        A wall time-out of a program that mostly waited for a processor says more about this machine's load than
        about the program: it is run once more while nothing else runs here.
        """
        async with self._places:
            answer = await self._attempt(header, payloads)
        if answer.facts["stopped"] == "wall" and _was_starved(answer, header):
            async with self._alone, AsyncExitStack() as all_places:
                for _ in range(self._size):
                    await all_places.enter_async_context(self._places)
                answer = await self._attempt(header, payloads)
        return answer

    @asynccontextmanager
    async def own_worker(self) -> AsyncIterator[Worker]:
        """A worker of the caller's own, ended with the context; at most `_MOST_OWN` at once. Raises WorkerDied."""
        async with self._own_places:
            worker = await self._start()
            try:
                yield worker
            finally:
                self._all.discard(worker)
                await worker.close()

    async def close(self) -> None:
        """End all workers."""
        self._closed = True
        for worker in list(self._all):
            await worker.close()
        self._all.clear()
        self._idle.clear()

    def abandon(self) -> None:
        """End all workers from outside their event loop, which is gone."""
        self._closed = True
        for worker in self._all:
            worker.discard()

    async def _attempt(self, header: Mapping[str, Any], payloads: Sequence[bytes]) -> Answer:
        try:
            return await self._once(header, payloads)
        except WorkerDied:
            return await self._once(header, payloads)

    async def _once(self, header: Mapping[str, Any], payloads: Sequence[bytes]) -> Answer:
        worker = self._idle.pop() if self._idle else await self._start()
        usable = False
        try:
            answer = await worker.request(header, payloads, patience=float(header["seconds"]) + ANSWER_GRACE)
            if "broken" in answer.facts:
                raise WorkerDied(f"the isolation of a program could not be set up: {answer.facts['broken']}")
            usable = worker.alive and not answer.facts.get("died")
            return answer
        finally:
            if usable and not self._closed:
                self._idle.append(worker)
            else:
                self._all.discard(worker)
                await worker.close()

    async def _start(self) -> Worker:
        if self._closed:
            raise WorkerDied("the sandbox was closed")
        number = self._started
        self._started += 1
        group = await asyncio.to_thread(cgroup.make, number) if self._use_cgroup else None
        try:
            command = await asyncio.to_thread(self._command, number, group.folders if group else ())
            worker = await Worker.start(command, group, self._end_signal)
        except BaseException as error:
            if group is not None:
                group.remove()
            if isinstance(error, OSError | SandboxUnavailable):
                raise WorkerDied(f"no sandbox worker could be started: {error}") from error
            raise
        self._all.add(worker)
        if self._closed:
            # Closed while this one started: nobody else would end it.
            await worker.close()
        return worker


def _was_starved(answer: Answer, header: Mapping[str, Any]) -> bool:
    delayed = answer.facts.get("delayed")
    if delayed is None:
        return os.getloadavg()[0] > (os.cpu_count() or 1)
    return float(delayed) > _DELAYED_SHARE * float(header["seconds"])
