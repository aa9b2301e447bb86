"""The closing tables, as text: before and after, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Evaluation = Mapping[str, Any]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table: the first column to the left, the others to the right."""
    widths = [max(len(str(row[i])) for row in (head, *rows)) for i in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        first, *others = (str(cell) for cell in cells)
        padded = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        return "  ".join([first.ljust(widths[0]), *padded]).rstrip()

    return [line(head), "  ".join("-" * width for width in widths), *(line(row) for row in rows)]


def evaluation_lines(evaluations: Mapping[str, Evaluation]) -> list[str]:
    """Tables over one or more evaluations, named by their column heads."""
    columns = list(evaluations.values())
    heads = list(evaluations)
    first = columns[0]
    rows: list[list[str]] = []
    for k in first["pass_at_k"]:
        rows.append([f"pass@{k}", *(interval(e["pass_at_k"].get(k)) for e in columns)])
    rows += _tag_rows(columns)
    rows.append(["solved in turn 2 or later", *(_share(_later(e), _successes(e)) for e in columns)])
    rows.append(["reward", *(number(e["reward"]) for e in columns)])
    for part in first["parts"]:
        rows.append([f"  part {part}, raw", *(number(_part(e, part, "raw")) for e in columns)])
        rows.append([f"  part {part}, weighted", *(number(_part(e, part, "value")) for e in columns)])
    rows.append(["tokens per rollout", *(number(e["mean_length"], 1) for e in columns)])
    lines = table([f"{first['split']}: {first['tasks']} tasks x {first['samples']}", *heads], rows)
    lines += ["", *table(["verdict reason", *heads], _counts(columns, "reasons"))]
    return [*lines, "", *table(["rollout ended", *heads], _counts(columns, "stops"))]


def summary_lines(summary: Mapping[str, Any]) -> list[str]:
    """The closing text of a training run."""
    evaluations = {name: summary[name] for name in ("before", "after") if summary[name] is not None}
    lines = evaluation_lines(evaluations) if evaluations else []
    gain = summary["improvement"]
    if gain is not None:
        lines += ["", f"pass@1 gained {interval(gain)} (paired by task)"]
    seconds = summary["seconds"]
    best = "" if summary["best_step"] is None else f"; best validation after step {summary['best_step']}"
    lines += [
        "",
        f"{summary['steps']} steps ({summary['stop_reason']}{best})",
        f"{seconds['train']:.0f} s training, {seconds['evaluate']:.0f} s evaluating, {seconds['total']:.0f} s in all",
        f"run directory: {summary['output']}",
        f"policy: {summary['output']}/checkpoints/step_{summary['best_step'] or summary['steps']}/policy",
    ]
    return lines


def interval(value: Mapping[str, float] | None) -> str:
    """`0.412 [0.361, 0.464]`, the 95 % interval in brackets; `-` when there is none."""
    return "-" if value is None else f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def number(value: float | None, digits: int = 3) -> str:
    """A number, or `-`."""
    return "-" if value is None else f"{value:.{digits}f}"


def _part(evaluation: Evaluation, part: str, field: str) -> float | None:
    found = evaluation["parts"].get(part)
    return None if found is None else found[field]


def _tag_rows(columns: Sequence[Evaluation]) -> list[list[str]]:
    tags = list(dict.fromkeys(tag for evaluation in columns for tag in evaluation["tags"]))
    rows = []
    for tag in tags:
        found = [e["tags"].get(tag) for e in columns]
        count = next(f["tasks"] for f in found if f is not None)
        rows.append([f"  {tag} ({count} tasks), pass@1", *(interval(f["pass_at_1"] if f else None) for f in found)])
    return rows


def _later(evaluation: Evaluation) -> int:
    return sum(count for turns, count in evaluation["success_turns"].items() if int(turns) > 1)


def _successes(evaluation: Evaluation) -> int:
    return sum(evaluation["success_turns"].values())


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "-"


def _counts(columns: Sequence[Evaluation], field: str) -> list[list[str]]:
    names = list(dict.fromkeys(name for evaluation in columns for name in evaluation[field]))
    wholes = [max(sum(e[field].values()), 1) for e in columns]
    return [
        [
            name,
            *(
                f"{e[field].get(name, 0)} ({100 * e[field].get(name, 0) / w:.1f} %)"
                for e, w in zip(columns, wholes, strict=True)
            ),
        ]
        for name in names
    ]
