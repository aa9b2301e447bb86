"""The golden vectors: inputs and outputs in float64, computed apart from this code base."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

Vectors = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def golden() -> Vectors:
    """name -> {"convention", "inputs", "outputs"}."""
    vectors: Vectors = json.loads((Path(__file__).parent / "golden.json").read_text())
    return vectors
