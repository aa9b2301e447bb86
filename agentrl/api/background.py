"""Running an author's code: it must neither hold up the event loop nor end it, and is not waited for past its time."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import inspect
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")

THREADS = 64
"""Calls of synchronous code that run at once; those that were given up do not count."""

in_author_code: contextvars.ContextVar[bool] = contextvars.ContextVar("in_author_code", default=False)
"""True while an author's code runs, also in its thread; the event loop refuses to be stopped from there."""


class AuthorExit(Exception):
    """The code raised SystemExit, KeyboardInterrupt or GeneratorExit, which would end the whole run."""


async def call(function: Callable[[], Any], timeout: float | None) -> Any:
    """The result of `function()`, awaited if it is async and run in a thread of its own if it is not.

    Raises what it raises, `AuthorExit`, or `TimeoutError` after `timeout` seconds. A thread cannot be killed: code that
    hangs goes on until the process ends, but nobody waits for it, and its place is given to another call. Code that
    blocks inside `async def` holds up everything; nothing can be done about it here.
    """
    if not inspect.iscoroutinefunction(function):  # sees through functools.partial
        result = await _in_thread(function, timeout)
        if not inspect.isawaitable(result):
            return result
        awaitable: Awaitable[Any] = result
    else:
        awaitable = _started(function)
    task = asyncio.ensure_future(_guarded(awaitable))
    try:
        done, _ = await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if not done:
        # Not awaited: code that swallows its cancellation would be waited for without end.
        task.cancel()
        _abandoned.add(task)
        asyncio._unregister_task(task)  # else the end of the loop waits for it
        task.add_done_callback(_abandoned.discard)
        raise TimeoutError
    return task.result()


_abandoned: set[asyncio.Future[Any]] = set()


async def _started(function: Callable[[], Any]) -> Any:
    return await function()


async def _guarded(awaitable: Awaitable[Any]) -> Any:
    in_author_code.set(True)  # the task has a context of its own
    try:
        return await awaitable
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise AuthorExit(f"{type(error).__name__}: {error}") from error


_slots: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


async def _in_thread(function: Callable[[], Any], timeout: float | None) -> Any:
    loop = asyncio.get_running_loop()
    slots = _slots.setdefault(loop, asyncio.Semaphore(THREADS))
    async with slots:  # the clock starts when there is a thread
        future: asyncio.Future[Any] = loop.create_future()
        thread = _Thread.take()
        thread.jobs.put((contextvars.copy_context(), function, loop, future))
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            thread.wanted = future.done() and not future.cancelled()
            if thread.wanted:
                thread.give_back()


class _Thread(threading.Thread):
    """A daemon, so that code that hangs does not keep the process from ending."""

    idle: ClassVar[list[_Thread]] = []
    lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self) -> None:
        super().__init__(name="agentrl-author", daemon=True)
        self.jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.wanted = True

    @classmethod
    def take(cls) -> _Thread:
        with cls.lock:
            if cls.idle:
                return cls.idle.pop()
        thread = cls()
        thread.start()
        return thread

    def give_back(self) -> None:
        with self.lock:
            self.idle.append(self)

    def run(self) -> None:
        while self.wanted:
            context, function, loop, future = self.jobs.get()
            result: Any = None
            error: BaseException | None = None
            try:
                result = context.run(_marked, function)
            except (SystemExit, KeyboardInterrupt, GeneratorExit) as ended:
                error = AuthorExit(f"{type(ended).__name__}: {ended}")
                error.__cause__ = ended
            except StopIteration as ended:  # a future cannot hold it
                error = RuntimeError(f"StopIteration: {ended}")
            except BaseException as raised:
                error = raised
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                return  # the loop was closed meanwhile: nobody waits any more
            context = function = loop = future = result = error = None


def _marked(function: Callable[[], Any]) -> Any:
    in_author_code.set(True)
    return function()


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class GuardedLoop(asyncio.SelectorEventLoop):
    """An event loop that an author's code cannot stop under everybody else."""

    def stop(self) -> None:
        """Stop, unless an author's code asks for it: RuntimeError."""
        if in_author_code.get():
            raise RuntimeError("the event loop belongs to agentrl: an environment, tool or verifier must not stop it")
        super().stop()


def run_loop(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a `GuardedLoop`."""
    result: list[T] = []

    async def keep() -> None:
        # Not the task's own result: at its end the runner asks for the signal handler, and that writes the task
        # out as text.
        result.append(await main)

    with _seldom_collected(), asyncio.Runner(loop_factory=GuardedLoop) as runner:
        runner.run(keep())
    return result[0]


@contextlib.contextmanager
def _seldom_collected() -> Iterator[None]:
    """Spare the garbage collector what lives long: the modules of torch and transformers, and rollouts in flight.

    Its walks over them took a sixth of the time that thousands of rollouts need.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
