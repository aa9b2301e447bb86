"""Calling code that plugin authors wrote: sync code must not hold up the event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def call(function: Callable[[], Any], timeout: float | None) -> Any:
    """The result of `function()`, awaited if it is async and run in a thread if it is not.

    Raises `TimeoutError` after `timeout` seconds. A thread cannot be killed: sync code that hangs goes on until the
    process ends, but nobody waits for it.
    """
    async with asyncio.timeout(timeout):
        if inspect.iscoroutinefunction(function):  # sees through functools.partial
            return await function()
        result = await asyncio.to_thread(function)
        return await result if inspect.isawaitable(result) else result
