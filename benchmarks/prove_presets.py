"""Shows that every preset learns: `agentrl train --env code_exec --algo PRESET`, with the bounds that it must hold.

    python -m benchmarks.prove_presets [PRESET ...] [SEED ...]

Without presets all of them; without seeds 0 and 1. Writes docs/results/presets.md when all were run, and exits with 1
when a bound is missed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from agentrl.learning.algorithms import PRESETS

SECONDS = 480.0
GAIN = {"ppo": 0.20, "grpo": 0.20, "gspo": 0.20}
OTHER_GAIN = 0.10
REPORT = Path(__file__).resolve().parent.parent / "docs" / "results" / "presets.md"
HEAD = ("preset", "seed", "pass@1 before", "pass@1 after", "gain (paired, 95 %)", "steps", "whole command s")
INTRO = """\
`python -m benchmarks.prove_presets` runs `agentrl train --env code_exec --algo PRESET` with the settings of the
embedded policy and held-out test tasks (8 samples a task), and writes this. Two CPU cores."""


def run(preset: str, seed: int, folder: Path) -> dict[str, Any]:
    """One whole run in `folder`."""
    command = [sys.executable, "-m", "agentrl", "train", "--env", "code_exec", "--algo", preset]
    subprocess.run([*command, "--set", f"seed={seed}", "--output", str(folder)], check=True)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary


def row(preset: str, seed: int, summary: dict[str, Any]) -> str:
    """A line of the table."""
    rates = [summary[when]["pass_at_k"]["1"] for when in ("before", "after")]
    figures = [f"{r['mean']:.3f} [{r['low']:.3f}, {r['high']:.3f}]" for r in (*rates, summary["improvement"])]
    cells = [preset, str(seed), *figures, str(summary["steps"]), f"{summary['seconds']['total']:.0f}"]
    return "| " + " | ".join(cells) + " |"


def misses(preset: str, summary: dict[str, Any]) -> list[str]:
    """The bounds that a run does not hold."""
    before, after = (summary[when]["pass_at_k"]["1"] for when in ("before", "after"))
    held = {
        "gain": summary["improvement"]["mean"] >= GAIN.get(preset, OTHER_GAIN),
        "intervals apart": before["high"] < after["low"],
        "seconds": summary["seconds"]["total"] <= SECONDS,
    }
    return [name for name, ok in held.items() if not ok]


def main() -> None:
    presets = [argument for argument in sys.argv[1:] if argument in PRESETS] or list(PRESETS)
    seeds = [int(argument) for argument in sys.argv[1:] if argument.isdigit()] or [0, 1]
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as scratch:
        for preset in presets:
            for seed in seeds:
                summary = run(preset, seed, Path(scratch) / f"{preset}-{seed}")
                lines.append(row(preset, seed, summary))
                missed += [f"{preset}, seed {seed}: {name}" for name in misses(preset, summary)]
                print(lines[-1], flush=True)
    text = "\n".join(lines)
    if presets == list(PRESETS):
        REPORT.write_text(f"# Does every preset learn?\n\n{INTRO}\n\n{text}\n", encoding="utf-8")
    for one in missed:
        print(f"missed: {one}", file=sys.stderr)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
