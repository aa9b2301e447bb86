"""An ordinary user, and a process inside an unprivileged container: the sandbox works or says what is missing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from agentrl.api import Limits
from agentrl.sandbox import DockerSettings, engine, open_sandbox
from tests.processes import need_backend

NOBODY = 65534
# Root's own interpreter may lie where nobody else may go; the system's of the same version then stands in.
PYTHONS = (sys.executable, "/usr/bin/python{}.{}".format(*sys.version_info))
TRY = textwrap.dedent("""
    import asyncio, os, sys
    sys.path[:0] = {path!r}
    from agentrl.api import Limits, SandboxUnavailable
    from agentrl.sandbox import open_sandbox
    GROW = "b = bytearray(400 << 20)\\nb[::4096] = b'x' * len(b[::4096])\\nimport time; time.sleep(9)"
    async def main():
        try:
            sandbox = open_sandbox(backend="bwrap", workers=1)
        except SandboxUnavailable as error:
            return f"missing: {{error}}"
        done = await sandbox.run_tests("def f(x): return x + 1", "assert f(1) == 2")
        grown = await sandbox.run(GROW, limits=Limits(memory_mb=200))
        await sandbox.close()
        return f"works: {{os.getuid()}} {{sandbox.tier}} {{done.reason}} {{grown.reason}}"
    print(asyncio.run(main()))
""").format(path=[path for path in sys.path if os.path.isdir(path)])


def readable_by_all(*paths: str) -> bool:
    """Whether every folder on the way to the paths may be entered by any user."""
    folders = {
        folder for path in paths for folder in (Path(os.path.realpath(path)), *Path(os.path.realpath(path)).parents)
    }
    return all(folder.stat().st_mode & 0o001 for folder in folders)


def test_an_ordinary_user() -> None:
    if os.getuid() != 0:
        pytest.skip("every other test already runs as an ordinary user")
    python = next((path for path in PYTHONS if readable_by_all(path)), PYTHONS[0])
    program = f"import os; os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n" + TRY
    done = subprocess.run([python, "-B", "-c", program], capture_output=True, text=True, cwd="/")
    words = done.stdout + done.stderr
    if readable_by_all(python, *(path for path in sys.path if os.path.isdir(path) and sys.base_prefix not in path)):
        assert words.startswith(f"works: {NOBODY} bwrap"), words
        assert words.endswith(" ok memory_limit\n"), words
    else:
        # Root's own folders are closed to others, and that is what is said.
        assert "ermission denied" in words or "missing: " in words or "No module" in words, words


def test_inside_an_unprivileged_container() -> None:
    """The default seccomp profile and masked /proc of Docker forbid what bubblewrap needs; the message says so."""
    need_backend("docker")
    folders = [
        "/usr",
        "/bin",
        "/lib",
        "/lib64",
        "/etc",
        sys.prefix,
        sys.base_prefix,
        *(path for path in sys.path if path),
    ]
    shown = sorted({folder for folder in folders if os.path.isdir(folder)})
    with contextlib.closing(engine.connect(None)) as client:
        image, _ = engine._image_and_view(client, DockerSettings(), ())
        binds = {path: {"bind": path, "mode": "ro"} for path in shown}
        host = client.create_host_config(network_mode="none", binds=binds, tmpfs={"/tmp": ""})
        made: Any = client.create_container(image, [sys.executable, "-c", TRY], host_config=host, user="1000:1000")
        try:
            client.start(made["Id"])
            client.wait(made["Id"])
            words = client.logs(made["Id"]).decode()
        finally:
            client.remove_container(made["Id"], force=True)
    assert words.startswith("missing: the bwrap sandbox does not work here"), words
    assert "--security-opt seccomp=unconfined" in words


@pytest.mark.slow
def test_no_honest_program_fails_for_lack_of_time_with_64_callers() -> None:
    """Each computes for half a second, all at once on a few processors, and so waits far beyond its wall limit."""
    program = "import time\nbegan = time.process_time()\nwhile time.process_time() - began < 0.5: pass\nprint({})"

    async def main() -> list[str]:
        sandbox = open_sandbox(backend="bwrap", workers=64)
        try:
            limits = Limits(cpu_seconds=2, seconds=5)
            done = await asyncio.gather(*(sandbox.run(program.format(n), limits=limits) for n in range(64)))
            return [f"{one.reason} {one.stdout.strip()}" for one in done]
        finally:
            await sandbox.close()

    assert asyncio.run(main()) == [f"ok {n}" for n in range(64)]
