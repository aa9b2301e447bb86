"""An author's code runs beside the loop: it cannot stop it, end the process, or be waited for past its time."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from agentrl.api.background import THREADS, AuthorExit, call, run_loop


def test_results_and_errors_of_both_kinds() -> None:
    async def later() -> int:
        await asyncio.sleep(0)
        return 2

    async def fail() -> None:
        raise ValueError("async")

    def stop() -> None:
        raise StopIteration

    async def scenario() -> None:
        assert await call(lambda: 1, 5) == 1
        assert await call(later, 5) == 2
        assert await call(lambda: later(), None) == 2  # a sync function that returns an awaitable
        with pytest.raises(ValueError, match="async"):
            await call(fail, 5)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await call(stop, 5)

    run_loop(scenario())


@pytest.mark.parametrize("ending", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_code_that_wants_to_end_the_process_ends_its_own_call(ending: type[BaseException]) -> None:
    def sync() -> None:
        raise ending("bye")

    async def asynchronous() -> None:
        raise ending("bye")

    async def scenario() -> None:
        for function in (sync, asynchronous):
            with pytest.raises(AuthorExit, match=f"{ending.__name__}: bye"):
                await call(function, 5)

    run_loop(scenario())


def test_the_loop_cannot_be_stopped_from_author_code() -> None:
    async def stop() -> None:
        asyncio.get_running_loop().stop()

    async def scenario() -> str:
        loop = asyncio.get_running_loop()
        for function in (stop, loop.stop):
            with pytest.raises(RuntimeError, match="belongs to agentrl"):
                await call(function, 5)
        with pytest.raises(RuntimeError):
            await call(loop.close, 5)
        return "went on"

    assert run_loop(scenario()) == "went on"


def test_code_that_swallows_its_cancellation_is_not_waited_for() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(0.5)
            except asyncio.CancelledError:
                continue

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            await call(stubborn, 0.05)

    start = time.monotonic()
    run_loop(scenario())  # neither does the end of the loop
    assert time.monotonic() - start < 10


def test_hanging_threads_do_not_take_the_places_of_others() -> None:
    release = threading.Event()

    async def scenario() -> list[Any]:
        hanging = [asyncio.ensure_future(call(release.wait, 0.2)) for _ in range(THREADS)]
        given_up = await asyncio.gather(*hanging, return_exceptions=True)
        assert all(isinstance(one, TimeoutError) for one in given_up)
        return await asyncio.gather(*(call(lambda i=i: i, 5) for i in range(2 * THREADS)))

    try:
        assert run_loop(scenario()) == list(range(2 * THREADS))
    finally:
        release.set()


def test_threads_are_used_again() -> None:
    async def scenario() -> set[int]:
        return {await call(threading.get_ident, 5) for _ in range(20)}

    assert len(run_loop(scenario())) == 1
