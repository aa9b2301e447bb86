"""Rollouts per second and memory with many rollouts in flight, and what a slow verifier costs.

python -m benchmarks.in_flight [--few 1000] [--many 10000] [--turns 5] [--pace 0.05] [--repeats 3]
                               [--judged 12000]

The engine is a script that takes `pace` seconds for whatever waits; environment, chat template, tokens, runner, judging
and reward are the real ones. Each measurement runs in a process of its own; those that are compared take turns.
Rates are by the clock, and also by the process's CPU time, which other work on the machine disturbs less.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from agentrl.api import Completion, Env, Message, Options, Rollout, Services, StepResult, Task, Verdict, Verifier
from agentrl.api.background import run_loop
from agentrl.assets import embedded
from agentrl.config import RewardConfig, RolloutConfig
from agentrl.rollouts.chat import ChatFormat
from agentrl.rollouts.collect import collect, plan
from agentrl.rollouts.engines.base import Capabilities, SampleRequest
from agentrl.rollouts.players import Settings, TokenPlayers
from agentrl.rollouts.sampling import SCHEDULES
from agentrl.rollouts.scoring import Scorer

REWARD = {"success": {"part": "all"}, "parts": [{"name": "all", "verifier": "benchmarks.in_flight:Slow"}]}


class Counting(Env):
    """Asks for one number after the other."""

    turns = 5

    def __init__(self) -> None:
        super().__init__(Options(), Services())

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
        self.said: list[str] = []
        return list(task.messages), {}

    def step(self, action: Message) -> StepResult:
        self.said.append(action.content)
        ended = len(self.said) == self.turns
        asked = Message(role="user", content=f"That was {action.content}. What comes after it?")
        return StepResult(observation=() if ended else (asked,), terminated=ended)

    def evidence(self) -> list[str]:
        return self.said


class Slow(Verifier):
    """Takes `seconds`, without keeping anybody from working."""

    name = "slow"
    seconds: ClassVar[float] = 0.0

    async def verify(self, rollout: Rollout) -> Verdict:  # type: ignore[override]
        await asyncio.sleep(self.seconds)
        return Verdict(verifier=self.name, score=1.0, passed=True, reason="passed")


class PacedEngine:
    """Answers whatever waits after `pace` seconds."""

    def __init__(self, chat: ChatFormat, pace: float) -> None:
        self.pace = pace
        self.ids = (*chat.encode("17"), chat.stop_ids[0])
        self.logprobs = tuple(-0.5 for _ in self.ids)
        self.stop = chat.stop_ids[0]

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(shares_weights=False, context=4096, deterministic=True)

    async def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        await asyncio.sleep(self.pace)
        return [
            Completion(token_ids=self.ids, logprobs=self.logprobs, finish="stop", stop_token=self.stop)
            for _ in requests
        ]


def measure(in_flight: int, rollouts: int, turns: int, pace: float, verifier: float) -> dict[str, float]:
    """Run `rollouts`, `in_flight` at once, under a verifier that takes `verifier` seconds."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(embedded("tiny"))
    chat = ChatFormat(tokenizer, [tokenizer.eos_token_id])
    Slow.seconds, Counting.turns = verifier, turns
    limits = RolloutConfig(concurrency=in_flight, max_turns=turns + 1, max_tokens=1000)
    settings = Settings(chat=chat, limits=limits, max_new_tokens=50, temperature=1.0, context=4096)
    scorer = Scorer(RewardConfig.model_validate(REWARD), {"all": Slow(None, None)})  # type: ignore[arg-type]
    tasks = [Task(id=str(i), messages=(Message(role="user", content=f"Count on from {i}."),)) for i in range(64)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.monotonic(), time.process_time()
    groups = run_loop(
        collect(
            plan(tasks, -(-rollouts // len(tasks)), seed=0, phase=("benchmark",)),
            make_env=Counting,
            players=TokenPlayers(SCHEDULES["throughput"](PacedEngine(chat, pace)), settings),  # type: ignore[arg-type]
            limits=limits,
            scorer=scorer,
            progress=lambda scored: None,
        )
    )
    taken, cpu = time.monotonic() - start, time.process_time() - cpu
    members = [member for group in groups for member in group.members]
    assert all(member.reward.success and len(member.rollout.turns) == turns for member in members)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    done = len(members)
    return {"rate": done / taken, "cpu_rate": done / cpu, "seconds": taken, "kilobytes": kilobytes / done}


def in_a_process(**arguments: float) -> dict[str, float]:
    """`measure` in a fresh process, so that its peak of memory is its own."""
    command = [sys.executable, "-m", "benchmarks.in_flight", "--measure", json.dumps(arguments)]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]))


def take_turns(repeats: int, *runs: dict[str, float]) -> list[dict[str, float]]:
    """The medians of each of `runs`, which take turns `repeats` times."""
    found = [[in_a_process(**run) for run in runs] for _ in range(repeats)]
    return [
        {key: statistics.median(one[place][key] for one in found) for key in found[0][0]} for place in range(len(runs))
    ]


def show(name: str, one: dict[str, float]) -> None:
    print(
        f"{name:>24}: {one['rate']:6.1f} rollouts/s, {one['cpu_rate']:6.1f} per CPU second, {one['seconds']:5.1f} s, "
        f"peak memory {one['kilobytes']:5.1f} KB per rollout"
    )


def compare(options: argparse.Namespace) -> None:
    """Print both comparisons."""
    shared = {"turns": options.turns, "pace": options.pace}
    print(f"{options.turns} turns of {1000 * options.pace:.0f} ms, medians of {options.repeats}")
    counts = (options.few, options.many)
    runs = [{"in_flight": count, "rollouts": options.many, "verifier": 0, **shared} for count in counts]
    few, many = take_turns(options.repeats, *runs)
    show(f"{options.few} in flight", few)
    show(f"{options.many} in flight", many)
    print(f"ratio: {many['rate'] / few['rate']:.3f}, by CPU time {many['cpu_rate'] / few['cpu_rate']:.3f}")
    runs = [{"in_flight": options.few, "rollouts": options.judged, "verifier": s, **shared} for s in (0, 0.3)]
    without, slow = take_turns(options.repeats, *runs)
    show("no time for judging", without)
    show("a verifier of 300 ms", slow)
    print(f"ratio: {slow['rate'] / without['rate']:.3f}, by CPU time {slow['cpu_rate'] / without['cpu_rate']:.3f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--pace", type=float, default=0.05)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--judged", type=int, default=12_000, help="rollouts of the runs that compare verifiers")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(**json.loads(options.measure))))
    else:
        compare(options)
