"""A sandbox for one test: `in_sandbox(coroutine function)` runs it in a loop of its own and closes everything."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from agentrl.api import Sandbox
from agentrl.sandbox import open_sandbox

T = TypeVar("T")
BACKEND = os.environ.get("AGENTRL_TEST_BACKEND", "bwrap")
"""tests/real/test_docker.py runs part of these tests once more, in containers."""


@pytest.fixture
def in_sandbox() -> Callable[..., Any]:
    def run(use: Callable[[Sandbox], Awaitable[T]], **options: Any) -> T:
        async def main() -> T:
            sandbox = open_sandbox(**({"workers": 1, "backend": BACKEND} | options))
            try:
                return await use(sandbox)
            finally:
                await sandbox.close()

        return asyncio.run(main())

    return run
