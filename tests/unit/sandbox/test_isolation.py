"""What a program can see and do: nothing of the host, of the runner, or of other programs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.api import Call, ConfigError, Sandbox, SandboxUnavailable
from agentrl.sandbox import open_sandbox

Run = Callable[..., Any]

TRY = """
import ctypes, os, resource, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(action):
    try:
        result = action()
    except (OSError, ValueError):
        return 'refused'
    return 'refused' if result == -1 else 'done'
def run_a_copy():
    open('/w/copy', 'wb').write(open(sys.executable, 'rb').read(1 << 20))
    os.chmod('/w/copy', 0o755)
    os.execv('/w/copy', ['copy'])
print(attempt(lambda: ({action})))
"""


def output(in_sandbox: Run, program: str, **options: Any) -> str:
    done = in_sandbox(lambda sandbox: sandbox.run(program, **options))
    assert done.reason == "ok", done
    return str(done.stdout)


@pytest.mark.parametrize(
    "action",
    [
        "os.setuid(0)",
        "os.setgroups([0])",
        "os.chroot('/tmp')",
        "os.nice(-1)",
        "libc.mount(b'x', b'/tmp', b'tmpfs', 0, None)",
        "libc.umount2(b'/proc', 2)",
        "libc.unshare(0x10000000)",
        "libc.ptrace(16, 1, 0, 0)",
        "libc.syscall({'x86_64': 56, 'aarch64': 220}[os.uname().machine], 0x10000000 | 17, 0, 0, 0, 0)",
        "libc.syscall(435, 0, 0)",
        "libc.syscall(425, 8, 0)",
        "libc.syscall({'x86_64': 321, 'aarch64': 280}[os.uname().machine], 0, 0, 0)",
        "os.memfd_create('x')",
        "libc.shmget(1, 4096, 0o1777)",
        "libc.sethostname(b'x', 1)",
        "os.mknod('/w/disk', 0o60666, os.makedev(254, 0))",
        "open('/x', 'w')",
        "open('/runner/x', 'w')",
        "open('/dev/x', 'w')",
        "open(sys.executable, 'r+b')",
        "open('/proc/sys/kernel/hostname', 'w')",
        "open('/proc/self/oom_score_adj', 'w')",
        "open('/dev/tty')",
        "open('/dev/mem')",
        "socket.create_connection(('1.1.1.1', 53), 1)",
        "socket.create_connection(('127.0.0.1', 22), 1)",
        "socket.getaddrinfo('example.com', 80)",
        "socket.socket(16, socket.SOCK_RAW)",
        "socket.socket(40, socket.SOCK_STREAM)",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (9999, 9999))",
        "resource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
        "run_a_copy()",
    ],
)
def test_refused(in_sandbox: Run, action: str) -> None:
    assert output(in_sandbox, TRY.replace("{action}", action)) == "refused\n"


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("import os; print(os.getuid() != 0, os.getpid(), os.path.samefile(os.getcwd(), '/w'))", "True 2 True\n"),
        ("print([l for l in open('/proc/self/status') if l.startswith('CapEff')][0].split()[1])", "0000000000000000\n"),
        ("import os; print(sorted(n for n in os.listdir('/proc') if n.isdigit()))", "['1', '2']\n"),
        (
            # A container has some more of its own; they lead to nothing of the host.
            "import os; print(set(os.listdir('/dev')) - {'stdin', 'stdout', 'stderr', 'tty', 'ptmx', 'pts', 'mqueue'} "
            "== {'fd', 'full', 'null', 'random', 'shm', 'urandom', 'zero'}, "
            "[os.listdir(p) for p in ('/dev/mqueue', '/dev/pts') if os.path.exists(p)] in ([], [[], ['ptmx']]))",
            "True True\n",
        ),
        ("import os; print(os.listdir('/tmp'), os.listdir('/w'))", "[] ['program.py']\n"),
        (
            "import os; print(os.uname().nodename, os.environ['HOME'], os.environ.get('AGENTRL_SECRET'))",
            "box /w None\n",
        ),
        ("import os; print(len(os.listdir('/proc/self/fd')))", "5\n"),  # one for the results, one of listdir
        ("import os\nprint([os.kill(1, s) for s in (9, 15, 2, 19)])", "[None, None, None, None]\n"),
        (
            "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(1)\n"
            "c = socket.create_connection(s.getsockname()); print('own loopback')",
            "own loopback\n",
        ),
        ("import multiprocessing as m\nwith m.Pool(2) as p: print(p.map(abs, [-1, -2]))", "[1, 2]\n"),
        (
            "import subprocess, sys\n"
            "print(subprocess.run([sys.executable, '-c', 'print(5)'], capture_output=True).stdout)",
            "b'5\\n'\n",
        ),
    ],
)
def test_seen(in_sandbox: Run, program: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTRL_SECRET", "x")
    assert output(in_sandbox, program) == expected


def test_no_path_of_the_host_is_there(in_sandbox: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    hidden = [str(tmp_path), str(Path(__file__).parents[3]), os.path.expanduser("~/.ssh"), "/etc/passwd", "/bin/sh"]
    hidden += [str(Path(pytest.__file__).parent), "/var", "/sys", "/run"]
    program = f"import os\nprint([p for p in {hidden!r} if os.path.isfile(p) or os.path.isdir(p) and os.listdir(p)])"
    assert output(in_sandbox, program) == "[]\n"


def test_third_party_packages_are_not_importable_unless_named(in_sandbox: Run) -> None:
    program = "try:\n    import numpy; print(numpy.arange(3).sum())\nexcept ImportError: print('no')"
    assert output(in_sandbox, program) == "no\n"

    async def use(sandbox: Sandbox) -> Any:
        done = await sandbox.run(program)
        called = await sandbox.run_calls("import numpy\ndef f(): return numpy.eye(2)", [Call(function="f")])
        return done.stdout, called.results[0].value

    assert in_sandbox(use, packages=("numpy",)) == ("3\n", [[1.0, 0.0], [0.0, 1.0]])


def test_a_package_that_writes_while_it_is_imported_leaves_programs_their_own_tmp(in_sandbox: Run) -> None:
    # Matplotlib cannot be imported without a folder to write to.
    program = "import os, tempfile, matplotlib.pyplot\nprint(os.listdir('/tmp'))\nprint(tempfile.mkdtemp()[:5])"

    async def use(sandbox: Sandbox) -> list[str]:
        return [(await sandbox.run(f"{program}\n# {number}")).stdout for number in range(2)]

    assert in_sandbox(use, packages=("matplotlib",)) == ["[]\n/tmp/\n"] * 2


def test_a_package_that_cannot_be_imported_says_why(
    in_sandbox: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "half_built.py").write_text("raise OSError('libmissing.so is not there')")
    described = tmp_path / "half_built-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: half-built\nVersion: 1.0\n")
    (described / "RECORD").write_text("half_built.py,,\nhalf_built-1.0.dist-info/METADATA,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def use(sandbox: Sandbox) -> str:
        return (await sandbox.run("print(1)")).stdout

    with pytest.raises(SandboxUnavailable, match=r"importing half_built: OSError: libmissing\.so is not there"):
        in_sandbox(use, packages=("half-built",))


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(ConfigError, match="'no-such-package', which is not installed"):
        open_sandbox(packages=("no-such-package",))


def test_nothing_of_one_program_reaches_the_next(in_sandbox: Run) -> None:
    """Files, processes and memory: not the source, input, output, arguments or results of what ran before."""
    mark = "SECRET-" + "MARK"
    scan = """
