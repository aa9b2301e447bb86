"""The docker backend on a real engine: the same guarantees, what is left behind, and engines and callers that die."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import docker
import pytest

from agentrl.api import Call, Limits, SandboxUnavailable
from agentrl.sandbox import DockerSettings, backends, engine, open_sandbox
from tests.processes import containers, descendants, need_backend, wait_until_gone

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
SLOW = "import time\ntime.sleep({})\nprint('done')"


@pytest.fixture(autouse=True)
def _need_docker() -> None:
    need_backend("docker")


def use(work: Callable[[Any], Any], **options: Any) -> Any:
    """Run `work` on a sandbox of its own."""

    async def main() -> Any:
        sandbox = open_sandbox(backend="docker", **({"workers": 1} | options))
        try:
            return await work(sandbox)
        finally:
            await sandbox.close()

    return asyncio.run(main())


@contextlib.contextmanager
def client() -> Iterator[Any]:
    with contextlib.closing(engine.connect(None)) as found:
        yield found


def processes_in(api: Any, name: str) -> int:
    """How many processes a container has; none when it is gone or not yet there."""
    try:
        return len(api.top(name)["Processes"] or ())
    except docker.errors.APIError:
        return 0


def until(found: Callable[[], T], seconds: float = 30.0) -> T:
    """Wait for a true value."""
    end = time.monotonic() + seconds
    while not (value := found()) and time.monotonic() < end:
        time.sleep(0.05)
    return value


@pytest.mark.slow
@pytest.mark.parametrize("name", ["test_isolation", "test_limits", "test_boxes"])
def test_what_holds_in_bubblewrap_holds_in_containers(name: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", f"tests/unit/sandbox/{name}.py", "-p", "no:cacheprovider"]
    environment = os.environ | {"AGENTRL_TEST_BACKEND": "docker", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]
    assert " skipped" not in done.stdout


def test_the_container_is_hardened() -> None:
    async def work(sandbox: Any) -> Any:
        await sandbox.run("print(1)", limits=Limits(memory_mb=300))
        with client() as api:
            (name,) = containers()
            return api.inspect_container(name)

    found = use(work)
    host, config = found["HostConfig"], found["Config"]
    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["CapDrop"]) == ("none", True, ["ALL"])
    assert host["Privileged"] is False
    assert "no-new-privileges" in host["SecurityOpt"]
    assert any(option.startswith("seccomp={") for option in host["SecurityOpt"])
    assert (host["Memory"], host["MemorySwap"]) == (364 << 20, 364 << 20)
    assert (host["PidsLimit"], host["NanoCpus"], host["Init"], host["Binds"]) == (4096, 10**9, True, None)
    assert host["LogConfig"]["Type"] == "none"
    assert set(host["Tmpfs"]) == {"/box", "/w", "/tmp"}
    assert config["User"] == "64000:64000"
    assert float(config["Labels"]["agentrl.until"]) > time.time()
    assert containers() == []


def test_no_program_finds_what_another_left() -> None:
    leave = "import os\nfor f in ('/tmp/a', '/dev/shm/a', '/w/a', '/box/a', '/var/a', '/sys/a', '/dev/mqueue/a'):\n"
    leave += "    try: open(f, 'w').write('x')\n    except OSError: pass"
    look = "import os\nprint([os.path.join(d, n) for d, _, names in os.walk('/') if not d.startswith('/proc') "
    look += "for n in names if n == 'a' and os.stat(os.path.join(d, n)).st_size == 1])"

    async def work(sandbox: Any) -> Any:
        await sandbox.run(leave)
        return await sandbox.run(look)

    assert use(work).stdout == "[]\n"


def test_memory_is_bounded_for_each_request() -> None:
    grow = "b = bytearray({} << 20)\nb[::4096] = b'x' * len(b[::4096])\nprint('done')"

    async def work(sandbox: Any) -> list[str]:
        found = []
        for megabytes, limit in ((900, 1024), (900, 512), (200, 256), (900, 1024)):
            program = grow.format(megabytes) + f" # {limit}"
            found.append((await sandbox.run(program, limits=Limits(memory_mb=limit))).reason)
        return found

    assert use(work) == ["ok", "memory_limit", "ok", "ok"]


def test_a_runner_that_the_kernel_kills_for_memory_is_the_programs_doing() -> None:
    """Memory that no single process holds, taken faster than anybody samples it."""
    program = "import os\nfor _ in range(40):\n    if os.fork() == 0:\n        b = bytearray(60 << 20)\n"
    program += "        b[::4096] = b'x' * len(b[::4096])\n        while True: pass\nimport time; time.sleep(9)"

    async def work(sandbox: Any) -> list[str]:
        first = await sandbox.run(program, limits=Limits(memory_mb=256))
        return [first.reason, first.cause, (await sandbox.run("print(2)")).stdout]

    assert use(work) == ["memory_limit", "program", "2\n"]


@pytest.mark.parametrize("whole_tree", [False, True], ids=["the caller alone", "with all its processes"])
def test_a_killed_caller_leaves_nothing_running(whole_tree: bool) -> None:
    script = textwrap.dedent("""
        import asyncio
        from agentrl.sandbox import open_sandbox
        async def main():
            sandbox = open_sandbox(backend="docker", workers=2)
            loop = "import os\\nif os.fork() == 0: os.setsid()\\nwhile True: pass"
            await asyncio.gather(sandbox.run(loop), sandbox.run(loop + " # 2"))
        asyncio.run(main())
    """)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    caller = subprocess.Popen([sys.executable, "-c", script], env=environment)

    def busy() -> bool:
        with client() as api:
            found = api.containers(filters={"label": engine.LABEL})
            return len([one for one in found if processes_in(api, one["Id"]) >= 5]) == 2

    try:
        assert until(busy)
    finally:
        ends = [caller.pid, *(descendants(caller.pid) if whole_tree else [])]
        for pid in ends:
            os.kill(pid, signal.SIGKILL)
        caller.wait()
    with client() as api:
        assert until(lambda: not api.containers(filters={"label": engine.LABEL}), seconds=5)
    if not whole_tree:
        assert until(lambda: not containers(), seconds=5)
    # What was created and nobody is left to remove goes at the next start.
    engine.prepare(DockerSettings(), ())
    assert containers() == []


def test_the_next_start_removes_only_what_is_left_over() -> None:
    job = {"image": None, "words": ["python"], "runtime": None}
    now = time.time()
    gone = subprocess.Popen(["true"])
    gone.wait()
    labels = {
        "dead-owner": {engine.LABEL: engine._host(), "agentrl.owner": f"{gone.pid}-1", "agentrl.until": str(now + 99)},
        "same-pid-again": {engine.LABEL: engine._host(), "agentrl.owner": f"{os.getpid()}-1", "agentrl.until": "1e18"},
        "time-is-over": {engine.LABEL: "elsewhere", "agentrl.owner": "1-1", "agentrl.until": str(now - 1)},
        "of-another-host": {engine.LABEL: "elsewhere", "agentrl.owner": "1-1", "agentrl.until": str(now + 99)},
        "of-this-process": {engine.LABEL: engine._host(), "agentrl.owner": engine._owner(), "agentrl.until": "1e18"},
    }
    with client() as api:
        job["image"] = engine._image_and_view(api, DockerSettings(), ())[0]
        try:
            for name, words in labels.items():
                api.create_container_from_config(engine.container(api, job | {"labels": words}), f"agentrl-test-{name}")
            engine.prepare(DockerSettings(), ())
            assert containers() == ["agentrl-test-of-another-host", "agentrl-test-of-this-process"]
        finally:
            for name in labels:
                with contextlib.suppress(docker.errors.NotFound):
                    api.remove_container(f"agentrl-test-{name}", force=True)


async def busy_container(api: Any, seen: set[str]) -> str:
    """The container, not seen before, in which a program runs."""
    while True:
        await asyncio.sleep(0.05)
        for name in set(containers()) - seen:
            if processes_in(api, name) >= 4:
                seen.add(name)
                return name


@pytest.mark.parametrize("kills", [1, 2])
def test_a_killed_container_is_ours_and_tried_once_more(kills: int) -> None:
    async def work(sandbox: Any) -> Any:
        running = asyncio.ensure_future(sandbox.run(SLOW.format(3)))
        seen: set[str] = set()
        with client() as api:
            for _ in range(kills):
                api.kill(await busy_container(api, seen))
        return await running, await sandbox.run("print(1)")

    done, again = use(work)
    assert (done.reason, done.cause) == (("ok", "program") if kills == 1 else ("sandbox_unavailable", "ours"))
    assert again.stdout == "1\n"
    assert containers() == []


def test_a_killed_engine_gives_no_verdict_and_a_new_one_goes_on(tmp_path: Path) -> None:
    if os.getuid() != 0 or not shutil.which("dockerd"):
        pytest.skip("needs root and dockerd, for an engine of its own that it can kill: apt-get install docker.io")
    address = f"unix://{tmp_path}/docker.sock"
    running = [start_engine(tmp_path, address)]

    async def main() -> Any:
        sandbox = open_sandbox(backend="docker", workers=1, docker=DockerSettings(host=address))
        try:
            first = await sandbox.run("print(1)")
            asked = asyncio.ensure_future(sandbox.run(SLOW.format(5)))
            await asyncio.sleep(1)
            running[0].kill()
            unjudged = await asked
            still = await sandbox.run("print(2)")
            # Their processes may linger as zombies, which a new engine would take for running ones.
            (tmp_path / "pid").unlink()
            (tmp_path / "exec/containerd/containerd.pid").unlink()
            running.append(start_engine(tmp_path, address))
            return first, unjudged, still, await sandbox.run("print(3)")
        finally:
            await sandbox.close()

    try:
        first, unjudged, still, again = asyncio.run(main())
    finally:
        left = descendants(running[-1].pid)
        running[-1].terminate()
        running[-1].wait()
        with open("/proc/mounts") as mounts:
            held = [line.split()[1] for line in mounts if str(tmp_path) in line]
        for folder in reversed(held):
            subprocess.run(["umount", folder], check=True)
        assert wait_until_gone(left) == []
    assert (first.stdout, again.stdout) == ("1\n", "3\n")
    for done in (unjudged, still):
        assert (done.reason, done.cause) == ("sandbox_unavailable", "ours")
        assert done.detail


def start_engine(folder: Path, address: str) -> subprocess.Popen[bytes]:
    """An engine beside the one that runs already, without a network of its own."""
    # A network namespace of its own, because an engine clears away the bridge that another one made.
    words = [
        "unshare",
        "--net",
        "dockerd",
        "--data-root",
        f"{folder}/data",
        "--exec-root",
        f"{folder}/exec",
        "-H",
        address,
    ]
    words += ["--pidfile", f"{folder}/pid", "--bridge=none", "--iptables=false"]
    with open(folder / "log", "ab") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)

    def answers() -> bool:
        try:
            engine.connect(address).close()
        except SandboxUnavailable:
            return False
        return True

    assert until(answers, 60), (folder / "log").read_text()[-2000:]
    return process


def test_no_engine_and_no_image_say_what_to_do() -> None:
    backends._probe_docker.cache_clear()
    with pytest.raises(SandboxUnavailable, match=r"no Docker engine answers at unix:///nowhere.sock .*DOCKER_HOST"):
        open_sandbox(backend="docker", docker=DockerSettings(host="unix:///nowhere.sock"))
    with pytest.raises(SandboxUnavailable, match=r"'no-such-image' .*docker build -t no-such-image .*recipe"):
        open_sandbox(backend="docker", docker=DockerSettings(image="no-such-image"))
    with pytest.raises(SandboxUnavailable, match="no-such-runtime"):
        open_sandbox(backend="docker", docker=DockerSettings(runtime="no-such-runtime"))


def test_many_callers_share_few_containers() -> None:
    async def work(sandbox: Any) -> Any:
        calls = (sandbox.run_calls(f"def f(x): return x + {n}", [Call(function="f", args=(1,))]) for n in range(64))
        return [one.results[0].value for one in await asyncio.gather(*calls)], len(containers())

    assert use(work, workers=2) == ([n + 1 for n in range(64)], 2)
