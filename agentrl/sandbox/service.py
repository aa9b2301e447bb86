"""The sandbox that the rest of agentrl awaits: programs in, executions out."""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from agentrl.api import Call, CallsExecution, Execution, Limits
from agentrl.sandbox import outcome
from agentrl.sandbox.inside import frames, plain
from agentrl.sandbox.pool import Pool
from agentrl.sandbox.worker import Answer, WorkerDied

_LARGE_RESULT = 1 << 18

T = TypeVar("T", Execution, CallsExecution)


class ProcessSandbox:
    """Runs programs in workers of one backend. Usable from one asyncio loop at a time; close it in that loop."""

    def __init__(self, pool: Callable[[], Pool], *, tier: str, cache_entries: int = 4096) -> None:
        self._make_pool = pool
        self._tier = tier
        self._cache = _Cache(cache_entries)
        self._pool: Pool | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def tier(self) -> str:
        return self._tier

    async def run(
        self,
        program: str,
        *,
        stdin: str | bytes = b"",
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        limits = limits or Limits()
        data = stdin.encode("utf-8", "surrogatepass") if isinstance(stdin, str) else stdin
        payload = frames.pack_payload({"program": program}, files or {}, data)
        return await self._submit("run", [payload], limits, lambda answer: outcome.execution(answer, limits))

    async def run_calls(
        self,
        program: str,
        calls: Sequence[Call],
        *,
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> CallsExecution:
        limits = limits or Limits()
        packed = [
            {"function": call.function, "args": plain.dumps(plain.pack([list(call.args), dict(call.kwargs)]))}
            for call in calls
        ]
        payload = frames.pack_payload({"program": program, "calls": packed}, files or {}, b"")
        return await self._submit(
            "calls", [payload], limits, lambda answer: outcome.calls_execution(answer, limits, len(packed))
        )

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and self._loop is asyncio.get_running_loop():
            await pool.close()

    async def _submit(
        self, kind: str, payloads: list[bytes], limits: Limits, read: Callable[[Answer], T]
    ) -> T:
        header = {"kind": kind, "payload": len(payloads[0]), **dataclasses.asdict(limits)}
        key = hashlib.blake2b(repr(header).encode(), digest_size=16)
        for payload in payloads:
            key.update(payload)

        async def judge() -> T:
            try:
                answer = await self._current_pool().submit(header, payloads)
            except WorkerDied as error:
                failed = outcome.ours(str(error))
                return failed if kind == "run" else CallsExecution(load=failed)  # type: ignore[return-value]
            if len(answer.results) > _LARGE_RESULT:
                return await asyncio.to_thread(read, answer)
            return read(answer)

        return await self._cache.get(key.digest(), judge)  # type: ignore[return-value]

    def _current_pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        if self._pool is None or self._loop is not loop:
            # The workers of an earlier loop ended with it: their pipes were closed.
            self._pool, self._loop = self._make_pool(), loop
            self._cache.forget_pending()
        return self._pool


class _Cache:
    """Results by content: equal requests run once, also while the first is still running."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._done: OrderedDict[bytes, Any] = OrderedDict()
        self._pending: dict[bytes, asyncio.Task[Any]] = {}

    async def get(self, key: bytes, make: Callable[[], Awaitable[Any]]) -> Any:
        """The result for `key`, made at most once at a time. A caller that is cancelled leaves the others waiting."""
        if key in self._done:
            self._done.move_to_end(key)
            return self._done[key]
        task = self._pending.get(key)
        if task is None:
            task = asyncio.ensure_future(self._make(key, make))
            self._pending[key] = task
        return await asyncio.shield(task)

    async def _make(self, key: bytes, make: Callable[[], Awaitable[Any]]) -> Any:
        try:
            result = await make()
        finally:
            self._pending.pop(key, None)
        if _repeatable(result):
            self._done[key] = result
            while len(self._done) > self._entries:
                self._done.popitem(last=False)
        return result

    def forget_pending(self) -> None:
        """Drop what a loop that is gone left unfinished."""
        self._pending.clear()


def _repeatable(result: Execution | CallsExecution) -> bool:
    """Whether the same request would surely end the same way: no time-out, no failure of ours, not too large."""
    load = result.load if isinstance(result, CallsExecution) else result
    reasons = {load.reason}
    if isinstance(result, CallsExecution):
        reasons |= {call.reason for call in result.results}
    return load.cause == "program" and "timeout" not in reasons and len(load.stdout) + len(load.stderr) < 1 << 16
