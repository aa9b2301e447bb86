"""Assert-style tests in their own process: what crosses, what a program cannot fake, and what is no test at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentrl.api import Execution, Limits

Run = Callable[..., Any]


def judge(in_sandbox: Run, program: str, tests: str, entry_point: str | None = None, **limits: Any) -> Execution:
    done: Execution = in_sandbox(
        lambda sandbox: sandbox.run_tests(program, tests, entry_point=entry_point, limits=Limits(**limits))
    )
    return done


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("def add(a, b): return a + b", "assert add(1, 2) == 3"),
        ("def add(a, b): return a + b", "def check(candidate):\n    assert candidate(1, 2) == 3\ncheck(add)"),
        ("def f(x): return (x, [x], {x: {x}})", "assert f(1) == (1, [1], {1: {1}})"),
        ("def f(x): return x == 3", "assert f(3) is True and f(4) is False"),
        (
            "def f(x):\n    if x < 0: raise ValueError('negative')\n    return x",
            "try: f(-1)\nexcept ValueError as error: assert str(error) == 'negative'\nelse: assert False",
        ),
        (
            "class Bad(ValueError): pass\ndef f():\n    raise Bad('x', 1)",
            "try: f()\nexcept Bad as error: assert error.args == ('x', 1) and isinstance(error, ValueError)",
        ),
        ("def f(d, k): return d[k]", "try: f({}, 'a')\nexcept KeyError as error: assert str(error) == \"'a'\""),
        (
            "def f(g, xs): return [g(x) for x in xs]",
            "assert f(lambda x: x * 2, [1, 2]) == [2, 4]\nassert f(str, [1]) == ['1']",
        ),
        (
            "def f(g):\n    try: return g()\n    except KeyError: return 'caught'",
            "def g(): raise KeyError\nassert f(g) == 'caught'",
        ),
        ("def f(g, n): return n if n == 0 else g(n - 1)", "def g(n): return f(g, n) + 1\nassert f(g, 5) == 5"),
        ("def f(xs): return next(xs) + sum(xs)", "assert f(iter([1, 2, 3])) == 6\nassert f(x for x in (1, 2)) == 3"),
        (
            "def f(n):\n    for i in range(n): yield i",
            "assert list(f(3)) == [0, 1, 2]\nassert [x for x in f(2)] == [0, 1]",
        ),
        ("def f(n): return lambda x: x + n", "assert f(2)(3) == 5"),
        ("def f(xs): xs.sort(); xs[0] = [0]", "xs = [3, 1, 2]\ny = xs\nassert f(xs) is None\nassert y == [[0], 2, 3]"),
        (
            "def f(d): d['a'].append(1); del d['b']",
            "i = []\nd = {'a': i, 'b': 2}\nf(d)\nassert d == {'a': [1]} and i == [1]",
        ),
        ("def f(s): s.add(3)", "s = {1}\nf(s)\nassert s == {1, 3}"),
        (
            "class P:\n    def __init__(self, x): self.x = x\n    def move(self, d): self.x += d; return self\n"
            "    def __len__(self): return self.x\n    def __getitem__(self, i): return self.x * i",
            "p = P(3)\nassert p.x == 3\nassert p.move(2) is p\np.x = 4\nassert len(p) == 4 and p[2] == 8 and p == p",
        ),
        (
            "class P: pass\ndef same(a, b): return a is b",
            "p = P()\nassert same(p, p) and not same(p, P())\nassert [p] == [p]",
        ),
        (
            "def depth(node): return 0 if node is None else 1 + max(depth(node.left), depth(node.right))\n"
            "def mark(node): node.value = 9",
            "class Node:\n    def __init__(self, left=None, right=None):\n"
            "        self.left, self.right, self.value = left, right, 1\n"
            "root = Node(Node(), None)\nassert depth(root) == 2\nmark(root)\nassert root.value == 9",
        ),
        ("async def f(x): return x", "assert f(3) == 3"),
        ("import collections\ndef f(): return collections.Counter('aab')", "assert f() == {'a': 2, 'b': 1}"),
        ("def f(x): return x", "import math\nassert math.isclose(f(0.1) + f(0.2), 0.3)\nassert abs(f(-2)) == 2"),
        (
            "def f(x): return x",
            "assert f(10 ** 5000) == 10 ** 5000\nassert f('\\ud800') == '\\ud800'\nassert f(b'a') == b'a'",
        ),
        ("LIMIT = 3\ndef f(): return LIMIT", "assert f() == LIMIT"),
        ("def f(): return 1", "def test_one():\n    assert f() == 1"),
        (
            "def f(): return 1",
            "import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertEqual(f(), 1)",
        ),
        ("def sum(a, b): return a + b", "assert sum(1, 2) == 3"),
    ],
)
def test_right_programs_pass(in_sandbox: Run, program: str, tests: str) -> None:
    done = judge(in_sandbox, program, tests)
    assert (done.reason, done.detail) == ("ok", "")


@pytest.mark.parametrize(
    ("program", "tests", "entry_point"),
    [
        ("def f(): return 1\ndef candidate(): return 2", "assert candidate() == 1", "f"),
        ("class Solution:\n    def f(self, x): return x", "assert candidate(1) == 1 and f(2) == 2", "f"),
        ("def f(x): return x", "def check(candidate):\n    assert candidate(1) == 1", "f"),
        ("def sum(a): return a", "assert sum(3) == 3", "sum"),
    ],
)
def test_the_entry_point(in_sandbox: Run, program: str, tests: str, entry_point: str) -> None:
    assert judge(in_sandbox, program, tests, entry_point).reason == "ok"


CHAMELEON = """
class Any:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __contains__(self, other): return True
    def __sub__(self, other): return 0
    __rsub__ = __abs__ = __sub__
    def __bool__(self): return False
    def __hash__(self): return 0
    def __getattr__(self, name): return Any()
    def __call__(self, *a): return Any()
