"""Services that agentrl wires once and hands to plugins; plugins start none themselves.

A plugin names what it needs in `needs`; `Services` hands out exactly that and says what is missing otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Protocol

from agentrl.api.errors import AgentRLError
from agentrl.api.types import JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one program may use. The verdict goes by CPU time; wall time is a wider safety net.

    Example: `Limits(cpu_seconds=2.0, memory_mb=256)`.
    """

    cpu_seconds: float = 4.0
    seconds: float = 12.0
    memory_mb: int = 512
    processes: int = 64
    output_bytes: int = 1 << 20
    file_mb: int = 16
    disk_mb: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """How one program run ended.

    reason: `ok` (ran to its end with exit status 0), or a word of `agentrl.api.REASONS` (`syntax_error`,
    `runtime_error`, `exited_early`, `timeout`, `memory_limit`, `output_limit`, `process_limit`, `file_limit`,
    `wrong_answer` from `run_tests`; `sandbox_unavailable`, `verifier_error`). cause: `program`, or `ours` when our own
    machinery or the tests' text failed, and then nothing may be concluded about the program. stdout, stderr: UTF-8
    with replacement, cut at the output limit.

    Example: `Execution(stdout="8\\n", stderr="", exit_code=0, reason="ok", cpu_seconds=0.01, seconds=0.02)`.
    """

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    signal: int | None = None
    reason: str = "ok"
    cause: str = "program"
    detail: str = ""
    cpu_seconds: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a function that a program defines. `function` may be dotted (`Solution().solve` is found as well).

    Example: `Call(function="f", args=(2, 3))`.
    """

    function: str
    args: Sequence[JSON] = ()
    kwargs: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """How one call ended: a value as plain data, or why there is none.

    value: meaningful when `reason` is `ok`; reduced to exact plain types on the program's side and rebuilt here, so
    no method of the program's classes ever runs in this process. Sets come as `frozenset`, tuples as `tuple`.
    reason: `ok`, `runtime_error`, `exited_early`, `timeout`, ... as in `Execution`. error: last line of the
    traceback (`ZeroDivisionError: division by zero`), with the line of the program it came from when known.

    Example: `CallResult(value=8)` or `CallResult(reason="runtime_error", error="NameError: name 'x' is not defined")`.
    """

    value: object = None
    reason: str = "ok"
    error: str = ""
    stdout: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsExecution:
    """A program that was loaded and called: how loading went, and one result for each call made.

    Every call starts from the program's state just after loading. `results` is shorter than the calls asked for when
    the program ended early; `load.reason` or the last result says why.

    Example: `CallsExecution(load=Execution(), results=(CallResult(value=8),))`.
    """

    load: Execution
    results: tuple[CallResult, ...] = ()


class Box(Protocol):
    """A loaded program that stays alive, with its state, between commands; one command at a time.

    A program that did not load, or that a limit ended, answers every further command with that reason.
    """

    @property
    def loaded(self) -> Execution:
        """How loading the program went."""
        ...

    async def call(self, call: Call) -> CallResult:
        """Call one of the program's functions."""
        ...

    async def exec(self, source: str) -> Execution:
        """Execute statements among the program's global names."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file, relative to the program's working directory. Raises OSError."""
        ...

    async def read(self, path: str, *, limit: int = 1 << 20) -> bytes:
        """Read the first `limit` bytes of a regular file. Raises OSError."""
        ...

    async def close(self) -> None:
        """End the program; leaving the context of `Sandbox.open` does it as well."""
        ...


class Sandbox(Protocol):
    """Runs untrusted programs in isolation; safe to use from many rollouts at once."""

    @property
    def tier(self) -> str:
        """Name of the isolation in force, such as `bwrap+cgroup` or `docker`; written into every verdict file."""
        ...

    async def run(
        self,
        program: str,
        *,
        stdin: str | bytes = b"",
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        """Run `program` as a script (`__name__ == "__main__"`) with `stdin`; `files` lie in its working directory."""
        ...

    async def run_calls(
        self,
        program: str,
        calls: Sequence[Call],
        *,
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> CallsExecution:
        """Load `program` as a module in a fresh sandbox and make `calls` one after the other.

        Every call starts from the state just after loading: no call sees what an earlier one left in the module.
        """
        ...

    async def run_tests(
        self,
        program: str,
        tests: str,
        *,
        entry_point: str | None = None,
        files: Mapping[str, bytes] | None = None,
        limits: Limits | None = None,
    ) -> Execution:
        """Run trusted assert-style `tests` against `program`: each in its own sandbox, plain data between them.

        `tests` may name `candidate` (the entry point), the entry point itself, and what else the program defines; a
        `check(candidate)`, pytest functions and unittest classes that they define and do not call are called.
        """
        ...

    def open(
        self, program: str, *, files: Mapping[str, bytes] | None = None, limits: Limits | None = None
    ) -> AbstractAsyncContextManager[Box]:
        """Load `program` and keep it alive for interactive use, in a process of its own.

        Raises SandboxUnavailable when none can be started.
        """
        ...

    async def close(self) -> None: ...


class Workers(Protocol):
    """Killable trusted worker processes for judging that may hang or eat memory."""

    async def call(self, function: str, *args: JSON, timeout: float) -> JSON:
        """Call `module:function` with plain data in a worker and return the plain data that it returns.

        timeout: seconds of processor time; twice as much wall time is the safety net of a loaded machine. Calls wait
        in order for a free worker, and importing the module does not count. Raises CallTimeout (the worker was
        killed), CallCrashed (it died: out of memory, a crash), CallFailed (the function raised) and
        WorkersUnavailable (no worker, or no such function); whatever happened, the next call has a fresh worker.
        """
        ...


class Scorer(Protocol):
    """A model that scores token sequences (reward model, process reward model)."""

    async def score(self, conversations: Sequence[JSON]) -> Sequence[float]: ...


class Judge(Protocol):
    """A model behind an OpenAI-compatible endpoint that judges; safe to use from many rollouts at once."""

    @property
    def temperature(self) -> float:
        """Sampling temperature of the replies; at 0, another seed says nothing new."""
        ...

    async def ask(
        self, instructions: str, content: str, *, schema: Mapping[str, JSON], seed: int = 0
    ) -> Mapping[str, JSON]:
        """The model's reply to `content` under the system message `instructions`: an object that `schema` accepts.

        schema: JSON schema of type object; the endpoint is asked to keep to it, and the reply is checked. seed: tells
        questions apart that are asked several times. Failed connections, overload and replies that do not fit are
        tried again. Raises JudgeUnavailable, which makes a verdict `judge_unavailable` when a verifier lets it pass.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The services a plugin asked for in `needs`; asking for another one is an error that says so."""

    available: Mapping[str, object] = field(default_factory=dict)

    def _get(self, name: str) -> object:
        if name not in self.available:
            raise AgentRLError(f"the service '{name}' was not handed out: add it to `needs` of the plugin's class")
        return self.available[name]

    @property
    def sandbox(self) -> Sandbox:
        return self._get("sandbox")  # type: ignore[return-value]

    @property
    def workers(self) -> Workers:
        return self._get("workers")  # type: ignore[return-value]

    @property
    def scorer(self) -> Scorer:
        return self._get("scorer")  # type: ignore[return-value]

    @property
    def judge(self) -> Judge:
        return self._get("judge")  # type: ignore[return-value]
