"""The Hugging Face engine: samples in this process from the learner's own model.

Prompts that repeat (the members of a group) are computed once; rows that finished leave the batch; every row has its
own random stream, so what is sampled does not depend on which rows share a batch (up to rounding of the matrix
products).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache, PreTrainedModel

from agentrl.api import Completion
from agentrl.rollouts.engines.base import Capabilities, SampleRequest, WeightSource
from agentrl.rollouts.engines.cache import ReservedCache

_DROP_SHARE = 0.2  # copying the cache costs about one token's work; drop rows when this share of them is done


class HFEngine:
    """Samples from `model`, which the learner trains in place.

    context: the model's longest sequence in tokens. batch_rows: most rows sampled at once. pad_id: any valid id; padded
    positions are masked out. compute: the one thread that runs torch; the learner uses the same. decode: text of
    sampled ids, in which stop strings are sought.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        pad_id: int,
        context: int,
        batch_rows: int,
        autocast: torch.dtype | None,
        compute: Executor,
        decode: Callable[[Sequence[int]], str],
    ) -> None:
        self.model = model
        self.decode = decode
        self.compute = compute
        self.pad_id = pad_id
        self.context = context
        self.batch_rows = batch_rows
        self.autocast = autocast
        self.version = 0
        self._lock = asyncio.Lock()
        self._abort = threading.Event()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(shares_weights=True, context=self.context, deterministic=True)

    async def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        """Sample in chunks of `batch_rows`, in a thread; one call at a time."""
        async with self._lock:
            self._abort.clear()
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.compute, self._generate, list(requests))

    async def update(self, weights: WeightSource, version: int) -> None:
        """The weights are shared: only the version changes. Waits until nothing is being sampled."""
        async with self._lock:
            self.version = version

    async def pause(self) -> None:
        await self._lock.acquire()

    async def resume(self) -> None:
        self._lock.release()

    async def abort(self) -> None:
        self._abort.set()

    async def health(self) -> str:
        return "ok"

    async def close(self) -> None:
        self._abort.set()

    def _generate(self, requests: list[SampleRequest]) -> list[Completion]:
        # Prompts of like length share a chunk (less padding); members of a group are neighbours and share the prompt.
        order = sorted(range(len(requests)), key=lambda i: (len(requests[i].prompt), requests[i].prompt, i))
        completions: list[Completion | None] = [None] * len(requests)
        self.model.train(False)
        with torch.no_grad(), self._precision():
            for start in range(0, len(order), self.batch_rows):
                chunk = order[start : start + self.batch_rows]
                batch = _Batch(self, [requests[i] for i in chunk])
                while batch.rows and not self._abort.is_set():
                    batch.advance()
                for i, completion in zip(chunk, batch.completions(), strict=True):
                    completions[i] = completion
        return [completion for completion in completions if completion is not None]

    def _precision(self) -> Any:
        device = self.model.device.type
        return torch.autocast(device, dtype=self.autocast or torch.bfloat16, enabled=self.autocast is not None)


