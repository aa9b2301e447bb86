"""The metrics of one training step, as one flat object, and the line that a person reads."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from agentrl.api import Group
from agentrl.learning.batch import BatchCounts


def step_metrics(
    step: int,
    groups: Sequence[Group],
    counts: BatchCounts,
    learner: Mapping[str, float],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Everything measured in training step `step` (from 1). Clock and memory columns are named `seconds_*`,
    `tokens_per_second` and `memory_mb`; all others repeat exactly in the deterministic schedule."""
    members = [member for group in groups for member in group.members]
    totals = [m.reward.total for m in members if m.reward.total is not None]
    judged = [m.reward.success for m in members if m.reward.success is not None]
    tokens = sum(m.rollout.sampled_tokens for m in members)
    turns = [len(m.rollout.turns) for m in members]
    later = sum(bool(m.reward.success) and len(m.rollout.turns) > 1 for m in members)
    metrics: dict[str, Any] = {
        "step": step,
        "reward": _mean(totals),
        "success": _mean([float(s) for s in judged]),
        "success_in_later_turn": later / max(sum(judged), 1),
        **_parts(members),
        "length": tokens / len(members),
        "length_success": _mean([float(m.rollout.sampled_tokens) for m in members if m.reward.success]),
        "length_failure": _mean([float(m.rollout.sampled_tokens) for m in members if m.reward.success is False]),
        "turns": _mean([float(t) for t in turns]),
        "truncated": sum(m.rollout.stop.truncated for m in members) / len(members),
        "stops": dict(sorted(Counter(m.rollout.stop.value for m in members).items())),
        "reasons": dict(sorted(Counter(v.reason for m in members for v in m.verdicts).items())),
        "rollouts": len(members),
        "excluded": counts.excluded,
        "groups": len(groups),
        "zero_variance_groups": counts.zero_variance_groups,
        **learner,
    }
    total = sum(seconds.values())
    return metrics | {
        **{f"seconds_{name}": value for name, value in seconds.items()},
        "seconds": total,
        "tokens_per_second": tokens / total if total else None,
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _parts(members: Sequence[Any]) -> dict[str, float | None]:
    columns: dict[str, float | None] = {}
    for name in dict.fromkeys(part.name for m in members for part in m.reward.parts):
        parts = [m.reward.by_name[name] for m in members]
        columns[f"part/{name}/raw"] = _mean([p.raw for p in parts if p.raw is not None])
        columns[f"part/{name}/value"] = _mean([p.value for p in parts if p.value is not None])
    return columns


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def step_line(metrics: Mapping[str, Any], steps: int) -> str:
    """One step as one line."""
    parts = [
        f"{name.split('/')[1]} {_number(value)}"
        for name, value in metrics.items()
        if name.startswith("part/") and name.endswith("/raw")
    ]
    kl = metrics.get("kl_reference", metrics.get("kl_old"))
    fields = [
        f"step {metrics['step']}/{steps}",
        f"reward {_number(metrics['reward'])}",
        *parts,
        f"success {_number(metrics['success'])}",
        f"length {metrics['length']:.0f}",
        f"kl {_number(kl, 4)}",
        f"entropy {_number(metrics.get('entropy'))}",
        f"flat groups {metrics['zero_variance_groups']}/{metrics['groups']}",
        f"{metrics['tokens_per_second']:.0f} tok/s",
        f"{metrics['seconds']:.1f} s",
    ]
    if metrics["excluded"]:
        fields.append(f"excluded {metrics['excluded']}")
    return "  ".join(fields)


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
