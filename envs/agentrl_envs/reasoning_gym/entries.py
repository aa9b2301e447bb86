"""The entries of a dataset as tasks: test is drawn first, and what it holds, no other split has."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from agentrl.api import JSON, DataError, Message, PluginError, Task, nearest

_SCRIPT = Path(__file__).with_name("generate.py")
_ORDER = ("test", "validation", "train")
APART = 1_000_000
"""Distance between the seeds of two splits. An entry's own seed is the split's plus its index, so sizes stay below."""
MISSING = "reasoning-gym is not installed: pip install 'agentrl-framework[reasoning-gym]'"


def draw_tasks(
    dataset: str, config: Mapping[str, JSON], seed: int, sizes: Mapping[str, int], instruction: str, split: str
) -> tuple[Task, ...]:
    """The tasks of a split. Raises DataError for a dataset or a configuration that the library does not know."""
    wanted = _ORDER[: _ORDER.index(split) + 1]
    parts = {name: ((seed * len(_ORDER) + _ORDER.index(name)) * APART, sizes[name]) for name in wanted}
    drawn = _draw(dataset, json.dumps(config, sort_keys=True), tuple(parts.values()))
    return tuple(make_task(dataset, config, parts[split][0], instruction, split, one) for one in drawn[-1])


def make_task(
    dataset: str, config: Mapping[str, JSON], seed: int, instruction: str, split: str, drawn: Mapping[str, JSON]
) -> Task:
    """The task of one drawn entry, `{"index", "gold", "entry"}`; `seed` is that of its split."""
    entry = drawn["entry"]
    text = "\n\n".join(part for part in (entry["question"], instruction) if part)
    data = {"dataset": dataset, "config": dict(config), "seed": seed, "index": drawn["index"], "entry": entry}
    return Task(
        id=f"{dataset}/{split}/{drawn['index']}",
        messages=(Message(role="user", content=text),),
        answer=drawn["gold"],
        data=data,
        tags=(f"dataset:{entry['metadata'].get('source_dataset', dataset)}",),
    )


@functools.lru_cache(maxsize=8)
def _draw(dataset: str, config: str, parts: tuple[tuple[int, int], ...]) -> list[list[dict[str, JSON]]]:
    request = {"dataset": dataset, "config": json.loads(config), "parts": parts}
    done = subprocess.run(
        [sys.executable, "-P", str(_SCRIPT)],
        input=json.dumps(request),
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise PluginError(f"reasoning_gym: the dataset '{dataset}' could not be drawn:\n{done.stderr[-2000:].strip()}")
    answer = json.loads(done.stdout)
    if "unknown" in answer:
        names = answer["unknown"]
        hint = nearest(dataset, names) or f": {', '.join(names)}"
        raise DataError(f"env.options.dataset = '{dataset}': reasoning-gym has no such dataset{hint}")
    if "refused" in answer:
        raise DataError(f"env.options.config: the dataset '{dataset}' refuses it: {answer['refused']}")
    entries: list[list[dict[str, JSON]]] = answer["entries"]
    return entries
