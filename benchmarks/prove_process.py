"""A reward per turn helps where the outcome is sparse: learning curves with and without it, on three seeds.

    python -m benchmarks.prove_process

The task is a relay of eight small questions; only a rollout with eight right answers is a success, which the start
policy manages about once in two thousand. Writes docs/results/process.md, and exits with 1 when the reward per turn
does not lead on every seed.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import agentrl
from agentrl.api import Demonstration, Env, Message, Rollout, StepResult, Task, Verdict, Verifier
from agentrl.config import Layer
from agentrl.loops.resolve import resolve
from agentrl.loops.sft import sft
from agentrl.records.run import RunDirectory

TURNS, RIGHT, SEEDS, STEPS = 8, 0.35, (0, 1, 2), 60
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TASKS = {"train": 400, "validation": 50, "test": 100}
REPORT = Path(__file__).resolve().parent.parent / "docs" / "results" / "process.md"


def question(letter: str) -> Message:
    return Message(role="user", content=f"after {letter}")


def answer(letter: str) -> str:
    return LETTERS[(LETTERS.index(letter) + 1) % len(LETTERS)]


def letters(key: str) -> list[str]:
    return random.Random(key).choices(LETTERS, k=TURNS)


class Relay(Env):
    """Eight letters, one after the other; asked for is the one that follows."""

    default_reward: ClassVar[dict[str, Any]] = {
        "success": {"part": "all", "at_least": 1.0},
        "parts": [
            {"name": "all", "verifier": f"{__file__}:AllRight", "weight": 1.0},
            {"name": "turns", "source": "env_reward", "kind": "process", "reduce": "mean", "weight": 1.0},
        ],
    }

    def tasks(self, split: str) -> Sequence[Task]:
        """Sequences of letters."""
        drawn = ((f"{split}/{i}", letters(f"{split} {i}")) for i in range(TASKS[split]))
        return [Task(id=name, messages=(question(asked[0]),), data={"letters": asked}) for name, asked in drawn]

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
        """Begin with the first letter."""
        self.asked: list[str] = list(task.data["letters"])
        self.right = self.place = 0
        return list(task.messages), {}

    def step(self, action: Message) -> StepResult:
        """Take an answer, ask the next question."""
        right = action.content.strip() == answer(self.asked[self.place])
        self.right += right
        self.place += 1
        if self.place == TURNS:
            return StepResult(reward=float(right), terminated=True)
        return StepResult(observation=(question(self.asked[self.place]),), reward=float(right))

    def evidence(self) -> int:
        """How many answers were right."""
        return self.right

    def demonstrations(self, split: str) -> Iterator[Demonstration]:
        """Relays in which most of the answers are any letter."""
        for number in range(1500 if split == "train" else 0):
            drawn = random.Random(f"demonstration {number}")
            messages: list[Message] = []
            for letter in letters(f"demonstration {number}"):
                said = answer(letter) if drawn.random() < RIGHT else drawn.choice(LETTERS)
                messages += [question(letter), Message(role="assistant", content=said)]
            yield Demonstration(messages=tuple(messages))


class AllRight(Verifier):
    """Passes when every answer was right."""

    name = "all_right"

    def verify(self, rollout: Rollout) -> Verdict:
        """Judge by the environment's count."""
        right = rollout.evidence == TURNS
        reason = "passed" if right else "wrong_answer"
        return Verdict(verifier=self.name, score=float(right), passed=right, reason=reason)


BASE: dict[str, Any] = {
    "threads": 2,
    "env": {"name": f"{__file__}:Relay"},
    "sft": {
        "steps": 250,
        "tokens_per_batch": 2048,
        "scratch": {"vocabulary": 320, "hidden_size": 64, "layers": 2, "heads": 2, "intermediate_size": 128},
    },
    "algorithm": {"preset": "grpo", "kl_coefficient": 0.0},
    "engine": {"max_new_tokens": 4},
    "rollout": {"max_tokens": 64, "max_turns": TURNS},
    "train": {"steps": STEPS, "tasks_per_step": 16, "group_size": 8, "learning_rate": 1e-3, "warmup_steps": 5},
    "eval": {"samples": 8, "k": [1]},
}


def run(policy: str, weight: float, seed: int, folder: Path) -> tuple[dict[str, Any], list[float]]:
    """One training; returns its summary and the success of every step."""
    reward = {"parts": [{"name": "turns", "weight": weight}]}
    summary = agentrl.train({**BASE, "seed": seed, "model": {"path": policy}, "reward": reward}, output=str(folder))
    return summary, [row["success"] for row in RunDirectory.open(folder).read_metrics()]


def main() -> None:
    rows, ahead = [], True
    with tempfile.TemporaryDirectory() as scratch:
        made = sft(resolve([Layer("relay", BASE)]), str(Path(scratch) / "sft"))
        for seed in SEEDS:
            after = {}
            for weight in (1.0, 0.0):
                summary, curve = run(made["policy"], weight, seed, Path(scratch) / f"{seed}-{weight}")
                first, last = (summary[when]["pass_at_k"]["1"] for when in ("before", "after"))
                after[weight] = last
                tens = " ".join(f"{sum(curve[i : i + 10]) / 10:.2f}" for i in range(0, STEPS, 10))
                rates = [f"{r['mean']:.3f} [{r['low']:.3f}, {r['high']:.3f}]" for r in (first, last)]
                reward = "outcome and turns" if weight else "outcome alone"
                rows.append(f"| {seed} | {reward} | {rates[0]} | {rates[1]} | {tens} |")
                print(rows[-1], flush=True)
            ahead = ahead and after[1.0]["low"] > after[0.0]["high"]
    text = (
        "# Does a reward per turn help where the outcome is sparse?\n\n"
        f"`python -m benchmarks.prove_process`: a relay of {TURNS} questions, a success only when all answers are "
        "right.\nThe process part is the share of right answers, credited to its turns; without it (weight 0) only the "
        f"outcome is left.\ngrpo, {STEPS} steps of 16 tasks x 8 rollouts, two CPU cores.\n\n"
        "| seed | reward | pass@1 before | pass@1 after | success in training, means of ten steps |\n"
        "|---|---|---|---|---|\n"
    ) + "\n".join(rows)
    REPORT.write_text(text + "\n", encoding="utf-8")
    sys.exit(0 if ahead else 1)


if __name__ == "__main__":
    main()
