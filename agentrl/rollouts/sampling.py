"""How rollouts share an engine: a turn barrier (deterministic), or whatever is ready (throughput)."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

from agentrl.api import Completion
from agentrl.rollouts.engines.base import Engine, SampleRequest

Key = tuple[int, ...]
"""Place of a request in the fixed order: (task's place, index within the group)."""


class Sampler(Protocol):
    """Completes one rollout's turn; batches with other rollouts behind the scenes."""

    def enter(self) -> None:
        """A rollout slot opens: its requests are waited for."""
        ...

    def leave(self) -> None:
        """A rollout slot closes for good."""
        ...

    async def complete(self, key: Key, request: SampleRequest) -> Completion: ...


class _Waiting(ABC):
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.requests: dict[Key, tuple[SampleRequest, asyncio.Future[Completion]]] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    async def wait(self, key: Key, request: SampleRequest) -> Completion:
        if key in self.requests:
            raise RuntimeError(f"rollout {key} already waits for a completion")
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self.requests[key] = (request, future)
        self.wake()
        try:
            return await future
        finally:
            self.requests.pop(key, None)  # a rollout that timed out must not hold the others up

    @abstractmethod
    def wake(self) -> None:
        """Something changed: start sampling if it is time to."""

    def take(self) -> list[tuple[SampleRequest, asyncio.Future[Completion]]]:
        taken = [self.requests[key] for key in sorted(self.requests)]
        self.requests.clear()
        return taken

    async def run(self, taken: Sequence[tuple[SampleRequest, asyncio.Future[Completion]]]) -> None:
        try:
            completions = await self.engine.generate([request for request, _ in taken])
        except Exception as error:  # handed to every rollout that waits; each records it as its own engine error
            for _, future in taken:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), completion in zip(taken, completions, strict=True):
            if not future.done():
                future.set_result(completion)

    def start(self, taken: Sequence[tuple[SampleRequest, asyncio.Future[Completion]]]) -> None:
        task = asyncio.get_running_loop().create_task(self.run(taken))
        self.tasks.add(task)  # the loop keeps only weak references
        task.add_done_callback(self.tasks.discard)


class TurnBarrier(_Waiting):
    """Samples when every open slot waits, in fixed order: who shares a batch never depends on who was faster."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.slots = 0

    def enter(self) -> None:
        self.slots += 1

    def leave(self) -> None:
        self.slots -= 1
        self.wake()

    async def complete(self, key: Key, request: SampleRequest) -> Completion:
        return await self.wait(key, request)

    def wake(self) -> None:
        if self.requests and len(self.requests) == self.slots:
            self.start(self.take())


class Throughput(_Waiting):
    """Samples whatever waits as soon as the engine is free."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.busy = False

    def enter(self) -> None:
        """Nobody is waited for."""

    def leave(self) -> None:
        """Nobody is waited for."""

    async def complete(self, key: Key, request: SampleRequest) -> Completion:
        return await self.wait(key, request)

    def wake(self) -> None:
        if self.requests and not self.busy:
            self.busy = True
            asyncio.get_running_loop().call_soon(self._launch)  # let requests of the same moment join

    def _launch(self) -> None:
        self.start(self.take())

    async def run(self, taken: Sequence[tuple[SampleRequest, asyncio.Future[Completion]]]) -> None:
        await super().run(taken)
        self.busy = False
        self.wake()


SCHEDULES: dict[str, Callable[[Engine], Sampler]] = {"deterministic": TurnBarrier, "throughput": Throughput}
"""`rollout.schedule` to sampler class."""
