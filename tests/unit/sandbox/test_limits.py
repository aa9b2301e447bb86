"""Every limit, each with a program that stays below it and one that does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentrl.api import Call, Execution, Limits

Run = Callable[..., Any]

BUSY = "import os\n{fork}\nwhile True: pass"
HOLD = (
    "import os, time\nb = bytearray({mb} << 20)\nb[::4096] = b'x' * len(b[::4096])\ntime.sleep({wait})\nprint('held')"
)


def run(in_sandbox: Run, program: str, **limits: Any) -> Execution:
    result: Execution = in_sandbox(lambda sandbox: sandbox.run(program, limits=Limits(**limits)))
    return result


@pytest.mark.parametrize(
    "program",
    [
        "while True: pass",
        "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
        "while True:\n    try:\n        while True: pass\n"
        "    except BaseException: pass",
        "import os\nfor _ in range(3): os.fork()\nwhile True: pass",
        "import os\nwhile True:\n    if os.fork() == 0:\n        for _ in range(10 ** 6): pass\n"
        "        os._exit(0)\n    os.wait()",
    ],
    ids=["loop", "regex", "ignores signals", "forks", "short children"],
)
def test_cpu_time_of_all_processes_together(in_sandbox: Run, program: str) -> None:
    done = run(in_sandbox, program, cpu_seconds=0.5, seconds=20)
    assert (done.reason, done.detail) == ("timeout", "used more than 0.5 s of CPU time")
    assert done.seconds < 10


@pytest.mark.parametrize(
    "program",
    [
        "import time; time.sleep(60)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
        "input()\nimport threading\nl = threading.Lock(); l.acquire(); l.acquire()",
    ],
    ids=["sleeps", "stops itself", "deadlocks"],
)
def test_wall_time(in_sandbox: Run, program: str) -> None:
    done: Execution = in_sandbox(lambda sandbox: sandbox.run(program, stdin="x\n", limits=Limits(seconds=0.5)))
    assert (done.reason, done.detail) == ("timeout", "ran longer than 0.5 s")


def test_memory_below_the_limit_is_fine(in_sandbox: Run) -> None:
    assert run(in_sandbox, HOLD.format(mb=150, wait=0.2), memory_mb=256).stdout == "held\n"


@pytest.mark.parametrize(
    "program",
    [
        HOLD.format(mb=400, wait=2),
        "import os\nfor _ in range(4):\n    if os.fork() == 0:\n        "
        + HOLD.format(mb=100, wait=3).replace("\n", "\n        ")
        + "\n        os._exit(0)\nimport time; time.sleep(3)",
        "x = []\nwhile True: x.append(bytes(1 << 20))",
        "x = bytearray(64 << 30)",
    ],
    ids=["one process", "four processes", "grows", "more than the address space"],
)
def test_memory_of_all_processes_together(in_sandbox: Run, program: str) -> None:
    done = run(in_sandbox, program, memory_mb=256)
    assert done.reason == "memory_limit"


def test_forks_that_share_memory_are_counted_once(in_sandbox: Run) -> None:
    program = (
        HOLD.format(mb=120, wait=0) + "\nfor _ in range(6):\n    if os.fork() == 0: time.sleep(0.5); os._exit(0)\n"
    )
    program += "for _ in range(6): os.wait()"
    assert run(in_sandbox, program, memory_mb=256).reason == "ok"


def test_reserved_address_space_is_not_memory(in_sandbox: Run) -> None:
    assert (
        run(in_sandbox, "import mmap\nm = mmap.mmap(-1, 2 << 30)\nprint(len(m))", memory_mb=256).stdout
        == f"{2 << 30}\n"
    )


def test_processes(in_sandbox: Run) -> None:
    program = """
import os, time
made = 0
try:
    while made < 200:
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        made += 1
except BlockingIOError:
    print('refused')
print(made < 16)
"""
    assert run(in_sandbox, program, processes=16).stdout == "refused\nTrue\n"
    assert run(in_sandbox, "import os\nwhile True: os.fork()", processes=16).reason in ("process_limit", "timeout")


def test_output(in_sandbox: Run) -> None:
    assert run(in_sandbox, "print('x' * 999)", output_bytes=1000).stdout == "x" * 999 + "\n"
    assert run(in_sandbox, "print('x' * 1000)", output_bytes=1000).reason == "output_limit"
    for flood in ("import os\nwhile True: os.write(2, b'y')", "while True: print('x' * 100)"):
        done = run(in_sandbox, flood, output_bytes=5000)
        assert (done.reason, done.detail) == ("output_limit", "printed more than 5000 bytes")
        assert max(len(done.stdout), len(done.stderr)) == 5000


def test_output_of_calls(in_sandbox: Run) -> None:
    program = "def f():\n    while True: print('x' * 100)"
    done = in_sandbox(lambda box: box.run_calls(program, [Call(function="f")], limits=Limits(output_bytes=5000)))
    assert done.results[0].reason == "output_limit"


def test_a_result_can_be_too_large(in_sandbox: Run) -> None:
    done = in_sandbox(lambda sandbox: sandbox.run_calls("def f(): return 'x' * (20 << 20)", [Call(function="f")]))
    assert done.results[0].reason == "output_limit"


def test_file_size_disk_and_inodes(in_sandbox: Run) -> None:
    big = "open('/tmp/big', 'wb').write(bytes({mb} << 20))"
    assert run(in_sandbox, big.format(mb=3), file_mb=4).reason == "ok"
    assert run(in_sandbox, big.format(mb=5), file_mb=4).reason == "file_limit"
    many = "import itertools\nfor n in itertools.count(): open(f'{folder}/{{n}}', 'wb').write(bytes(1 << 20))"
    for folder in ("/tmp", "/w", "/dev/shm"):
        assert run(in_sandbox, many.format(folder=folder), disk_mb=8).reason == "file_limit"
    empty = "import itertools\nfor n in itertools.count(): open(f'/tmp/{n}', 'w').close()"
    assert run(in_sandbox, empty).reason == "file_limit"


def test_open_files(in_sandbox: Run) -> None:
    done = run(in_sandbox, "f = [open('/dev/null') for _ in range(1000)]")
    assert (done.reason, "Too many open files" in done.detail) == ("runtime_error", True)


def test_deep_recursion_in_a_thread_with_a_large_stack(in_sandbox: Run) -> None:
    program = """
import sys, threading
sys.setrecursionlimit(300000)
def f(n): return 0 if n == 0 else 1 + f(n - 1)
threading.stack_size(256 << 20)
t = threading.Thread(target=lambda: print(f(50000)))
t.start(); t.join()
"""
    assert run(in_sandbox, program).stdout == "50000\n"
