"""Keyed randomness: every random choice has its own seed, made from what it is for."""

from __future__ import annotations

import hashlib
import json


def keyed_seed(*key: int | str) -> int:
    """A 63-bit seed that depends on the whole key and nothing else.

    Keys look like `keyed_seed(run_seed, "sample", step, task_id, index, turn)`: the order in which rollouts finish,
    the batch they shared and the number of processes change nothing.

    >>> keyed_seed(0, "sample", 1) == keyed_seed(0, "sample", 1) != keyed_seed(0, "sample", 2)
    True
    """
    digest = hashlib.blake2b(json.dumps(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
