"""Shows that the main job learns: `agentrl train --env code_exec` on several seeds, with the bounds that it must hold.

    python benchmarks/prove_learning.py [SEED ...]

Writes docs/results/learning.md and exits with 1 when a bound is missed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

BOUNDS = {"train seconds": 300.0, "total seconds": 420.0, "gain": 0.30, "gain, lower end": 0.25}
REPORT = Path(__file__).resolve().parent.parent / "docs" / "results" / "learning.md"


def run(seed: int, folder: Path) -> dict[str, Any]:
    """One whole run of the main job in `folder`."""
    command = [sys.executable, "-m", "agentrl", "train", "--env", "code_exec", "--set", f"seed={seed}"]
    subprocess.run([*command, "--output", str(folder)], check=True)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


def row(seed: int, summary: dict[str, Any]) -> list[str]:
    """A line of the table."""
    before, after, gain = summary["before"], summary["after"], summary["improvement"]
    later = sum(n for turns, n in after["success_turns"].items() if int(turns) > 1)
    solved = sum(after["success_turns"].values())
    rates = [f"{e['pass_at_k'][k]['mean']:.3f}" for k in ("1", "8") for e in (before, after)]
    unseen = [f"{e['tags']['template:unseen']['pass_at_1']['mean']:.3f}" for e in (before, after)]
    return [
        str(seed),
        f"{rates[0]} -> {rates[1]}",
        f"{gain['mean']:.3f} [{gain['low']:.3f}, {gain['high']:.3f}]",
        f"{rates[2]} -> {rates[3]}",
        f"{unseen[0]} -> {unseen[1]}",
        f"{100 * later / solved:.1f} %",
        f"{summary['seconds']['train']:.0f}",
        f"{summary['seconds']['total']:.0f}",
    ]


def misses(summary: dict[str, Any]) -> list[str]:
    """The bounds that a run does not hold."""
    gain, seconds = summary["improvement"], summary["seconds"]
    held = {
        "train seconds": seconds["train"] <= BOUNDS["train seconds"],
        "total seconds": seconds["total"] <= BOUNDS["total seconds"],
        "gain": gain["mean"] >= BOUNDS["gain"],
        "gain, lower end": gain["low"] >= BOUNDS["gain, lower end"],
    }
    return [name for name, ok in held.items() if not ok]


def main() -> None:
    seeds = [int(argument) for argument in sys.argv[1:]] or [0, 1, 2]
    head = [
        "seed",
        "pass@1",
        "gain (paired, 95 %)",
        "pass@8",
        "pass@1, unseen templates",
        "solved in turn >= 2",
        "training s",
        "whole command s",
    ]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        for seed in seeds:
            summary = run(seed, Path(scratch) / str(seed))
            lines.append("| " + " | ".join(row(seed, summary)) + " |")
            missed += [f"seed {seed}: {name}" for name in misses(summary)]
    text = "\n".join(lines)
    print(text)
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    intro = (
        "`make prove` runs `agentrl train --env code_exec` with held-out test tasks (8 samples a task) and writes this."
    )
    REPORT.write_text(f"# Does the main job learn?\n\n{intro}\n\n{text}\n", encoding="utf-8")
    for text in missed:
        print(f"missed: {text}", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
