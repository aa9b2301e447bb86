"""The owner's side of a box: a loaded program in a worker of its own."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from agentrl.api import Call, CallResult, Execution, Limits
from agentrl.sandbox import outcome
from agentrl.sandbox.inside import frames, plain
from agentrl.sandbox.pool import ANSWER_GRACE, Pool
from agentrl.sandbox.worker import Answer, Worker, WorkerDied

_MOST_COMMANDS = 1000


class WorkerBox:
    """See `agentrl.api.Box`. One command at a time. After a limit was exceeded every command reports that reason."""

    def __init__(self, worker: Worker, limits: Limits, loaded: Execution) -> None:
        self._worker = worker
        self._limits = limits
        self._over: tuple[str, str] | None = None
        self._loaded = loaded
        if loaded.reason != "ok":
            self._over = (loaded.reason, loaded.detail)

    @property
    def loaded(self) -> Execution:
        """How loading the program went."""
        return self._loaded

    async def call(self, call: Call) -> CallResult:
        """Call a function of the program; its state stays for the next command."""
        args = plain.dumps(plain.pack([list(call.args), dict(call.kwargs)]))
        answer = await self._command({"do": "call", "function": call.function, "args": args})
        if isinstance(answer, Execution):
            return CallResult(reason=answer.reason, error=answer.detail)
        result = outcome.call_result(_record(answer))
        printed = answer.stdout.decode("utf-8", "replace")
        return dataclasses.replace(result, stdout=result.stdout + printed)

    async def exec(self, source: str) -> Execution:
        """Execute statements among the program's global names."""
        answer = await self._command({"do": "exec", "source": source})
        if isinstance(answer, Execution):
            return answer
        record = _record(answer)
        reason = outcome.known_reason(record.get("end"))
        return outcome.build(answer, reason, "" if reason == "ok" else str(record.get("error", "")))

    async def write(self, path: str, data: bytes) -> None:
        """Write a file in the program's working directory. Raises OSError when the program's file system refuses."""
        text = base64.b64encode(data).decode()
        source = (
            "import base64 as _b, os as _o\n"
            f"_o.makedirs(_o.path.dirname({path!r}) or '.', exist_ok=True)\n"
            f"with open({path!r}, 'wb') as _f: _f.write(_b.b64decode({text!r}))\ndel _b, _o, _f"
        )
        done = await self.exec(source)
        if done.reason != "ok":
            raise OSError(f"cannot write '{path}' in the box: {done.detail}")

    async def read(self, path: str, *, limit: int = 1 << 20) -> bytes:
        """Read at most `limit` bytes of a regular file. Raises OSError.

        The program's own process reads it, so that no link or device of its making is ever opened out here.
        """
        done = await self.call(Call(function="__read_file__", args=(path, limit)))
        if done.reason != "ok" or not isinstance(done.value, bytes):
            raise OSError(f"cannot read '{path}' in the box: {done.error or 'no bytes came back'}")
        return done.value[:limit]

    async def close(self) -> None:
        """End the program and its worker."""
        await self._worker.close()

    async def _command(self, command: Mapping[str, Any]) -> Answer | Execution:
        if self._over is not None:
            return Execution(reason=self._over[0], detail=self._over[1])
        line = plain.dumps(dict(command)).encode() + b"\n"
        header = {"payloads": [len(line)], **dataclasses.asdict(self._limits)}
        try:
            answer = await self._worker.request(header, [line], patience=self._limits.seconds + ANSWER_GRACE)
        except WorkerDied as error:
            self._over = ("sandbox_unavailable", str(error))
            return outcome.ours(str(error))
        if answer.facts["stopped"] or not answer.results:
            self._over = outcome.ending_of_box(answer, self._limits)
            return outcome.build(answer, *self._over)
        return answer


def _record(answer: Answer) -> dict[str, Any]:
    try:
        record = json.loads(answer.results)
    except (ValueError, RecursionError):
        record = {}
    return record if isinstance(record, dict) else {}


@asynccontextmanager
async def open_box(pool: Pool, program: str, files: Mapping[str, bytes], limits: Limits) -> AsyncIterator[WorkerBox]:
    """Start a worker with `program` loaded; it ends with the context. Raises WorkerDied when none can be started."""
    payload = frames.pack_payload({"program": program}, files, b"")
    header = {"kind": "box", "payloads": [len(payload)], "commands": _MOST_COMMANDS, **dataclasses.asdict(limits)}
    async with pool.own_worker() as worker:
        answer = await worker.request(header, [payload], patience=limits.seconds + ANSWER_GRACE)
        record = _record(answer)
        if record.get("load") == "ok" and not answer.facts["stopped"]:
            loaded = outcome.build(answer, "ok", "")
        elif record:
            loaded = outcome.build(answer, outcome.known_reason(record.get("load")), str(record.get("error", "")))
        else:
            loaded = outcome.build(answer, *outcome.ending_of_box(answer, limits))
        yield WorkerBox(worker, limits, loaded)
