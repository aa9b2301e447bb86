"""How often the 95 % interval of pass@1 holds the truth, where the truth is known.

    python -m benchmarks.coverage [REPETITIONS]

Tasks have pass rates from a Beta distribution and eight samples each. Prints the share of repetitions whose interval
holds the mean of the distribution, beside that of plain percentiles, and exits with 1 when a share is not in 0.92-0.98.
"""

from __future__ import annotations

import sys

import numpy as np

from agentrl.records.statistics import mean_and_interval

RATES = ((0.2, 4.0), (0.3, 0.3), (2.0, 2.0))
TASKS = (50, 150, 500)
SAMPLES, RESAMPLES = 8, 1000
LEAST, MOST = 0.92, 0.98


def coverage(a: float, b: float, tasks: int, repetitions: int) -> tuple[float, float]:
    """Share of intervals that hold the truth: ours, and that of plain percentiles."""
    random, truth = np.random.default_rng([tasks, int(10 * a)]), a / (a + b)
    ours = plain = 0
    for repetition in range(repetitions):
        values = random.binomial(SAMPLES, random.beta(a, b, tasks)) / SAMPLES
        found = mean_and_interval(values, resamples=RESAMPLES, seed=repetition)
        ours += found.low <= truth <= found.high
        means = values[random.integers(0, tasks, size=(RESAMPLES, tasks))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        plain += low <= truth <= high
    return ours / repetitions, plain / repetitions


def main() -> None:
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    held = True
    print(f"{'pass rates':<16}{'tasks':>6}{'ours':>8}{'percentiles':>13}")
    for a, b in RATES:
        for tasks in TASKS:
            ours, plain = coverage(a, b, tasks, repetitions)
            held = held and LEAST <= ours <= MOST
            print(f"{f'Beta({a:g}, {b:g})':<16}{tasks:>6}{ours:>8.3f}{plain:>13.3f}", flush=True)
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