def f(*a): return Any()
"""


@pytest.mark.parametrize(
    "assertion",
    [
        "f() == 3",
        "3 == f()",
        "not f() != 3",
        "[f()] == [3]",
        "f() < 3",
        "3 in f()",
        "f() - 3 == 0",
        "abs(f() - 3) < 1e-6",
        "not f()",
        "f() in (1, 2)",
        "f().x == 3",
        "f()() == 3",
        "{f(): 1} == {3: 1}",
        "isinstance(f(), int)",
        "max(f(), 3) == 3",
        "sorted([f(), 3])[0] == 3",
    ],
)
def test_an_object_of_the_program_answers_no_question_about_itself(in_sandbox: Run, assertion: str) -> None:
    done = judge(in_sandbox, CHAMELEON, f"assert {assertion}")
    assert done.reason in ("wrong_answer", "runtime_error")


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        (
            "def abs(x): return 0\ndef f(): return 9\ndef all(x): return True",
            "assert abs(f() - 3) < 1\nassert all([f() == 3])",
        ),
        ("def f(): return 9\ndef check(*a): pass\n_ = 0", "def check(c):\n    assert c() == 3\ncheck(f)"),
        (
            "import builtins\nbuiltins.AssertionError = None\nbuiltins.abs = lambda x: 0\ndef f(): return 9",
            "assert abs(f()) == 0",
        ),
        ("import sys\ndef f():\n    sys.exit(0)", "try: f()\nexcept SystemExit: pass\nassert f() == 3"),
        ("import os\ndef f(): os._exit(0)", "try: f()\nexcept BaseException: pass"),
        ("import os\ndef f(): os.kill(os.getpid(), 9)", "try: f()\nexcept: pass"),
        ("def f(g): return g.__globals__", "def g(): pass\nassert f(g) is None"),
        ("def f(g): return g.gi_frame", "assert f(x for x in (1,)) is None"),
        (
            "def f(o): o.check = lambda: True\nimport os\ndef done(): os._exit(0)",
            "class O:\n    def check(self): return False\no = O()\nf(o)\ndone()",
        ),
        ("def f(o): return o._secret", "class O: _secret = 3\nassert f(O()) == 3"),
        (
            'import os\nfor n in range(3, 64):\n    try: os.write(n, b\'{"end": "ok", "token": ""}\\n\' * 9)\n'
            "    except OSError: pass\ndef f(): return 0",
            "assert f() == 3",
        ),
        (
            "import os\nfor n in range(3, 64):\n    try: os.close(n)\n    except OSError: pass\ndef f(): return 3",
            "assert f() == 3",
        ),
    ],
)
def test_cheats_fail(in_sandbox: Run, program: str, tests: str) -> None:
    done = judge(in_sandbox, program, tests)
    assert done.reason != "ok"
    assert done.cause == "program"


@pytest.mark.parametrize(
    ("program", "tests", "reason", "detail"),
    [
        (
            "def f(): return 2",
            "x = 3\nassert f() == x, 'not three'",
            "wrong_answer",
            "line 2 of the tests: assert f() == x, 'not three' (not three)",
        ),
        (
            "def f():\n    return 1 / 0",
            "assert f() == 1",
            "runtime_error",
            "ZeroDivisionError: division by zero (line 2) in line 1 of the tests: assert f() == 1",
        ),
        ("def f(): assert False", "assert f()", "runtime_error", "AssertionError (line 1) in line 1"),
        ("def g(): pass", "assert f() == 1", "runtime_error", "NameError: name 'f' is not defined"),
        ("x = (", "assert f() == 1", "syntax_error", "was never closed"),
        ("1 / 0", "assert f() == 1", "runtime_error", "ZeroDivisionError: division by zero (line 1)"),
        (
            "import os\ndef f(): os._exit(0)",
            "assert f() == 1",
            "exited_early",
            "ended with status 0 before the tests were done",
        ),
        ("import os\ndef f(): os.kill(os.getpid(), 11)", "assert f() == 1", "runtime_error", "killed by SIGSEGV"),
        ("def f():\n    while True: pass", "assert f() == 1", "timeout", "used more than 1 s of CPU time"),
        ("import time\ndef f(): time.sleep(60)", "assert f() == 1", "timeout", "ran longer than 5 s"),
        ("def f(): return 'x' * (20 << 20)", "assert f() == 1", "runtime_error", "the other side sent too much"),
        ("def f():\n    while True: print('x' * 1000)", "assert f() == 1", "output_limit", "printed more than"),
        ("def f(): return 1", "x = f()\nwhile x: pass", "timeout", "the tests of this program used more than 1 s"),
        ("def sub(a): return a", "assert sum(3) == 3", "runtime_error", "the program defines none of sum"),
    ],
)
def test_failures_say_why(in_sandbox: Run, program: str, tests: str, reason: str, detail: str) -> None:
    done = judge(in_sandbox, program, tests, cpu_seconds=1, seconds=5)
    assert done.reason == reason
    assert detail in done.detail


def test_a_missing_entry_point_is_named(in_sandbox: Run) -> None:
    done = judge(in_sandbox, "def g(): pass", "assert candidate() == 1", "f")
    assert (done.reason, done.detail) == ("runtime_error", "NameError: the program defines no 'f'")


@pytest.mark.parametrize(
    ("tests", "detail"),
    [
        ("assert (", "the tests are no Python"),
        ("assert 1 == 1", "name nothing that a program could define"),
        ("import sys\nassert f(sys) == 1", "which cannot cross"),
        ("import numpy\nassert f(1) == 1", "No module named 'numpy', in line 1 of the tests: import numpy; name"),
    ],
)
def test_bad_tests_are_nobodys_zero(in_sandbox: Run, tests: str, detail: str) -> None:
    done = judge(in_sandbox, "def f(x): return 1", tests)
    assert (done.reason, done.cause) == ("verifier_error", "ours")
    assert detail in done.detail


def test_the_text_of_the_tests_never_enters_the_programs_process(in_sandbox: Run) -> None:
    program = """
