"""Shows that nothing stays behind: many verdicts, among them every hostile case again and again, then a look around.

    python -m benchmarks.prove_endurance [bwrap|docker] [VERDICTS]

Compares memory (this process and all below it), processes, mounts, control groups, temporary files and containers
before and after. Writes docs/results/endurance-BACKEND.md; exits with 1 when something is left or memory grew by a
tenth.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentrl_verifiers.code_tests import CodeTests

from agentrl.api import Options, Services
from agentrl.loops.verify import read_line
from agentrl.sandbox import cgroup, open_sandbox
from tests.processes import containers, descendants

ROOT = Path(__file__).resolve().parent.parent
CASES = ROOT / "tests" / "hostile" / "code_cases.jsonl"
EVERY = 30  # honest verdicts for each hostile one: these hang, fork and fill memory, which takes seconds
WARM = 1500
QUICK = {"cpu_seconds": 1, "seconds": 4}
HONEST = "def f(x):\n    return [x * {n}, str(x)]\n"


def lines(number: int) -> Iterator[dict[str, Any]]:
    """Hostile cases, over and over, each before some honest programs that are all different."""
    hostile = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    for n in range(number):
        if n % EVERY == 0:
            case = hostile[n // EVERY % len(hostile)]
            comment = {key: f"{case[key]}\n# {n}\n" for key in ("program",) if key in case}
            task = case["task"] | {"limits": QUICK | case["task"].get("limits", {})}
            yield case | comment | {"task": task}
        else:
            task = {"tests": f"assert f(2) == [{2 * n}, '2']"}
            yield {"id": f"honest-{n}", "program": HONEST.format(n=n), "task": task, "right": {"passed": True}}


def memory_mb(workers_only: bool = False) -> float:
    """Proportional memory of all processes below this one, and its own."""
    total = 0
    for pid in [*descendants(os.getpid()), *([] if workers_only else [os.getpid()])]:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:"))
    return total / 1024


def around() -> dict[str, Any]:
    """What could be left behind."""
    groups = [str(path) for _, memory, _ in cgroup._roots() for path in memory.glob("agentrl-*")]
    return {
        "processes": len(descendants(os.getpid())),
        "mounts": len(Path("/proc/mounts").read_text().splitlines()),
        "control groups": len(groups),
        "files in /tmp and /dev/shm": len(os.listdir("/tmp")) + len(os.listdir("/dev/shm")),
        "containers": len(containers()),
        "open descriptors": len(os.listdir("/proc/self/fd")),
    }


async def judge(verifier: CodeTests, cases: Iterator[dict[str, Any]], seen: Counter[str], wrong: Counter[str]) -> None:
    """Judge all cases, a few at a time, and count reasons and wrong verdicts; nothing else of them is kept."""

    async def caller() -> None:
        for case in cases:
            verdict = await verifier.verify(read_line(json.dumps(case))[1])
            seen[verdict.reason] += 1
            wrong[case["id"]] += verdict.passed is not case["right"]["passed"]

    await asyncio.gather(*(caller() for _ in range(16)))


async def main(backend: str, number: int) -> int:
    """Run everything; returns the exit status."""
    before = around()
    sandbox = open_sandbox(backend=backend)
    verifier = CodeTests(Options(), Services(available={"sandbox": sandbox}))
    cases = lines(number)
    seen: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    began = time.monotonic()
    try:
        await judge(verifier, itertools.islice(cases, WARM), seen, wrong)
        at_first = memory_mb(), memory_mb(workers_only=True)
        await judge(verifier, cases, seen, wrong)
        at_last = memory_mb(), memory_mb(workers_only=True)
    finally:
        await sandbox.close()
    taken = time.monotonic() - began
    after = around()
    growth = at_last[0] / at_first[0] - 1
    rows = [f"| {name} | {count} | {after[name]} |" for name, count in before.items()]
    rows.append(f"| memory after {WARM} and after all, MB | {at_first[0]:.0f} | {at_last[0]:.0f} ({growth:+.1%}) |")
    rows.append(f"| of that in workers, MB | {at_first[1]:.0f} | {at_last[1]:.0f} |")
    reasons = ", ".join(f"{count} {reason}" for reason, count in seen.most_common())
    report = f"# {number} verdicts, tier `{sandbox.tier}`\n\n"
    report += f"`python -m benchmarks.prove_endurance {backend} {number}`, {taken:.0f} s.\n\n"
    report += "| | before | after |\n|---|---|---|\n" + "\n".join(rows)
    report += f"\n\nVerdicts: {reasons}. Wrong: {wrong.total()} {dict(+wrong)}."
    print(report)
    path = ROOT / "docs" / "results" / f"endurance-{backend}.md"
    path.write_text(report + "\n", encoding="utf-8")
    left = any(after[name] > count for name, count in before.items() if name != "open descriptors")
    return 1 if left or growth > 0.1 or wrong.total() else 0


if __name__ == "__main__":
    backend = sys.argv[1] if len(sys.argv) > 1 else "bwrap"
    sys.exit(asyncio.run(main(backend, int(sys.argv[2]) if len(sys.argv) > 2 else 20_000)))
