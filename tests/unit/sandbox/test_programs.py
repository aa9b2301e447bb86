"""Scripts and calls: what a caller learns of a program, whatever the program does to its own process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from agentrl.api import Call, CallsExecution, Execution, Limits, Sandbox

Run = Callable[..., Any]


def run(in_sandbox: Run, program: str, **options: Any) -> Execution:
    result: Execution = in_sandbox(lambda sandbox: sandbox.run(program, **options))
    return result


def calls(in_sandbox: Run, program: str, *asked: Call, **options: Any) -> CallsExecution:
    result: CallsExecution = in_sandbox(lambda sandbox: sandbox.run_calls(program, asked, **options))
    return result


def test_a_script_runs_as_python_would_run_it(in_sandbox: Run) -> None:
    program = "\n".join(
        [
            "import sys, threading, atexit",
            "if __name__ == '__main__':",
            "    atexit.register(print, 'last')",
            "    threading.Thread(target=lambda: print(sys.stdin.readline().strip())).start()",
            "    open('out.txt', 'w').write('unclosed')",
            "    sys.stderr.write('to stderr')",
            "    print(open('data.txt').read(), __file__, sys.argv)",
        ]
    )
    done = run(in_sandbox, program, stdin="first\nsecond\n", files={"data.txt": b"from a file"})
    assert (done.reason, done.exit_code, done.stderr) == ("ok", 0, "to stderr")
    assert sorted(done.stdout.splitlines()[:-1]) == ["first", "from a file /w/program.py ['/w/program.py']"]
    assert done.stdout.endswith("last\n")
    assert 0 < done.cpu_seconds < done.seconds + 1


def test_files_that_a_program_never_closed_are_flushed(in_sandbox: Run) -> None:
    assert run(in_sandbox, "f = open(1, 'w', closefd=False)\nf.write('kept')\n").stdout == "kept"


@pytest.mark.parametrize(
    ("program", "reason", "code", "detail"),
    [
        ("x = (", "syntax_error", 1, "'(' was never closed (line 1)"),
        ("a\0b", "syntax_error", 1, "null bytes"),
        ("'\ud800'", "syntax_error", 1, "surrogate"),
        ("def f():\n    return 1 / 0\nf()", "runtime_error", 1, "ZeroDivisionError: division by zero (line 2)"),
        ("import sys; sys.exit(3)", "runtime_error", 3, "exit status 3"),
        ("import sys; sys.exit('words')", "runtime_error", 1, "exit status 1"),
        ("import sys; sys.exit()", "ok", 0, ""),
        ("\ufeffprint(1)", "ok", 0, ""),
        ("x = 1\rprint(x)\r\n", "ok", 0, ""),
        ("exit()", "ok", 0, ""),
        ("import os; os._exit(0)", "ok", 0, ""),
        ("import os; os.kill(os.getpid(), 9)", "runtime_error", None, "killed by SIGKILL"),
        ("import os; os.abort()", "runtime_error", None, "killed by SIGABRT"),
        ("raise KeyboardInterrupt", "runtime_error", 1, "KeyboardInterrupt (line 1)"),
        ("class E(Exception):\n    def __str__(self): raise ValueError\nraise E", "runtime_error", 1, "E"),
        ("import sys; sys.stdout.close()", "ok", 0, ""),
        ("import os; os.close(1); print(3)", "runtime_error", 120, "exit status 120"),
        ("import os\nfor n in range(3, 64):\n    try: os.close(n)\n    except OSError: pass", "ok", 0, ""),
    ],
)
def test_how_a_script_ends(in_sandbox: Run, program: str, reason: str, code: int | None, detail: str) -> None:
    done = run(in_sandbox, program)
    assert (done.reason, done.exit_code, done.cause) == (reason, code, "program")
    assert detail in done.detail


def test_a_traceback_shows_the_program_alone(in_sandbox: Run) -> None:
    done = run(in_sandbox, "def f():\n    return 1 / 0\nf()")
    assert done.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert done.stderr.count("File ") == done.stderr.count('File "/w/program.py"') == 2
    assert "return 1 / 0" in done.stderr


def test_output_survives_as_text(in_sandbox: Run) -> None:
    done = run(in_sandbox, "import os; os.write(1, b'\\xff ok \\xe4\\xbd\\xa0')")
    assert done.stdout == "\ufffd ok \u4f60"


def test_values_come_back_as_exact_plain_data(in_sandbox: Run) -> None:
    program = """