import os
needle = ('SECRET-' + ''.join(['M', 'A', 'R', 'K'])).encode()
own = 0
for line in open('/proc/self/maps'):
    low, high = (int(end, 16) for end in line.split()[0].split('-'))
    if line.split()[1].startswith('r') and '[v' not in line:
        with open('/proc/self/mem', 'rb', 0) as memory:
            memory.seek(low)
            own += memory.read(high - low).count(needle)
print(own, os.listdir('/tmp'), os.listdir('/w'), len([n for n in os.listdir('/proc') if n.isdigit()]))
"""

    async def use(sandbox: Sandbox) -> tuple[str, str]:
        before = await sandbox.run(scan)
        await sandbox.run(f"open('/tmp/x', 'w'); print(input(), '{mark}')", stdin=mark * 50, files={"a": mark.encode()})
        await sandbox.run_calls("def f(x): return x * 3", [Call(function="f", args=(mark,))])
        await sandbox.run_tests("def f(x): return x * 3", f"assert f('{mark}') == '{mark}' * 3")
        await sandbox.run("import os, time\nif os.fork() == 0: os.setsid(); time.sleep(100)")
        after = await sandbox.run(scan + "# again")
        return before.stdout, after.stdout

    before, after = in_sandbox(use)
    assert after == before


def test_a_program_cannot_hurt_the_worker(in_sandbox: Run) -> None:
    """It may kill all it sees and lower all limits: the next program runs in the same worker."""
    hostile = """
import os, resource, signal
for limit in range(16):
    try: resource.prlimit(1, limit, (0, 0))
    except (OSError, ValueError): pass
os.kill(-1, signal.SIGKILL)
os.kill(1, signal.SIGKILL)
os.kill(os.getpid(), signal.SIGKILL)
"""

    async def use(sandbox: Any) -> tuple[Any, Any, list[int], list[int]]:
        await sandbox.run("print(0)")
        before = [worker._process.pid for worker in sandbox._pool._all]
        hurt = await sandbox.run(hostile)
        done = await sandbox.run("print(1)")
        return hurt, done, before, [worker._process.pid for worker in sandbox._pool._all]

    hurt, done, before, after = in_sandbox(use)
    assert (hurt.reason, hurt.cause, done.stdout) == ("runtime_error", "program", "1\n")
    assert before == after
