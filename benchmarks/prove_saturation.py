"""On training tasks that the start policy solves 20 to 80 % of the time, a right learner gets to nearly all.

    python -m benchmarks.prove_saturation

The tasks are chosen by an evaluation of the embedded policy on the train split; grpo then trains on them alone. Writes
docs/results/saturation.md, and exits with 1 when the mean success of the last ten steps is below the bound.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from agentrl_envs.code_exec import CodeExec, Options
from pydantic import Field

import agentrl
from agentrl.api import Task
from agentrl.records.run import RunDirectory

CANDIDATES, SAMPLES, TASKS = 160, 16, 48
BOUND, SECONDS = 0.95, 1800.0
REPORT = Path(__file__).resolve().parent.parent / "docs" / "results" / "saturation.md"


class SelectedOptions(Options):
    """`ids`: a JSON file with the ids of the tasks to train on."""

    ids: str = Field(description="JSON file with a list of task ids")


class Selected(CodeExec):
    """`code_exec` with chosen training tasks."""

    Options = SelectedOptions

    def tasks(self, split: str) -> Sequence[Task]:
        """All tasks of a split, of train the chosen ones."""
        found = super().tasks(split)
        if split != "train":
            return found
        assert isinstance(self.options, SelectedOptions)
        chosen = set(json.loads(Path(self.options.ids).read_text(encoding="utf-8")))
        return [task for task in found if task.id in chosen]


def solved_sometimes(folder: Path) -> list[str]:
    """Ids of training tasks that the embedded policy solves 20 to 80 % of the time."""
    config = {"env": {"name": "code_exec"}, "eval": {"samples": SAMPLES, "limit": CANDIDATES, "k": [1]}}
    agentrl.evaluate(config, split="train", output=str(folder))
    solved: dict[str, list[bool]] = {}
    for scored in RunDirectory.open(folder).read_rollouts("train"):
        solved.setdefault(scored.rollout.task.id, []).append(bool(scored.reward.success))
    rates = {task: sum(found) / len(found) for task, found in solved.items()}
    return [task for task, rate in rates.items() if 0.2 <= rate <= 0.8][:TASKS]


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        ids = solved_sometimes(Path(scratch) / "before")
        chosen = Path(scratch) / "ids.json"
        chosen.write_text(json.dumps(ids), encoding="utf-8")
        config = {
            "env": {"name": f"{__file__}:Selected", "options": {"ids": str(chosen)}},
            "algorithm": {"preset": "grpo"},
            "train": {"steps": 240, "validate_every": 0, "max_seconds": SECONDS - 300},
            "eval": {"samples": 2, "k": [1], "limit": 24},
        }
        summary = agentrl.train(config, output=str(Path(scratch) / "run"))
        curve = [row["success"] for row in RunDirectory.open(Path(scratch) / "run").read_metrics()]
    last, total = sum(curve[-10:]) / 10, summary["seconds"]["total"]
    tens = [sum(curve[i : i + 10]) / len(curve[i : i + 10]) for i in range(0, len(curve), 10)]
    text = (
        f"# Training success on tasks that are solved sometimes\n\n`python -m benchmarks.prove_saturation`: grpo on "
        f"{len(ids)} of the first {CANDIDATES} training tasks of `code_exec`, those that the embedded policy solves 20 "
        f"to 80 % of the time ({SAMPLES} samples). Temperature 1, {len(curve)} steps, {total:.0f} s, two CPU cores.\n\n"
        f"Mean success of the last ten steps: {last:.3f}.\n\nMean of each ten steps: "
        f"{', '.join(f'{value:.2f}' for value in tens)}.\n"
    )
    print(text)
    REPORT.write_text(text, encoding="utf-8")
    sys.exit(0 if last >= BOUND and total <= SECONDS else 1)


if __name__ == "__main__":
    main()
