"""Draws entries of a reasoning-gym dataset; run as a script in a process of its own.

Some datasets walk over sets, so that the same seed gives the same entries only under the same `PYTHONHASHSEED`, which
a running process cannot set. One JSON object in on standard input, one out: `{"entries": [...]}` for each part asked
for, or `{"unknown": [names]}`, or `{"refused": text}`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

_GOLD_IN_METADATA = {
    "graph_color": "possible_answer",
    "propositional_logic": "example_answer",
    "rubiks_cube": "example_correct_answer",
}
"""Datasets that name no answer, because many are right, but keep one in their metadata."""


def main() -> None:
    """Answer the one request on standard input."""
    request = json.load(sys.stdin)
    # What the library prints must not look like the answer.
    answer = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    json.dump(draw(request["dataset"], request["config"], request["parts"]), answer)
    answer.close()


def draw(dataset: str, config: Mapping[str, Any], parts: list[list[int]]) -> dict[str, Any]:
    """Entries for each part `[seed, size]`; what an earlier part or entry asks is left out."""
    from reasoning_gym.composite import DatasetSpec
    from reasoning_gym.factory import DATASETS, create_dataset

    if dataset not in DATASETS:
        return {"unknown": sorted(DATASETS)}
    options = dict(config)
    if dataset == "composite" and isinstance(options.get("datasets"), list):
        options["datasets"] = [DatasetSpec(**{"weight": 1.0, "config": {}, **one}) for one in options["datasets"]]
    questions: set[str] = set()
    found: list[list[dict[str, Any]]] = []
    for seed, size in parts:
        try:
            made = create_dataset(dataset, **options, seed=seed, size=size)
        except (AssertionError, TypeError, ValueError, KeyError) as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        found.append([])
        for index in range(size):
            entry = made[index]
            if entry["question"] not in questions and _usable(entry["answer"]):
                questions.add(entry["question"])
                found[-1].append({"index": index, "gold": _gold(entry), "entry": pack(entry)})
    return {"entries": found}


def _usable(answer: str | None) -> bool:
    """Whether an entry can be solved: not if its answer is empty, like silence, or is the very integral asked for."""
    return answer is None or (answer != "" and "Integral(" not in answer)


def _gold(entry: Mapping[str, Any]) -> str | None:
    if entry["answer"] is not None:
        return str(entry["answer"])
    other = entry["metadata"].get(_GOLD_IN_METADATA.get(entry["metadata"].get("source_dataset", ""), ""))
    return other if other is None or isinstance(other, str) else json.dumps(other)


def pack(value: Any) -> Any:
    """`value` as JSON that tells tuples from lists and keeps keys that are no text; numpy's scalars become plain.

    >>> pack({"a": (1, 2)}), pack({0: "x"})
    ({'a': {'!tuple': [1, 2]}}, {'!dict': [[0, 'x']]})
    """
    if isinstance(value, tuple):
        return {"!tuple": [pack(one) for one in value]}
    if isinstance(value, set | frozenset):
        return {"!set": sorted((pack(one) for one in value), key=repr)}
    if isinstance(value, list):
        return [pack(one) for one in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("!") for key in value):
            return {str(key): pack(one) for key, one in value.items()}
        return {"!dict": [[pack(key), pack(one)] for key, one in value.items()]}
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    return value.item()  # numpy; anything else is an error that names its type


if __name__ == "__main__":
    main()
