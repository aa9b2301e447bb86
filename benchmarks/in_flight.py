"""Rollouts per second and memory with many rollouts in flight, and what a slow verifier costs.

python -m benchmarks.in_flight [--few 1000] [--many 10000] [--turns 5] [--pace 0.05] [--repeats 3]
                               [--verifier-seconds 60]

The engine is a script that takes `pace` seconds for whatever waits; environment, chat template, tokens, runner, judging
and reward are the real ones. Each measurement runs in a process of its own; few and many take turns.
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


def measure(
    in_flight: int, rollouts: int, seconds: float, turns: int, pace: float, verifier: float
) -> dict[str, float]:
    """Run `rollouts` in all, or as many as `seconds` allow, with `in_flight` at once."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(embedded("tiny"))
    chat = ChatFormat(tokenizer, [tokenizer.eos_token_id])
    Slow.seconds, Counting.turns = verifier, turns
    limits = RolloutConfig(concurrency=in_flight, max_turns=turns + 1, max_tokens=1000)
    settings = Settings(chat=chat, limits=limits, max_new_tokens=50, temperature=1.0, context=4096)
    scorer = Scorer(RewardConfig.model_validate(REWARD), {"all": Slow(None, None)})  # type: ignore[arg-type]
    tasks = [Task(id=str(i), messages=(Message(role="user", content=f"Count on from {i}."),)) for i in range(64)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.monotonic()
    done = 0
    while done < rollouts or time.monotonic() - start < seconds:
        count = max(rollouts, in_flight)
        groups = run_loop(
            collect(
                plan(tasks, -(-count // len(tasks)), seed=0, phase=("benchmark", done)),
                make_env=Counting,
                players=TokenPlayers(SCHEDULES["throughput"](PacedEngine(chat, pace)), settings),  # type: ignore[arg-type]
                limits=limits,
                scorer=scorer,
                progress=lambda scored: None,
            )
        )
        members = [member for group in groups for member in group.members]
        assert all(member.reward.success and len(member.rollout.turns) == turns for member in members)
        done += len(members)
    taken = time.monotonic() - start
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"rate": done / taken, "kilobytes": kilobytes / max(in_flight, rollouts), "rollouts": done}


def in_a_process(**arguments: float) -> dict[str, float]:
    """`measure` in a fresh process, so that its peak of memory is its own."""
    command = [sys.executable, "-m", "benchmarks.in_flight", "--measure", json.dumps(arguments)]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1]))


def compare(options: argparse.Namespace) -> None:
    """Print both comparisons."""
    shared = {"turns": options.turns, "pace": options.pace}
    few, many = [], []
    for _ in range(options.repeats):
        few.append(in_a_process(in_flight=options.few, rollouts=options.many, seconds=0, verifier=0, **shared))
        many.append(in_a_process(in_flight=options.many, rollouts=options.many, seconds=0, verifier=0, **shared))
    rates = [statistics.median(one["rate"] for one in found) for found in (few, many)]
    memory = [statistics.median(one["kilobytes"] for one in found) for found in (few, many)]
    print(
        f"{options.turns} turns of {1000 * options.pace:.0f} ms, {options.many} rollouts, medians of {options.repeats}"
    )
    for name, rate, kilobytes in zip((options.few, options.many), rates, memory, strict=True):
        print(f"{name:>6} in flight: {rate:7.1f} rollouts/s, peak memory {kilobytes:6.1f} KB per rollout")
    print(f"ratio of the rates: {rates[1] / rates[0]:.3f}")
    fast, slow = [], []
    for _ in range(options.repeats):
        run = {"in_flight": options.few, "rollouts": 1, "seconds": options.verifier_seconds, **shared}
        fast.append(in_a_process(verifier=0, **run)["rate"])
        slow.append(in_a_process(verifier=0.3, **run)["rate"])
    rates = [statistics.median(found) for found in (fast, slow)]
    print(
        f"a verifier of 300 ms: {rates[1]:.1f} rollouts/s, without it {rates[0]:.1f}; ratio {rates[1] / rates[0]:.3f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--few", type=int, default=1000)
    parser.add_argument("--many", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--pace", type=float, default=0.05)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--verifier-seconds", type=float, default=60.0)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(**json.loads(options.measure))))
    else:
        compare(options)
