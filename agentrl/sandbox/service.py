"""The sandbox that the rest of agentrl awaits: programs in, executions out."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from agentrl.api import Box, Call, CallsExecution, Execution, Limits, SandboxUnavailable
from agentrl.sandbox import outcome
from agentrl.sandbox.box import open_box
from agentrl.sandbox.inside import frames, plain
from agentrl.sandbox.pool import Pool
from agentrl.sandbox.worker import Answer, WorkerDied

_LARGE_RESULT, _LARGEST_KEPT = 1 << 18, 1 << 16  # bytes

T = TypeVar("T", Execution, CallsExecution)


class ProcessSandbox:
    """Runs programs in workers of one backend. Usable from one asyncio loop at a time; close it in that loop."""

    def __init__(self, pool: Callable[[], Pool], *, tier: str, cache_entries: int = 1024) -> None:
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

    async def run_tests(
        self,
        program: str,
        tests: str,
        *,
        entry_point: str | None = None,
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        limits = limits or Limits()
        payloads = [frames.pack_payload({"program": program}, files or {}, b"")]
        meta = {"tests": tests, "entry_point": entry_point}
        # The token must be new for every run, and so stays out of what makes two requests equal.
        token = secrets.token_hex(16)
        payloads.append(frames.pack_payload(meta | {"token": token}, {}, b""))
        return await self._submit(
            "tests", payloads, limits, lambda answer: outcome.tests_execution(answer, limits, token), same=repr(meta)
        )

    @asynccontextmanager
    async def open(
        self, program: str, *, files: Mapping[str, bytes] | None = None, limits: Limits | None = None
    ) -> AsyncIterator[Box]:
        limits = limits or Limits()
        try:
            async with open_box(self._current_pool(), program, files or {}, limits) as box:
                yield box
        except WorkerDied as error:
            raise SandboxUnavailable(str(error)) from error

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and self._loop is asyncio.get_running_loop():
            await pool.close()
        elif pool is not None:
            pool.abandon()

    async def _submit(
        self, kind: str, payloads: list[bytes], limits: Limits, read: Callable[[Answer], T], *, same: str = ""
    ) -> T:
        """Run a request. Requests are equal when kind, limits, the program's payload and `same` are."""
        header = {"kind": kind, "payloads": [len(payload) for payload in payloads], **dataclasses.asdict(limits)}
        key = hashlib.blake2b(repr((header, same)).encode("utf-8", "surrogatepass"), digest_size=16)
        key.update(payloads[0])

        async def judge() -> _Entry:
            answer = await self._current_pool().submit(header, payloads)
            size = len(answer.stdout) + len(answer.stderr) + len(answer.results)
            keep = size < _LARGEST_KEPT and _repeatable(read(answer))
            return _Entry(functools.partial(read, answer), large=size > _LARGE_RESULT, keep=keep)

        try:
            entry = await self._cache.get(key.digest(), judge)
        except WorkerDied as error:
            failed = outcome.ours(str(error))
            return CallsExecution(load=failed) if kind == "calls" else failed  # type: ignore[return-value]
        result: T = await asyncio.to_thread(entry.read) if entry.large else entry.read()
        return result

    def _current_pool(self) -> Pool:
        loop = asyncio.get_running_loop()
        if self._pool is None or self._loop is not loop:
            if self._pool is not None:
                self._pool.abandon()
            self._pool, self._loop = self._make_pool(), loop
            self._cache.forget_pending()
        return self._pool


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    """A finished run. `read` builds its result anew for each caller, so that none sees what another did to a value."""

    read: Callable[[], Any]
    large: bool
    keep: bool


class _Cache:
    """Runs by content: equal requests run once, also while the first is still running."""

    def __init__(self, entries: int) -> None:
        self._entries = entries
        self._done: OrderedDict[bytes, _Entry] = OrderedDict()
        self._pending: dict[bytes, asyncio.Task[_Entry]] = {}

    async def get(self, key: bytes, make: Callable[[], Awaitable[_Entry]]) -> _Entry:
        """The entry for `key`, made at most once at a time. A caller that is cancelled leaves the others waiting."""
        if key in self._done:
            self._done.move_to_end(key)
            return self._done[key]
        task = self._pending.get(key)
        if task is None:
            task = asyncio.ensure_future(self._make(key, make))
            self._pending[key] = task
        return await asyncio.shield(task)

    async def _make(self, key: bytes, make: Callable[[], Awaitable[_Entry]]) -> _Entry:
        try:
            entry = await make()
        finally:
            self._pending.pop(key, None)
        if entry.keep:
            self._done[key] = entry
            while len(self._done) > self._entries:
                self._done.popitem(last=False)
        return entry

    def forget_pending(self) -> None:
        """Drop what a loop that is gone left unfinished."""
        self._pending.clear()


def _repeatable(result: Execution | CallsExecution) -> bool:
    """Whether the same request would surely end the same way: no time-out and no failure of ours."""
    load = result.load if isinstance(result, CallsExecution) else result
    reasons = {load.reason}
    if isinstance(result, CallsExecution):
        reasons |= {call.reason for call in result.results}
    return load.cause == "program" and "timeout" not in reasons
