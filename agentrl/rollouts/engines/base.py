"""The engine protocol: token ids in, exactly what was sampled out.

An engine samples from softmax(logits / temperature) and nothing else: no top-p, no top-k, no penalties, no
generation config of the model folder. It returns natural log-probabilities under that distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agentrl.api import Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """One prompt to continue.

    prompt: token ids, at least one. seed: fixes the draws of this request whatever batch it runs in. stop_strings:
    end the turn as soon as the sampled text holds one. deadline: seconds since the epoch of `time.monotonic` after
    which the answer is not wanted any more, or None.

    Example: `SampleRequest(prompt=(5, 9, 4), seed=71, max_new_tokens=64, temperature=1.0, stop_ids=(2,))`.
    """

    prompt: tuple[int, ...]
    seed: int
    max_new_tokens: int
    temperature: float
    stop_ids: tuple[int, ...]
    stop_strings: tuple[str, ...] = ()
    deadline: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do; refusals are decided on this data.

    shares_weights: samples from the learner's own tensors, so `update` copies nothing and sampling while training is
    impossible. context: longest sequence in tokens. deterministic: same requests in the same order, same answers.
    """

    shares_weights: bool
    context: int
    deterministic: bool


class WeightSource(Protocol):
    """Where an engine takes new weights from: the learner."""

    def named_weights(self) -> Sequence[tuple[str, object]]:
        """(parameter name, tensor) pairs of the policy."""
        ...


class Engine(Protocol):
    """Samples completions; every method may be awaited from one event loop at once."""

    @property
    def capabilities(self) -> Capabilities: ...

    async def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Completions in the order of the requests."""
        ...

    async def update(self, weights: WeightSource, version: int) -> None:
        """Sample from `weights` from now on; completions name `version`."""
        ...

    async def pause(self) -> None:
        """Finish what is being sampled, then hold back further requests until `resume`."""
        ...

    async def resume(self) -> None: ...

    async def abort(self) -> None:
        """End what is being sampled at the next token; those completions have `finish="abort"`."""
        ...

    async def health(self) -> str:
        """`ok`, or what is wrong."""
        ...

    async def close(self) -> None: ...
