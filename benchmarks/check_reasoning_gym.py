"""`agentrl env check` on every dataset that reasoning-gym lists.

python -m benchmarks.check_reasoning_gym [--limit 6] [NAME ...]

Prints a line for each dataset and, at the end, those that do not pass with the reason.
"""

from __future__ import annotations

import argparse
import sys
import time

from reasoning_gym.factory import DATASETS

from agentrl.api import AgentRLError
from agentrl.config import Layer
from agentrl.loops.check_env import check_env
from agentrl.loops.resolve import resolve

CONFIGS = {
    "composite": {"datasets": [{"name": "chain_sum", "weight": 1.0}, {"name": "spiral_matrix", "weight": 2.0}]},
    "knight_swap": {"min_pieces": 2, "max_pieces": 2, "max_attempts": 100},  # the default takes seconds an entry
}
SIZES = {"train_size": 20, "validation_size": 5, "test_size": 10}
ALLOWED = {
    "boxnet": "its entries hold no answer: gold() knows none",
    "rush_hour": "its entries hold the number of moves, not the moves: gold() knows none",
}
"""Datasets without a gold, and why."""


def check(dataset: str, limit: int) -> tuple[list[str], bool]:
    """What is wrong with a dataset, and whether golds were tried."""
    options = {"dataset": dataset, "config": CONFIGS.get(dataset, {}), **SIZES}
    try:
        findings = check_env(resolve([Layer("check", {"env": {"name": "reasoning_gym", "options": options}})]), limit)
    except AgentRLError as error:
        return [str(error)], False
    gold = next((one.right for one in findings if one.name == "gold succeeds"), None)
    return [f"{one.name}: {one.detail}" for one in findings if one.right is False], gold is True


def main() -> int:
    """0 when every dataset passes, and has a gold unless it is known to have none."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, default=6, help="tasks to try of each dataset")
    parser.add_argument("names", nargs="*", help="datasets; all of them otherwise")
    options = parser.parse_args()
    failed, names = [], options.names or sorted(DATASETS)
    for name in names:
        start = time.monotonic()
        wrong, gold = check(name, options.limit)
        if not wrong and not gold and name not in ALLOWED:
            wrong = ["no gold"]
        failed += [name] if wrong else []
        said = "; ".join(wrong) or ALLOWED.get(name, "")
        print(f"{'WRONG' if wrong else 'ok':<6}{name:<28}{time.monotonic() - start:6.1f} s  {said}", flush=True)
    print(f"\n{len(names) - len(failed)} of {len(names)} datasets pass")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