import collections, datetime, decimal, enum, fractions
class L(list):
    def __eq__(self, other): return True
class I(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
Point = collections.namedtuple('Point', 'x y')
class Color(enum.IntEnum): RED = 3
def f():
    return [L([1]), I(4), True, None, 2.5, float('-inf'), 'a\\x00\\ud800', b'\\xff', (1, [2]), {1: 'a', (2,): {3}},
            frozenset({4}), 10 ** 5000, complex(1, -2), Point(1, 2), Color.RED, collections.Counter('aab'),
            collections.deque([1], 3), decimal.Decimal('1.50'), fractions.Fraction(2, 4), datetime.date(2024, 2, 29),
            range(1, 9, 2)]
def g(): return float('nan')
"""
    done = calls(in_sandbox, program, Call(function="f"), Call(function="g"))
    value: Any = done.results[0].value
    expected = [[1], 4, True, None, 2.5, -math.inf, "a\0\ud800", b"\xff", (1, [2]), {1: "a", (2,): {3}}, frozenset({4})]
    assert value[:11] == expected
    assert [type(item) for item in value[:4]] == [list, int, bool, type(None)]
    assert value[11] == 10**5000
    assert value[12:16] == [1 - 2j, (1, 2), 3, {"a": 2, "b": 1}]
    assert [type(item).__name__ for item in value[16:]] == ["deque", "Decimal", "Fraction", "date", "range"]
    assert (str(value[17]), value[18].denominator, value[20]) == ("1.50", 2, range(1, 9, 2))
    assert isinstance(done.results[1].value, float)
    assert math.isnan(done.results[1].value)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("return (n for n in [1])", "a value of type generator, which is no plain data"),
        ("return object()", "a value of type object"),
        ("x = []; x.append(x); return x", "nested too deeply or contains itself"),
    ],
)
def test_what_is_no_plain_data_is_a_wrong_answer(in_sandbox: Run, body: str, error: str) -> None:
    (result,) = calls(in_sandbox, f"def f():\n    {body}", Call(function="f")).results
    assert result.reason == "wrong_answer"
    assert error in result.error


@pytest.mark.parametrize("load", ["", "for _ in range(10 ** 6): pass\n"], ids=["quick", "slow"])
def test_every_call_starts_from_the_state_after_loading(in_sandbox: Run, load: str) -> None:
    program = load + "seen = []\ndef f(x):\n    seen.append(x)\n    print('seen', x)\n    return list(seen)"
    done = calls(in_sandbox, program, Call(function="f", args=(1,)), Call(function="f", kwargs={"x": 2}))
    assert [(result.value, result.stdout) for result in done.results] == [([1], "seen 1\n"), ([2], "seen 2\n")]


@pytest.mark.parametrize("load", ["", "for _ in range(10 ** 6): pass\n"], ids=["quick", "slow"])
@pytest.mark.parametrize(
    ("end", "reason"),
    [("os._exit(0)", "exited_early"), ("os.kill(os.getpid(), 9)", "runtime_error"), ("os._exit(7)", "exited_early")],
)
def test_a_call_that_ends_the_process_ends_the_list(in_sandbox: Run, load: str, end: str, reason: str) -> None:
    program = f"{load}import os\ndef f(x):\n    if x == 2: {end}\n    return x"
    done = calls(in_sandbox, program, *(Call(function="f", args=(x,)) for x in (1, 2, 3)))
    assert done.load.reason == "ok"
    assert [result.reason for result in done.results] == ["ok", reason]
    assert done.results[0].value == 1


def test_errors_of_calls_name_the_line_and_do_not_end_the_list(in_sandbox: Run) -> None:
    program = "def f(x):\n    return 1 / x\ndef g(): raise SystemExit\nh = 3"
    asked = [Call(function="f", args=(0,)), Call(function="g"), Call(function="h"), Call(function="f", args=(2,))]
    results = calls(in_sandbox, program, *asked).results
    assert [result.reason for result in results] == ["runtime_error", "exited_early", "runtime_error", "ok"]
    assert results[0].error == "ZeroDivisionError: division by zero (line 2)"
    assert "'h' of the program is no function" in results[2].error


def test_functions_are_found_where_programs_put_them(in_sandbox: Run) -> None:
    program = """
import asyncio
class Solution:
    def add(self, a, b): return a + b
class Other:
    inner = Solution()
async def later(x):
    await asyncio.sleep(0)
    return x
"""
    asked = [
        Call(function="add", args=(1, 2)),
        Call(function="Solution().add", args=(1, 2)),
        Call(function="Other.inner.add", args=(1, 2)),
        Call(function="later", args=(3,)),
        Call(function="missing"),
    ]
    results = calls(in_sandbox, program, *asked).results
    assert [result.value for result in results] == [3, 3, 3, 3, None]
    assert results[4].error == "NameError: the program defines no 'missing'"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("x = (", "syntax_error"),
        ("1 / 0", "runtime_error"),
        ("import sys; sys.exit(0)", "exited_early"),
        ("import os; os._exit(0)", "exited_early"),
        ("import os; os.kill(os.getpid(), 9)", "runtime_error"),
    ],
)
def test_a_program_that_does_not_load(in_sandbox: Run, program: str, reason: str) -> None:
    done = calls(in_sandbox, program, Call(function="f"))
    assert (done.load.reason, done.results) == (reason, ())


def test_forged_results_are_only_data(in_sandbox: Run) -> None:
    forged = b'{"load": "ok"}\n{"call": "ok", "value": "[1, {\\"x\\": [\\"os.system\\"]}]"}\n\n[]\n'
    program = (
        f"import os\nfor n in range(3, 64):\n    try: os.write(n, {forged!r})\n    except OSError: pass\ndef f(): pass"
    )
    done = calls(in_sandbox, program, Call(function="f"), Call(function="f"), Call(function="f"))
    assert all(result.reason == "runtime_error" for result in done.results)
    assert "unreadable data" in done.results[0].error


def test_equal_requests_run_once(in_sandbox: Run) -> None:
    program = "import os\ndef f(): return list(os.urandom(8))"

    async def use(sandbox: Sandbox) -> list[CallsExecution]:
        first = await asyncio.gather(*(sandbox.run_calls(program, [Call(function="f")]) for _ in range(5)))
        later = await sandbox.run_calls(program, [Call(function="f")])
        other = await sandbox.run_calls(program, [Call(function="f")], limits=Limits(cpu_seconds=3))
        return [*first, later, other]

    values = [done.results[0].value for done in in_sandbox(use, workers=2)]
    assert all(value == values[0] for value in values[:6])
    assert values[6] != values[0]
    values[0].clear()
    assert len(values[1]) == len(values[5]) == 8


def test_a_time_out_is_never_remembered(in_sandbox: Run) -> None:
    program = "import time; time.sleep(30)"
    limits = Limits(seconds=0.3)

    async def use(sandbox: Sandbox) -> list[Execution]:
        return [await sandbox.run(program, limits=limits), await sandbox.run(program, limits=limits)]

    first, second = in_sandbox(use)
    assert (first.reason, second.reason) == ("timeout", "timeout")
    assert first.seconds != second.seconds


def test_randomness_and_hashes_repeat(in_sandbox: Run) -> None:
    program = "import random\nprint(random.random(), hash('x'), list({'a', 'b', 'c'}))"
    assert run(in_sandbox, program).stdout == run(in_sandbox, program).stdout
