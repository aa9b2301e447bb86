"""Verdicts per second of `math_answer` and of math-verify called directly: same answers, same number of processes.

python benchmarks/answers.py [--repeats 3] [--processes 1]

agentrl counts its own process: N processes are itself and N - 1 workers, one worker at least. math-verify runs in N
processes of a pool. The two take turns; the medians and their ratio are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from agentrl_verifiers.math_answer import MathAnswer

from agentrl.api import Message, Rollout, Services, Stop, Task, Turn
from agentrl.rollouts.scoring import judge
from agentrl.sandbox import open_workers

TESTS = Path(__file__).parents[1] / "tests"


def with_math_verify(pair: tuple[str, str]) -> bool:
    """One verdict of math-verify, as its README calls it."""
    from math_verify import parse, verify

    try:
        return bool(verify(parse(f"${pair[1]}$"), parse(pair[0])))
    except Exception:
        return False


async def with_agentrl(pairs: list[tuple[str, str]], workers: int) -> float:
    """Seconds for all verdicts, through the verifier object and `judge`; starting the pool is not counted."""
    pool = open_workers(workers=workers)
    verifier = MathAnswer(MathAnswer.Options(), Services(available={"workers": pool}))
    try:
        warm = rollout(("\\boxed{\\sqrt{8}}", "2\\sqrt{2}"))
        await asyncio.gather(*(judge(verifier, warm, 60) for _ in range(workers)))
        began = time.perf_counter()
        await asyncio.gather(*(judge(verifier, rollout(pair), 300) for pair in pairs))
        return time.perf_counter() - began
    finally:
        await pool.close()


def rollout(pair: tuple[str, str]) -> Rollout:
    """A rollout of one turn."""
    turn = Turn(segment=0, span=(0, 0), completion=None, action=Message(role="assistant", content=pair[0]))
    task = Task(id="t", messages=(), data={"answer": pair[1]})
    return Rollout(task=task, index=0, seed=0, turns=(turn,), segments=(), stop=Stop.FINISHED)


def main() -> None:
    """Measure both on both sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    cases = [json.loads(line) for line in (TESTS / "hostile" / "answer_cases.jsonl").read_text().splitlines()]
    solutions = [json.loads(line)["answer"] for line in (TESTS / "unit/verifiers/gsm8k_sample.jsonl").open()]
    sets = {
        "GSM8K": [
            (text.replace("#### ", "The answer is \\boxed{") + "}", text.split("#### ")[1]) for text in solutions
        ],
        "cases": [(case["response"], case["task"]["answer"]) for case in cases if case["task"]["answer"].strip()],
    }
    for name, pairs in sets.items():
        ours, theirs = [], []
        for _ in range(options.repeats):
            ours.append(len(pairs) / asyncio.run(with_agentrl(pairs, max(options.processes - 1, 1))))
            with ProcessPoolExecutor(options.processes) as pool:
                list(pool.map(with_math_verify, [("\\boxed{1}", "1")] * options.processes))
                began = time.perf_counter()
                list(pool.map(with_math_verify, pairs))
                theirs.append(len(pairs) / (time.perf_counter() - began))
        rates = statistics.median(ours), statistics.median(theirs)
        print(
            f"{name}: agentrl {rates[0]:.0f}/s, math-verify {rates[1]:.0f}/s, ratio {rates[0] / rates[1]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
