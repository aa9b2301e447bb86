"""Shows that code is judged right on real data: every gold program of HumanEval and MBPP, and their mutants.

    python -m benchmarks.prove_judging [bwrap|docker]

No mutant that plain Python fails may pass here. One that plain Python passes and that fails here is listed: plain
Python takes an early exit for success, and its time is bounded otherwise. Writes docs/results/judging.md; exit code 1
when a verdict is wrong.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agentrl.api import Execution, Limits, Sandbox
from agentrl.sandbox import open_sandbox
from benchmarks.code_datasets import Problem, humaneval, mbpp, mutants, passes_plainly

# One gold program, mbpp/123, computes for about the 4 seconds that a task has by default.
AMPLE = Limits(cpu_seconds=20, seconds=60)
REPORT = Path(__file__).resolve().parent.parent / "docs" / "results" / "judging.md"


async def judge(sandbox: Sandbox, problems: list[Problem]) -> list[Execution]:
    """What the sandbox says of each program with its tests."""
    runs = (sandbox.run_tests(one.program, one.tests, entry_point=one.entry_point, limits=AMPLE) for one in problems)
    return await asyncio.gather(*runs)


async def main(backend: str) -> int:
    """Judge everything; returns how many verdicts are wrong."""
    sandbox = open_sandbox(backend=backend)
    lines, wrong, stricter = [], [], []
    try:
        for name, problems in (("HumanEval", humaneval()), ("MBPP", mbpp())):
            began = time.monotonic()
            gold = await judge(sandbox, problems)
            wrong += [
                f"{one.id}: {done.reason}: {done.detail}"
                for one, done in zip(problems, gold, strict=True)
                if done.reason != "ok"
            ]
            passed = sum(done.reason == "ok" for done in gold)
            lines.append(f"| {name}, gold | {len(problems)} | {passed} | - | {time.monotonic() - began:.1f} |")
            changed = [mutant for problem in problems for mutant in mutants(problem)]
            with ThreadPoolExecutor(2) as threads:
                plain = list(threads.map(passes_plainly, changed))
            began = time.monotonic()
            done = await judge(sandbox, changed)
            taken = time.monotonic() - began
            for one, expected, found in zip(changed, plain, done, strict=True):
                if (found.reason == "ok" and not expected) or found.cause != "program":
                    wrong.append(f"{one.id}: plain Python {expected}, here {found.reason}: {found.detail}")
                elif found.reason != "ok" and expected:
                    stricter.append(f"{one.id}: {found.reason}: {found.detail}")
            kinds = Counter(one.id.rpartition("/")[2] for one in changed)
            both = sum(found.reason == "ok" for found in done)
            lines += [
                f"| {name}, mutants ({', '.join(f'{n} {kind}' for kind, n in kinds.items())}) | {len(changed)} "
                f"| {both} | {sum(plain)} | {taken:.1f} |"
            ]
    finally:
        await sandbox.close()
    head = f"# Judging real programs\n\nTier `{sandbox.tier}`; `python -m benchmarks.prove_judging {backend}`.\n\n"
    head += "| programs | number | passed here | passed plain Python | seconds here |\n|---|---|---|---|---|\n"
    tail = f"\n\nWrong: {len(wrong)}.\n" + "".join(f"\n- {line}" for line in wrong)
    tail += f"\nPassed by plain Python and failed here: {len(stricter)}.\n" + "".join(f"\n- {one}" for one in stricter)
    report = head + "\n".join(lines) + tail
    print(report)
    REPORT.write_text(report.rstrip() + "\n", encoding="utf-8")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "bwrap")) else 0)
