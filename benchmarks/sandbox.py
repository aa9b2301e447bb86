"""Isolated verdicts per second beside plain `subprocess.run([python, "-I", "-c", program and tests])`, in one run.

    python -m benchmarks.sandbox [bwrap] [docker] [--problems N] [--repeat N]

Both sides judge the same gold programs of HumanEval and MBPP with their assert-style tests, on as many workers (or
threads) as there are processors, alternately, several times; no verdict is taken from a cache. Printed are medians.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from agentrl.api import Limits, Sandbox
from agentrl.sandbox import open_sandbox
from benchmarks.code_datasets import MBPP, Problem, humaneval, mbpp, passes_plainly

CORES = os.cpu_count() or 1
CALLERS = (1, 2, 8, 64)
AMPLE = Limits(cpu_seconds=20, seconds=60)
LONGEST = 0.5  # seconds; programs that compute for longer say nothing about the judging
_number = itertools.count()


async def judge_all(sandbox: Sandbox, problems: Sequence[Problem], callers: int) -> tuple[float, list[float]]:
    """Verdicts per second with so many callers at once, and the seconds that each verdict took its caller."""
    taken: list[float] = []
    waiting = iter(problems)

    async def caller() -> None:
        for problem in waiting:
            began = time.perf_counter()
            # A comment of its own makes every program a new one.
            program = f"{problem.program}\n# {next(_number)}\n"
            done = await sandbox.run_tests(program, problem.tests, entry_point=problem.entry_point, limits=AMPLE)
            taken.append(time.perf_counter() - began)
            assert done.reason == "ok", f"{problem.id}: {done}"

    began = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(callers)))
    return len(problems) / (time.perf_counter() - began), taken


def plain_rate(problems: Sequence[Problem]) -> float:
    """Verdicts per second of plain subprocesses on all processors."""
    with ThreadPoolExecutor(CORES) as threads:
        began = time.perf_counter()
        passed = list(threads.map(passes_plainly, problems))
        rate = len(problems) / (time.perf_counter() - began)
    assert all(passed)
    return rate


def seconds_of(problem: Problem) -> float:
    """How long plain Python takes."""
    began = time.perf_counter()
    passes_plainly(problem)
    return time.perf_counter() - began


async def measure(backend: str, problems: Sequence[Problem], repeat: int) -> None:
    """Print one backend's figures."""
    sandbox = open_sandbox(backend=backend, workers=CORES)
    try:
        await judge_all(sandbox, problems[: 4 * CORES], CORES)
        pairs = []
        for _ in range(repeat):
            plain = await asyncio.to_thread(plain_rate, problems)
            # As `agentrl verify` does: enough callers that no worker waits for one.
            pairs.append(((await judge_all(sandbox, problems, 8 * CORES))[0], plain))
        ours, plain = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratio = statistics.median(a / b for a, b in pairs)
        print(f"{sandbox.tier}: {ours:.0f} isolated verdicts/s, plain subprocess {plain:.0f}/s, ratio {ratio:.2f}")
        for callers in CALLERS:
            done = [await judge_all(sandbox, problems, callers) for _ in range(repeat)]
            cuts = statistics.quantiles([seconds for _, taken in done for seconds in taken], n=100)
            print(
                f"{sandbox.tier}: {callers} callers {statistics.median(rate for rate, _ in done):.0f} verdicts/s, "
                f"latency median {1e3 * cuts[49]:.1f} ms, p99 {1e3 * cuts[98]:.1f} ms",
                flush=True,
            )
    finally:
        await sandbox.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backends", nargs="*", default=["bwrap", "docker"])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    problems = humaneval()
    if MBPP.exists():
        problems = [one for pair in zip(problems, mbpp(), strict=False) for one in pair]
    wanted = problems[: arguments.problems]
    problems = [problem for problem in wanted if seconds_of(problem) < LONGEST]
    print(
        f"{len(problems)} programs ({len(wanted) - len(problems)} that run for {LONGEST} s or more left out), {CORES} "
        f"processors, {arguments.repeat} repetitions, medians"
    )
    for backend in arguments.backends:
        asyncio.run(measure(backend, problems, arguments.repeat))


if __name__ == "__main__":
    main()
