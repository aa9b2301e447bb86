"""Ids seen by the engine are the ids in the learner's batch, for every rollout of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentrl.api import Completion
from agentrl.config import assignment
from agentrl.learning.batch import Batch
from agentrl.learning.learner import Learner, Prepared
from agentrl.loops.resolve import resolve
from agentrl.loops.train import train
from agentrl.rollouts.engines.base import SampleRequest
from agentrl.rollouts.engines.hf import HFEngine
from tests.e2e.conftest import SMALL


def test_trained_ids_are_sampled_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[tuple[int, ...], tuple[float, ...]] = {}
    batches: list[Batch] = []
    generate, prepare = HFEngine.generate, Learner.prepare

    async def recording(self: HFEngine, requests: Sequence[SampleRequest]) -> list[Completion]:
        completions = await generate(self, requests)
        for request, completion in zip(requests, completions, strict=True):
            seen[request.prompt + completion.token_ids] = completion.logprobs
        return completions

    def capturing(self: Learner, batch: Batch) -> Prepared:
        batches.append(batch)
        return prepare(self, batch)

    monkeypatch.setattr(HFEngine, "generate", recording)
    monkeypatch.setattr(Learner, "prepare", capturing)
    gaps: list[float] = []

    def remember(metrics: dict[str, Any], groups: object) -> None:
        gaps.append(metrics.get("logprob_gap_max", 0.0))

    resolved = resolve([assignment(text) for text in SMALL])
    train(resolved, str(tmp_path / "run"), callbacks=(remember,))
    assert len(batches) == 2
    turns = 0
    for batch in batches:
        for row, segments in enumerate(batch.segments):
            ids: list[int] = []
            for segment in segments:
                ends = np.flatnonzero(segment.sampled & ~np.append(segment.sampled[1:], False)) + 1
                for end in ends:  # the end of each turn's sampled span: the engine saw exactly what stands before it
                    logprobs = seen[tuple(segment.ids[:end].tolist())]
                    start = end - len(logprobs)
                    assert segment.sampled[start:end].all()
                    assert not segment.sampled[start - 1]
                    assert segment.logprobs[start:end].tolist() == pytest.approx(logprobs)
                    ids += segment.ids[start:end].tolist()
                    turns += 1
            assert batch.ids[row][batch.mask[row]].tolist() == ids
    assert turns > sum(len(batch) for batch in batches)  # some rollouts have a second turn
    assert max(gaps) < 1e-4
