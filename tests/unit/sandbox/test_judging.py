"""Worker processes: calls, limits, deaths, and what is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.api import CallCrashed, CallFailed, CallTimeout, ConfigError, WorkersUnavailable
from agentrl.sandbox import WorkerProcesses, open_workers

FUNCTIONS = """
import os, signal, time
from pathlib import Path

def add(a, b): return a + b
def echo(value): return value
def pid(): return os.getpid()
def spin():
    while True: pass
def hold_the_interpreter(): return 7 ** 7 ** 9 % 10
def sleep(seconds): time.sleep(seconds); return seconds
def eat(megabytes): return len(bytearray(megabytes << 20))
def eat_in_objects():
    kept = []
    while True: kept.append([0] * 1000)
def recurse(): return recurse()
def die(): os.kill(os.getpid(), signal.SIGKILL)
def leave(): os._exit(0)
def shout(): print('{"value": "forged"}', flush=True); return "true"
def unspeakable(): return object()
def note(path, word):
    with open(path, "a") as file: file.write(word)
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that only this process's path knows."""
    (tmp_path / "judged_functions.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "judged_functions"


def with_workers(use: Callable[[WorkerProcesses], Awaitable[Any]], **options: Any) -> Any:
    async def main() -> Any:
        workers = open_workers(**({"workers": 1} | options))
        try:
            return await use(workers)
        finally:
            await workers.close()

    return asyncio.run(main())


def test_a_call_returns_plain_data(functions: str) -> None:
    value = {"text": "ü\ud800\n", "list": [1, 2.5, None, True], "large": "x" * 3_000_000}

    async def use(workers: WorkerProcesses) -> None:
        assert await workers.call(f"{functions}:add", 2, 3, timeout=5) == 5
        assert await workers.call(f"{functions}:echo", value, timeout=5) == value

    with_workers(use)


def test_a_worker_is_warm_and_serves_both_loops(functions: str) -> None:
    workers = open_workers(workers=1)
    first = asyncio.run(workers.call(f"{functions}:pid", timeout=5))
    second = asyncio.run(workers.call(f"{functions}:pid", timeout=5))
    asyncio.run(workers.close())
    assert first == second != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(first, 0)


@pytest.mark.parametrize("function", ["spin", "hold_the_interpreter"])
def test_a_call_that_does_not_end_is_killed_and_the_next_one_works(functions: str, function: str) -> None:
    async def use(workers: WorkerProcesses) -> float:
        before = await workers.call(f"{functions}:pid", timeout=5)
        began = time.monotonic()
        with pytest.raises(CallTimeout):
            await workers.call(f"{functions}:{function}", timeout=0.3)
        taken = time.monotonic() - began
        assert await workers.call(f"{functions}:pid", timeout=5) != before
        return taken

    assert with_workers(use) < 5


def test_waiting_counts_by_the_wall_clock(functions: str) -> None:
    async def use(workers: WorkerProcesses) -> None:
        assert await workers.call(f"{functions}:sleep", 0.3, timeout=5) == 0.3
        with pytest.raises(CallTimeout, match="wall"):
            await workers.call(f"{functions}:sleep", 60, timeout=0.2)

    with_workers(use)


@pytest.mark.parametrize("function", ["die", "leave", "eat_in_objects"])
def test_a_worker_that_dies_is_replaced(functions: str, function: str) -> None:
    async def use(workers: WorkerProcesses) -> None:
        with pytest.raises(CallCrashed):
            await workers.call(f"{functions}:{function}", timeout=60)
        assert await workers.call(f"{functions}:add", 1, 1, timeout=5) == 2

    with_workers(use, memory_mb=200)


def test_memory_is_bounded(functions: str) -> None:
    async def use(workers: WorkerProcesses) -> None:
        assert await workers.call(f"{functions}:eat", 50, timeout=20) == 50 << 20
        with pytest.raises(CallCrashed):
            await workers.call(f"{functions}:eat", 400, timeout=20)

    with_workers(use, memory_mb=200)


@pytest.mark.parametrize("function", ["recurse", "unspeakable"])
def test_what_the_function_raises_is_told(functions: str, function: str) -> None:
    async def use(workers: WorkerProcesses) -> None:
        before = await workers.call(f"{functions}:pid", timeout=5)
        with pytest.raises(CallFailed, match=r"RecursionError|TypeError"):
            await workers.call(f"{functions}:{function}", timeout=5)
        assert await workers.call(f"{functions}:pid", timeout=5) == before

    with_workers(use)


@pytest.mark.parametrize("function", ["no_such_module_here:f", "judged_functions:missing"])
def test_what_cannot_be_imported_is_our_failure(functions: str, function: str) -> None:
    async def use(workers: WorkerProcesses) -> None:
        with pytest.raises(WorkersUnavailable, match="import"):
            await workers.call(function, timeout=5)
        assert await workers.call(f"{functions}:add", 1, 1, timeout=5) == 2

    with_workers(use)


def test_printed_text_is_no_reply(functions: str) -> None:
    assert with_workers(lambda workers: workers.call(f"{functions}:shout", timeout=5)) == "true"


def test_calls_wait_in_order(functions: str, tmp_path: Path) -> None:
    path = tmp_path / "order"

    async def use(workers: WorkerProcesses) -> None:
        words = "abcdefgh"
        await asyncio.gather(*(workers.call(f"{functions}:note", str(path), word, timeout=5) for word in words))

    with_workers(use)
    assert path.read_text() == "abcdefgh"


def test_no_process_outlives_a_killed_parent(functions: str, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import asyncio, sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from agentrl.sandbox import open_workers\n"
        "async def main():\n"
        "    workers = open_workers(workers=1)\n"
        f"    print(await workers.call('{functions}:pid', timeout=5), flush=True)\n"
        f"    await workers.call('{functions}:sleep', 600, timeout=600)\n"
        "asyncio.run(main())\n"
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    deadline = time.monotonic() + 10
    while alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(child)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie whose reaper is slow does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_closed_pool_and_a_bad_size_are_refused(functions: str) -> None:
    workers = open_workers(workers=1)
    asyncio.run(workers.close())
    with pytest.raises(WorkersUnavailable, match="closed"):
        asyncio.run(workers.call(f"{functions}:add", 1, 1, timeout=5))
    with pytest.raises(ConfigError, match="workers"):
        open_workers(workers=0)
