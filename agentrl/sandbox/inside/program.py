"""Runs an untrusted program, in a process that holds nothing but the program and its input.

Everything here can be read, changed and forged by the program; it is trusted with nothing. What it writes to the
result pipe (one JSON object a line) is parsed as data by the other side:

    {"load": "ok"}                            or {"load": reason, "error": text}
    {"place": 0, "call": "ok", "value": packed text, "out": text}
                                              or {"place": 0, "call": reason, "error": text, "out": text}
    {"end": "ok" | reason, "error": text}     how a script ended
"""

from __future__ import annotations

import atexit
import contextlib
import io
import linecache
import os
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable
from typing import Any

from agentrl.sandbox.inside import plain
from agentrl.sandbox.inside.isolate import HOME

FILE = f"{HOME}/program.py"
_DEAR_LOAD = 0.02  # seconds of CPU
_MOST_CALL_OUTPUT = 1 << 16
_MOST_ERROR = 2000


class Results:
    """The program's end of the result pipe."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._write = os.write  # the program may replace os.write
        self._dumps = plain.dumps

    def send(self, record: dict[str, Any]) -> None:
        """Write one record. Raises OSError when the program closed the pipe."""
        data = self._dumps(record).encode() + b"\n"
        while data:
            data = data[self._write(self._descriptor, data) :]


class OutputLimit(BaseException):
    """A call printed more than it may."""


class Captured(io.BufferedIOBase):
    """What one call prints, with a bound."""

    limit = 1 << 20

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self.parts.append(bytes(data))
        self.size += len(self.parts[-1])
        if self.size > self.limit:
            raise OutputLimit
        return len(self.parts[-1])


def describe_error(error: BaseException) -> tuple[str, str]:
    """The reason word and a one-line text for an error that a program let through."""
    reason = "runtime_error"
    if isinstance(error, MemoryError):
        reason = "memory_limit"
    elif isinstance(error, SystemExit):
        reason = "exited_early"
    elif isinstance(error, OutputLimit):
        return "output_limit", "the call printed too much"
    elif isinstance(error, OSError) and error.errno in (27, 28, 122):  # EFBIG, ENOSPC, EDQUOT
        reason = "file_limit"
    elif isinstance(error, BlockingIOError) or "can't start new thread" in _text_of(error):
        reason = "process_limit"
    line = _line_of(error)
    place = f" (line {line})" if line is not None else ""
    return reason, (_text_of(error) + place)[:_MOST_ERROR]


def _text_of(error: BaseException) -> str:
    try:
        lines = traceback.format_exception_only(type(error), error)
        return lines[-1].strip().encode("utf-8", "backslashreplace").decode()
    except BaseException:
        # The error's own __str__ is the program's code.
        return type(error).__name__


def _line_of(error: BaseException) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == FILE:
        return error.lineno
    line = None
    walk = error.__traceback__
    while walk is not None:
        if walk.tb_frame.f_code.co_filename == FILE:
            line = walk.tb_lineno
        walk = walk.tb_next
    return line


class Program:
    """A program's source, compiled once; `load` runs it as a new module."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.code: types.CodeType | None = None
        self.error: tuple[str, str] | None = None
        try:
            # A byte order mark is no part of a program; Python drops it from files, not from text.
            self.code = compile(source.removeprefix("\ufeff"), FILE, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as error:
            self.error = "syntax_error", describe_error(error)[1]
            self.exception: BaseException = error

    def load(self, name: str) -> types.ModuleType:
        """Run the program as module `name`; whatever it raises comes through."""
        module = types.ModuleType(name)
        module.__file__ = FILE
        sys.modules[name] = module
        assert self.code is not None
        exec(self.code, module.__dict__)
        return module


def find_function(module: types.ModuleType, name: str) -> Callable[..., object]:
    """The function `name`, dotted or not, or the method of that name of a fresh `Solution()`. Raises NameError."""
    found: Any = module
    for part in name.split("."):
        if part.endswith("()"):
            found = getattr(found, part[:-2])()
        elif hasattr(found, part):
            found = getattr(found, part)
        elif found is module and hasattr(getattr(module, "Solution", None), part):
            found = getattr(module.Solution(), part)
        else:
            raise NameError(f"the program defines no '{name}'")
    if not callable(found):
        raise NameError(f"'{name}' of the program is no function")
    return found  # type: ignore[no-any-return]


def call_function(module: types.ModuleType, name: str, args: list[Any], kwargs: dict[str, Any]) -> object:
    """Call a function of the program; a coroutine is awaited."""
    return await_if_needed(find_function(module, name)(*args, **kwargs))


def await_if_needed(value: object) -> object:
    """The result of a coroutine, or the value itself."""
    if isinstance(value, types.CoroutineType):
        import asyncio

        return asyncio.run(value)
    return value


def run_script(source: str, results: Results) -> int:
    """Run the program as `__main__` and end as Python would; returns the exit status."""
    program = Program(source)
    if program.code is None:
        print_error(program.exception, skip=1)
        results.send({"end": "syntax_error", "error": program.error[1] if program.error else ""})
        return 1
    reason, text, status = "ok", "", 0
    try:
        program.load("__main__")
    except SystemExit as error:
        status = _exit_status(error)
    except BaseException as error:
        reason, text = describe_error(error)
        status = 1
        print_error(error, skip=2)
    status = _finish() or status
    if reason != "ok":
        # A program that closed this pipe has still ended as its exit status says.
        with contextlib.suppress(OSError):
            results.send({"end": reason, "error": text})
    return status


def serve_calls(source: str, calls: list[dict[str, Any]], results: Results, output_limit: int) -> int:
    """Load the program and make the calls; every call starts from the state just after loading.

    A program that loads quickly is run anew before each call; one that loads slowly is forked for each call, unless
    it has started threads, which a fork would not keep.
    """
    program = Program(source)
    before = time.process_time()
    module = load_or_report(program, results)
    if module is None:
        return 1
    dear = time.process_time() - before > _DEAR_LOAD and threading.active_count() == 1
    results.send({"load": "ok"})
    Captured.limit = output_limit
    for place, call in enumerate(calls):
        if dear:
            child = os.fork()
            if child == 0:
                make_call(module, call | {"place": place}, results)
                os._exit(0)
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if code < 0:
                _die_like(-code)
            if code != 0:
                return code
        else:
            fresh = program.load("program") if place else module
            make_call(fresh, call | {"place": place}, results)
    return 0


def _die_like(number: int) -> None:
    """End this process by a signal that ended a part of it."""
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def load_or_report(program: Program, results: Results) -> types.ModuleType | None:
    """Load the program as a module; None after an error, of syntax too, which has then been reported."""
    if program.error is not None:
        results.send({"load": program.error[0], "error": program.error[1]})
        return None
    try:
        return program.load("program")
    except BaseException as error:
        reason, text = describe_error(error)
        print_error(error, skip=2)
        results.send({"load": reason, "error": text})
        return None


def make_call(
    module: types.ModuleType, call: dict[str, Any], results: Results, flush: Callable[[], None] | None = None
) -> None:
    """Make one call and send its record; `flush` runs just before it is sent."""
    captured = Captured()
    outside, sys.stdout = sys.stdout, io.TextIOWrapper(captured, "utf-8", "surrogateescape", write_through=True)
    record: dict[str, Any]
    try:
        arguments = plain.loads(call["args"])
        value = call_function(module, call["function"], arguments[0], arguments[1])
        record = {"call": "ok", "value": plain.dumps(plain.pack(value))}
    except BaseException as error:
        reason, text = describe_error(error)
        if isinstance(error, plain.NotPlain):
            reason, text = "wrong_answer", f"the call returned {error}"
        record = {"call": reason, "error": text}
    finally:
        sys.stdout = outside
    record["out"] = b"".join(captured.parts)[:_MOST_CALL_OUTPUT].decode("utf-8", "replace")
    if flush is not None:
        flush()
    results.send(record | {"place": call.get("place")})


def _exit_status(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def print_error(error: BaseException, skip: int) -> None:
    """Print a traceback as Python would, without our own `skip` frames at its head."""
    shown = error.__traceback__
    for _ in range(skip):
        shown = shown.tb_next if shown is not None else None
    linecache.checkcache()
    try:
        sys.excepthook(type(error), error.with_traceback(shown), shown)
    except BaseException as second:
        os.write(2, f"{type(second).__name__} while printing {type(error).__name__}\n".encode())


def _finish() -> int:
    """What the interpreter does at its end: threads, exit functions, buffers. Returns 0, or the status of a failure."""
    status = 0
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        # Frees the program's objects, so that files it never closed are flushed.
        main = sys.modules.get("__main__")
        if main is not None:
            main.__dict__.clear()
    except BaseException as error:
        print_error(error, skip=1)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except BaseException:
            # Python's own status for output that cannot be written.
            status = 120
    return status