def f(x):
    needle = ''.join(['EXPEC', 'TED-', 'VAL']).encode()
    found = 0
    for line in open('/proc/self/maps'):
        low, high = (int(end, 16) for end in line.split()[0].split('-'))
        if line.split()[1].startswith('r') and '[v' not in line:
            with open('/proc/self/mem', 'rb', 0) as memory:
                memory.seek(low)
                found += memory.read(high - low).count(needle)
    return found
base = f(0)
def g(x): return f(x) - base
"""
    done = judge(in_sandbox, program, "assert g('x') == 0, 'EXPECTED-VAL'")
    assert (done.reason, done.detail) == ("ok", "")


ATTACK = """
import ctypes, os, resource
for folder in ('/w', '/box/tests', '/tmp'):
    with open(folder + '/colorsys.py', 'w') as file:
        file.write('planted = True')
def attempts():
    got = []
    for path in ('mem', 'maps', 'environ', 'auxv', 'syscall', 'fd/0', 'fd/3', 'cwd/x', 'task/1/mem'):
        for mode in ('rb', 'r+b', 'wb'):
            try:
                open(f'/proc/1/{path}', mode).read(1)
                got.append((path, mode))
            except OSError:
                pass
    try:
        open('/proc/1/oom_score_adj', 'w').write('1000')
        got.append('oom_score_adj')
    except OSError:
        pass
    for listed in ('fd', 'map_files', 'ns'):
        try:
            os.listdir(f'/proc/1/{listed}'), os.readlink(f'/proc/1/{listed}/pid')
            got.append(listed)
        except OSError:
            pass
    for number in range(1, 65):
        os.kill(1, number)
    for limit in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_NOFILE):
        try:
            resource.prlimit(1, limit, (0, 0))
            got.append('prlimit')
        except OSError:
            pass
    libc = ctypes.CDLL(None)
    buffer = ctypes.create_string_buffer(8)
    if libc.ptrace(16, 1, 0, 0) == 0 or libc.process_vm_readv(1, buffer, 1, buffer, 1, 0) >= 0:
        got.append('ptrace')
    return got
"""


@pytest.mark.parametrize(("claim", "reason"), [("[]", "passed"), ("['something']", "wrong_answer")])
def test_the_process_of_the_tests_is_out_of_the_programs_reach(in_sandbox: Run, claim: str, reason: str) -> None:
    """It is process 1 of the same tree: no memory, no signal, no limit of it is the program's, nor what it imports."""
    tests = f"import colorsys\nassert not hasattr(colorsys, 'planted')\nassert attempts() == {claim}"
    done = judge(in_sandbox, ATTACK, tests)
    assert done.reason == ("ok" if reason == "passed" else reason), done.detail
