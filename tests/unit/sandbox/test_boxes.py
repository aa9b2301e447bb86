"""A program that stays alive between commands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentrl.api import Call, Limits, Sandbox

Run = Callable[..., Any]

COUNTER = """
total = 0
def add(x):
    global total
    total += x
    print('total', total)
    return total
print('loaded')
"""


def test_state_files_and_output(in_sandbox: Run) -> None:
    async def use(sandbox: Sandbox) -> None:
        async with sandbox.open(COUNTER, files={"a.txt": b"given"}) as box:
            assert (box.loaded.reason, box.loaded.stdout) == ("ok", "loaded\n")
            first, second = [await box.call(Call(function="add", args=(x,))) for x in (2, 3)]
            assert (first.value, second.value, second.stdout) == (2, 5, "total 5\n")
            shown = await box.exec("import os\nprint(total, open('a.txt').read(), file=os.sys.stderr)\nbytes_ = b'z'")
            assert (shown.reason, shown.stdout, shown.stderr) == ("ok", "", "5 given\n")
            failed = await box.exec("1 / 0")
            assert (failed.reason, failed.detail) == ("runtime_error", "ZeroDivisionError: division by zero")
            assert failed.stderr.count("File ") == 1
            assert (await box.exec("x = (")).reason == "syntax_error"
            await box.write("new/b.bin", bytes(range(256)))
            assert await box.read("new/b.bin") == bytes(range(256))
            assert await box.read("new/b.bin", limit=3) == b"\0\1\2"
            assert (await box.exec("print(bytes_, sorted(os.listdir('.')))")).stdout == (
                "b'z' ['a.txt', 'new', 'program.py']\n"
            )

    in_sandbox(use)


def test_reading_and_writing_refuse_traps(in_sandbox: Run) -> None:
    async def use(sandbox: Sandbox) -> None:
        async with sandbox.open("import os\nos.mkfifo('pipe')\nos.symlink('/dev/zero', 'zero')") as box:
            for path in ("pipe", "zero", "missing", "."):
                with pytest.raises(OSError, match="cannot read"):
                    await box.read(path)
            with pytest.raises(OSError, match="cannot write"):
                await box.write("/etc/x", b"")

    in_sandbox(use)


def test_each_command_has_its_own_time(in_sandbox: Run) -> None:
    async def use(sandbox: Sandbox) -> None:
        async with sandbox.open("", limits=Limits(cpu_seconds=0.6, seconds=5)) as box:
            for _ in range(3):
                done = await box.exec(
                    "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
                )
                assert done.reason == "ok"
            over = await box.exec("while True: pass")
            assert (over.reason, over.detail) == ("timeout", "used more than 0.6 s of CPU time")
            assert (await box.call(Call(function="f"))).reason == "timeout"

    in_sandbox(use)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("import os; os._exit(0)", "exited_early"),
        ("while True: print('x' * 99)", "output_limit"),
        ("import time; time.sleep(9)", "timeout"),
    ],
)
def test_a_box_that_is_over_says_why(in_sandbox: Run, command: str, reason: str) -> None:
    async def use(sandbox: Sandbox) -> None:
        async with sandbox.open("", limits=Limits(seconds=1, output_bytes=1000)) as box:
            assert (await box.exec(command)).reason == reason
            assert (await box.exec("print(1)")).reason == reason

    in_sandbox(use)


def test_a_program_that_does_not_load_answers_nothing(in_sandbox: Run) -> None:
    async def use(sandbox: Sandbox) -> None:
        async with sandbox.open("raise ValueError('no')") as box:
            assert (box.loaded.reason, box.loaded.detail) == ("runtime_error", "ValueError: no (line 1)")
            assert (await box.exec("1")).reason == "runtime_error"

    in_sandbox(use)


def test_boxes_do_not_block_the_pool_and_do_not_meet(in_sandbox: Run) -> None:
    async def use(sandbox: Sandbox) -> None:
        async with sandbox.open(COUNTER) as one, sandbox.open(COUNTER) as two:
            await one.call(Call(function="add", args=(1,)))
            values = await asyncio.gather(
                one.call(Call(function="add", args=(1,))),
                two.call(Call(function="add", args=(1,))),
                sandbox.run("print(1)"),
            )
            assert (values[0].value, values[1].value, values[2].stdout) == (2, 1, "1\n")

    in_sandbox(use, workers=1)
