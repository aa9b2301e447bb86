"""Gold programs of HumanEval and MBPP pass, and no mutant passes that plain Python fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentrl.api import Execution, Limits
from agentrl.sandbox import open_sandbox
from benchmarks.code_datasets import MBPP, Problem, humaneval, mbpp, mutants, passes_plainly
from tests.processes import BACKENDS, need_backend

# One gold program, mbpp/123, computes for about the 4 seconds that a task has by default.
AMPLE = Limits(cpu_seconds=20, seconds=60)
DATASETS = {"humaneval": (humaneval, 164), "mbpp": (mbpp, 427)}


def problems_of(name: str) -> list[Problem]:
    if name == "mbpp" and not MBPP.exists():
        pytest.skip("MBPP is not here: put sanitized-mbpp.json of google-research anywhere and name it in AGENTRL_MBPP")
    load, number = DATASETS[name]
    problems = load()
    assert len(problems) == number
    return problems


def judge(backend: str, problems: Sequence[Problem]) -> list[Execution]:
    async def main() -> list[Execution]:
        sandbox = open_sandbox(backend=backend)
        try:
            runs = (sandbox.run_tests(p.program, p.tests, entry_point=p.entry_point, limits=AMPLE) for p in problems)
            return await asyncio.gather(*runs)
        finally:
            await sandbox.close()

    return asyncio.run(main())


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DATASETS)
def test_every_gold_program_passes(name: str, backend: str) -> None:
    need_backend(backend)
    problems = problems_of(name)
    done = zip(problems, judge(backend, problems), strict=True)
    assert [(problem.id, result.reason, result.detail) for problem, result in done if result.reason != "ok"] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", DATASETS)
def test_no_mutant_passes_that_plain_python_fails(name: str) -> None:
    """A seeded sample; `python -m benchmarks.prove_judging` takes all of them."""
    changed = [mutant for problem in problems_of(name) for mutant in mutants(problem)]
    sample = random.Random(0).sample(changed, 150)
    with ThreadPoolExecutor(2) as threads:
        plain = list(threads.map(passes_plainly, sample))
    assert sum(plain) < 15, "mutants that change nothing prove nothing"
    for problem, passes, result in zip(sample, plain, judge("bwrap", sample), strict=True):
        assert result.cause == "program", problem.id
        assert passes or result.reason != "ok", problem.id