class _Batch:
    """Rows being sampled together. `rows` lists the requests still running, in the order of the cache's rows."""

    def __init__(self, engine: HFEngine, requests: list[SampleRequest]) -> None:
        self.model, self.version, self.pad_id, self.decode = engine.model, engine.version, engine.pad_id, engine.decode
        self.requests = requests
        self.device = self.model.device
        self.rows = list(range(len(requests)))
        self.done = [False] * len(requests)
        self.tokens: list[list[int]] = [[] for _ in requests]
        self.logprobs: list[list[float]] = [[] for _ in requests]
        self.draws = [np.random.Generator(np.random.Philox(r.seed)).random(r.max_new_tokens) for r in requests]
        self.stops = [frozenset(r.stop_ids) for r in requests]
        self.stop_strings: list[str | None] = [None] * len(requests)
        self.logits, self.mask, self.cache = self._prefill()

    def _prefill(self) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """Compute each distinct prompt once, left-padded, then repeat its cache rows for the requests that share it."""
        prompts = list(dict.fromkeys(r.prompt for r in self.requests))
        place = {prompt: row for row, prompt in enumerate(prompts)}
        length = max(len(prompt) for prompt in prompts)
        ids = torch.full((len(prompts), length), self.pad_id, dtype=torch.long)
        mask = torch.zeros((len(prompts), length), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids[row, length - len(prompt) :] = torch.tensor(prompt)
            mask[row, length - len(prompt) :] = 1
        cache = _new_cache(self.model, length + max(r.max_new_tokens for r in self.requests))
        ids, mask = ids.to(self.device), mask.to(self.device)
        logits = self._forward(ids, mask, (mask.cumsum(1) - 1).clamp_min(0), cache)
        rows = torch.tensor([place[r.prompt] for r in self.requests], device=self.device)
        _select(cache, rows)
        return logits[rows], mask[rows], cache

    def _forward(self, ids: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
        logits: torch.Tensor = self.model(
            input_ids=ids,
            # without padding no mask is needed, and attention is faster without one
            attention_mask=None if bool(mask.all()) else mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits
        return logits[:, -1].float()

    def advance(self) -> None:
        """Draw one token for every running row, drop what finished, and compute the next logits."""
        drawn, logprobs = self._draw()
        now = time.monotonic()
        for row, token, logprob in zip(self.rows, drawn.tolist(), logprobs.tolist(), strict=True):
            if self.done[row]:
                continue
            self.tokens[row].append(token)
            self.logprobs[row].append(logprob)
            full = len(self.tokens[row]) == self.requests[row].max_new_tokens
            deadline = self.requests[row].deadline
            late = deadline is not None and now > deadline  # nobody waits for it any more
            self.stop_strings[row] = None if token in self.stops[row] else self._stop_string(row)
            self.done[row] = full or token in self.stops[row] or late or self.stop_strings[row] is not None
        running = [i for i, row in enumerate(self.rows) if not self.done[row]]
        if not running:
            self.rows = []
            return
        if len(self.rows) - len(running) >= _DROP_SHARE * len(self.rows):
            keep = torch.tensor(running, device=self.device)
            _select(self.cache, keep)
            drawn, self.mask, self.rows = drawn[keep], self.mask[keep], [self.rows[i] for i in running]
        self.mask = torch.cat([self.mask, self.mask.new_ones((len(self.rows), 1))], dim=1)
        self.logits = self._forward(drawn[:, None], self.mask, self.mask.sum(1, keepdim=True) - 1, self.cache)

    def _stop_string(self, row: int) -> str | None:
        """The stop string that the row's last token completed."""
        strings = self.requests[row].stop_strings
        if not strings:
            return None
        # A character takes at most four tokens (single bytes); a shorter tail is decoded than the whole turn.
        tail = self.decode(self.tokens[row][-4 * max(map(len, strings)) - 4 :])
        return next((string for string in strings if string in tail), None)

    def _draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        """One token per row by inverse transform of the row's own uniform draw. Returns ids and log-probabilities."""
        temperatures = torch.tensor([self.requests[row].temperature for row in self.rows], device=self.device)
        scaled = self.logits / temperatures.clamp_min(1e-6)[:, None]
        logprobs = scaled.log_softmax(-1)
        places = [min(len(self.tokens[row]), self.requests[row].max_new_tokens - 1) for row in self.rows]
        uniform = torch.tensor([self.draws[row][place] for row, place in zip(self.rows, places, strict=True)])
        # float64: in float32 the sum over a large vocabulary drifts and tail tokens get no room of their own
        cumulative = logprobs.double().exp().cumsum(-1)
        target = uniform.to(self.device, torch.float64)[:, None] * cumulative[:, -1:]
        drawn = torch.searchsorted(cumulative, target, right=True).clamp_max(cumulative.shape[1] - 1)[:, 0]
        greedy = temperatures == 0
        drawn = torch.where(greedy, self.logits.argmax(-1), drawn)
        chosen = logprobs.gather(1, drawn[:, None])[:, 0]
        return drawn, torch.where(greedy, torch.zeros_like(chosen), chosen)

    def completions(self) -> list[Completion]:
        """What was sampled, in the order of the requests."""
        return [self._completion(row) for row in range(len(self.requests))]

    def _completion(self, row: int) -> Completion:
        tokens, request = self.tokens[row], self.requests[row]
        stopped = bool(tokens) and tokens[-1] in self.stops[row]
        finish = (
            "stop"
            if stopped or self.stop_strings[row] is not None
            else "length"
            if len(tokens) == request.max_new_tokens
            else "abort"
        )
        return Completion(
            token_ids=tuple(tokens),
            logprobs=tuple(self.logprobs[row]),
            finish=finish,
            stop_token=tokens[-1] if stopped else None,
            stop_string=self.stop_strings[row],
            temperature=request.temperature,
            versions=((0, self.version),),
        )


def _new_cache(model: PreTrainedModel, reserve: int) -> Any:
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds == {"full_attention"} and getattr(config, "sliding_window", None) is None:
        return ReservedCache(config.num_hidden_layers, reserve)
    return DynamicCache(config=config)  # layers with a state of their own keep the library's cache


def _select(cache: Any, rows: torch.Tensor) -> None:
    if isinstance(cache, ReservedCache):
        cache.select(rows)
    else:
        cache.batch_select_indices(rows)
