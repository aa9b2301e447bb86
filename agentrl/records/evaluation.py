"""What a set of scored rollouts says: pass@k with intervals, parts, reasons, stops, turns, tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from agentrl.api import Group, Scored
from agentrl.records.statistics import mean_and_interval, paired_difference, pass_at_k


def evaluation(groups: Sequence[Group], *, k: Sequence[int], seconds: float, seed: int) -> dict[str, Any]:
    """The evaluation object of `agentrl eval --json` and `summary.json`.

    pass@k counts `Reward.success`; a member without one (failed or unjudged) is no sample, and a task with fewer than
    k samples is left out of that k. Intervals are those of 95 % over tasks (`mean_and_interval`).
    """
    members = [member for group in groups for member in group.members]
    counts = [_successes(group) for group in groups]
    return {
        "tasks": len(groups),
        "samples": max((len(group.members) for group in groups), default=0),
        "pass_at_k": {str(kk): _interval([pass_at_k(n, c, kk) for n, c in counts if n >= kk], seed) for kk in k},
        "parts": _parts(members),
        "reward": _mean([m.reward.total for m in members if m.reward.total is not None]),
        "unjudged": sum(m.reward.success is None for m in members),
        "reasons": dict(Counter(v.reason for m in members for v in m.verdicts).most_common()),
        "stops": dict(Counter(m.rollout.stop.value for m in members).most_common()),
        "success_turns": _success_turns(members),
        "tags": _tags(groups, counts, seed),
        "seconds": seconds,
        "tokens": sum(m.rollout.sampled_tokens for m in members),
        "mean_length": _mean([float(m.rollout.sampled_tokens) for m in members]),
        "per_task": [
            {"id": group.task.id, "samples": n, "successes": c} for group, (n, c) in zip(groups, counts, strict=True)
        ],
    }


def improvement(before: dict[str, Any], after: dict[str, Any], seed: int) -> dict[str, float] | None:
    """Paired difference of pass@1 over the tasks that both evaluations measured; None without such a task."""
    rates = [
        {row["id"]: row["successes"] / row["samples"] for row in evaluated["per_task"] if row["samples"]}
        for evaluated in (before, after)
    ]
    shared = [task for task in rates[0] if task in rates[1]]
    if not shared:
        return None
    difference = paired_difference([rates[1][t] for t in shared], [rates[0][t] for t in shared], seed=seed)
    return {"mean": difference.mean, "low": difference.low, "high": difference.high}


def _successes(group: Group) -> tuple[int, int]:
    judged = [m.reward.success for m in group.members if m.reward.success is not None]
    return len(judged), sum(judged)


def _interval(values: Sequence[float], seed: int) -> dict[str, float] | None:
    if not values:
        return None
    result = mean_and_interval(values, seed=seed)
    return {"mean": result.mean, "low": result.low, "high": result.high}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _parts(members: Sequence[Scored]) -> dict[str, dict[str, float | None]]:
    names = list(dict.fromkeys(part.name for m in members for part in m.reward.parts))
    by_name = {name: [m.reward.by_name[name] for m in members if name in m.reward.by_name] for name in names}
    return {
        name: {
            "raw": _mean([p.raw for p in parts if p.raw is not None]),
            "value": _mean([p.value for p in parts if p.value is not None]),
            "judged": sum(p.raw is not None for p in parts) / len(parts),
        }
        for name, parts in by_name.items()
    }


def _success_turns(members: Sequence[Scored]) -> dict[str, int]:
    """Successful rollouts by their number of turns: those above 1 needed what the environment told them."""
    turns = Counter(len(m.rollout.turns) for m in members if m.reward.success)
    return {str(number): turns[number] for number in sorted(turns)}


def _tags(groups: Sequence[Group], counts: Sequence[tuple[int, int]], seed: int) -> dict[str, Any]:
    rates: dict[str, list[float]] = {}
    for group, (n, c) in zip(groups, counts, strict=True):
        for tag in group.task.tags:
            if n:
                rates.setdefault(tag, []).append(c / n)
    return {tag: {"tasks": len(rates[tag]), "pass_at_1": _interval(rates[tag], seed)} for tag in sorted(rates)}
