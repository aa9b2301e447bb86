"""Supervised fine-tuning on an environment's demonstrations; the loss is on the assistant's tokens only."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from agentrl.api import ConfigError, Demonstration, History, Message, Segment, Turn, keyed_seed
from agentrl.api.background import run_loop
from agentrl.config import Config, SftConfig
from agentrl.learning.models import (
    Policy,
    autocast_dtype,
    device,
    save_policy,
    trained_policy,
    wrap_policy,
)
from agentrl.learning.optimizer import adamw, learning_rate_at, set_learning_rate
from agentrl.learning.outputs import microbatches, token_outputs
from agentrl.learning.scratch import build_policy, build_tokenizer
from agentrl.loops.display import Display
from agentrl.loops.resolve import Resolved, model_folder
from agentrl.loops.train import about
from agentrl.loops.wiring import wire
from agentrl.records.run import RunDirectory
from agentrl.rollouts.chat import ChatFormat
from agentrl.rollouts.history import FULL

LOG_EVERY = 50
"""Steps between lines of metrics."""


def sft(resolved: Resolved, output: str, display: Display | None = None) -> dict[str, Any]:
    """Fine-tune, write the policy to `output/policy`, and return the summary."""
    config = resolved.config
    if config.sft.scratch is not None and config.model.lora is not None:
        raise ConfigError(
            "model.lora adapts a model that was trained before; sft.scratch makes a new one: remove either"
        )
    demonstrations = run_loop(_demonstrations(resolved))
    if config.threads is not None:
        torch.set_num_threads(config.threads)
    policy = _policy(config, demonstrations)
    chat = ChatFormat(policy.tokenizer, policy.stop_ids, config.chat)
    display = display or Display()
    segments = [
        segment
        for demonstration in demonstrations
        for segment in encode_demonstration(chat, demonstration, resolved.history)
    ]
    fitting = _fitting(segments, policy.context, display)
    run = RunDirectory.create(output)
    run.write_config(config.model_dump(mode="json"), about())
    return _Tuning(config, policy, fitting, run, display).run_all()


def _fitting(segments: Sequence[Segment], context: int, display: Display) -> Sequence[Segment]:
    """Those within the model's context: of longer ones it would learn positions that no rollout ever reaches."""
    fitting = [segment for segment in segments if len(segment.ids) <= context]
    longer = len(segments) - len(fitting)
    what = f"of {len(segments)} demonstrated sequences {longer} are longer than the model's context of {context} tokens"
    if not fitting:
        longest = max(len(segment.ids) for segment in segments)
        raise ConfigError(
            f"{what}, the longest {longest}: take a model with a longer one (sft.scratch.context for a new one), or "
            "shorten the prompts (chat.show_tools=false for tools that the policy learns from demonstrations)"
        )
    if longer:
        display.line(f"{what} and left out")
    return fitting


async def _demonstrations(resolved: Resolved) -> list[Demonstration]:
    async with wire(resolved) as wired:
        found = list(wired.catalogue.demonstrations("train"))
    if not found:
        raise ConfigError(f"env.name = '{resolved.config.env.name}': it has no demonstrations to imitate")
    return found


def _policy(config: Config, demonstrations: Sequence[Demonstration]) -> Policy:
    scratch = config.sft.scratch
    if scratch is None:
        return trained_policy(config, model_folder(config.model))
    tokenizer = build_tokenizer(_texts(demonstrations), scratch.vocabulary)
    model = build_policy(
        tokenizer,
        hidden_size=scratch.hidden_size,
        layers=scratch.layers,
        heads=scratch.heads,
        intermediate_size=scratch.intermediate_size,
        context=scratch.context,
        seed=config.seed,
    )
    torch.nn.Module.to(model, device(config.model.device))  # the wrapper of transformers hides the type
    return wrap_policy(model, tokenizer)


def _texts(demonstrations: Sequence[Demonstration]) -> Iterable[str]:
    """What a new tokenizer learns from: the words, and the calls as the template of `scratch` writes them."""
    for demonstration in demonstrations:
        for message in demonstration.messages:
            yield message.content
            for call in message.tool_calls:
                yield json.dumps({"name": call.name, "arguments": dict(call.arguments)}, ensure_ascii=False)


def encode_demonstration(chat: ChatFormat, demonstration: Demonstration, history: History = FULL) -> Sequence[Segment]:
    """A demonstration as segments whose `sampled` marks the assistant's tokens, the end of turn included.

    Prompt, answer and what follows are encoded apart, as they are when a policy samples the answer. Where the
    template or the history shows earlier turns differently than before, a new segment starts, as in a rollout.
    """
    opening, turns = _turns(demonstration.messages)
    tools = demonstration.tools
    done: list[_Text] = []
    text = _Text(chat)
    for place, turn in enumerate(turns):
        seen = history.view(opening, turns[:place])
        prompt = chat.render(seen, generate=True, tools=tools)
        if not prompt.startswith(text.text):
            done.append(text)
            text = _Text(chat)
        text.append(prompt[len(text.text) :], learn=False)
        after = chat.render([*seen, turn.action], generate=False, tools=tools)
        if not after.startswith(prompt):
            raise ConfigError("the chat template shows a turn differently than it asks for it: it cannot be imitated")
        answer = after[len(prompt) :]
        end, mark = chat.last_mark(answer)
        end = len(answer) if end < 0 else end + len(mark)
        text.append(answer[:end], learn=True)
        text.append(answer[end:], learn=False)
    return [one.segment() for one in (*done, text)]


def _turns(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Turn]]:
    """The opening and the turns of a conversation, as a rollout would hold them."""
    places = [place for place, message in enumerate(messages) if message.role == "assistant"]
    turns = [
        Turn(
            segment=0,
            span=(0, 0),
            completion=None,
            action=messages[place],
            observation=tuple(messages[place + 1 : end]),
        )
        for place, end in zip(places, [*places[1:], len(messages)], strict=True)
    ]
    return messages[: places[0]] if places else messages, turns


class _Text:
    """A segment while it grows: its text, and which of its tokens are learned."""

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat
        self.text = ""
        self.ids: list[int] = []
        self.sampled: list[bool] = []

    def append(self, piece: str, *, learn: bool) -> None:
        tokens = self.chat.encode(piece)
        self.ids.extend(tokens)
        self.sampled.extend([learn] * len(tokens))
        self.text += piece

    def segment(self) -> Segment:
        return Segment(
            ids=np.asarray(self.ids, dtype=np.int32),
            sampled=np.asarray(self.sampled, dtype=np.bool_),
            logprobs=np.zeros(len(self.ids), dtype=np.float32),
            turn=np.zeros(len(self.ids), dtype=np.int16),
        )


class _Tuning:
    """One fine-tuning in progress."""

    def __init__(
        self, config: Config, policy: Policy, segments: Sequence[Segment], run: RunDirectory, display: Display
    ) -> None:
        self.config, self.policy, self.run, self.display = config, policy, run, display
        self.settings: SftConfig = config.sft
        held_out = int(len(segments) * self.settings.validation_share)
        order = np.random.default_rng(keyed_seed(config.seed, "held out")).permutation(len(segments))
        self.validation = [segments[i] for i in order[:held_out]]
        self.training = [segments[i] for i in order[held_out:]]
        self.optimizer = adamw(
            policy.model, learning_rate=self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )

    def run_all(self) -> dict[str, Any]:
        start = time.monotonic()
        recent: list[float] = []
        with self.display.bar("sft", self.settings.steps) as advance:
            for step, batch in zip(range(self.settings.steps), self._batches(), strict=False):
                recent.append(self._step(step, batch))
                advance()
                if (step + 1) % LOG_EVERY == 0 or step + 1 == self.settings.steps:
                    self._log(step + 1, sum(recent) / len(recent), time.monotonic() - start)
                    recent = []
        dtype = getattr(torch, self.settings.save_dtype)
        folder = self.run.path / "policy"
        save_policy(self.policy, folder, dtype)
        summary = {
            "policy": str(folder),
            "parameters": sum(p.numel() for p in self.policy.model.parameters()),
            "demonstrations": len(self.training),
            "validation_loss": self._validation_loss(),
            "seconds": {"train": time.monotonic() - start},
        }
        self.run.write_summary(summary)
        return summary

    def _batches(self) -> Iterable[list[Segment]]:
        """Batches of about `tokens_per_batch` padded tokens, like lengths together, in a seeded order for ever."""
        epoch = 0
        while True:
            random = np.random.default_rng(keyed_seed(self.config.seed, "sft", epoch))
            order = random.permutation(len(self.training))
            shuffled = [(self.training[i],) for i in order]
            chunks = list(microbatches(shuffled, self.settings.tokens_per_batch))
            for chunk in random.permutation(len(chunks)):
                yield [shuffled[i][0] for i in chunks[chunk]]
            epoch += 1

    def _step(self, step: int, batch: Sequence[Segment]) -> float:
        settings = self.settings
        set_learning_rate(
            self.optimizer,
            learning_rate_at(
                step,
                steps=settings.steps,
                peak=settings.learning_rate,
                warmup=settings.warmup_steps,
                schedule=settings.schedule,
            ),
        )
        self.policy.model.train()
        total, tokens = self._loss(batch)
        loss = total / tokens
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.model.parameters(), settings.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return float(loss.detach())

    def _loss(self, batch: Sequence[Segment]) -> tuple[torch.Tensor, int]:
        """Sum of negative log-probabilities (nats) and number of tokens learned from."""
        width = max(int(segment.sampled.sum()) for segment in batch)
        outputs = token_outputs(
            self.policy.model,
            [(segment,) for segment in batch],
            width=width,
            temperature=1.0,
            autocast=autocast_dtype(self.config.model),
        )
        return -outputs.logprob.sum(), sum(int(segment.sampled.sum()) for segment in batch)

    @torch.no_grad()
    def _validation_loss(self) -> float:
        if not self.validation:
            return float("nan")
        self.policy.model.train(False)
        rows = [(segment,) for segment in self.validation]
        sums = [self._loss([rows[i][0] for i in chunk]) for chunk in microbatches(rows, self.settings.tokens_per_batch)]
        return sum(float(total) for total, _ in sums) / sum(tokens for _, tokens in sums)

    def _log(self, step: int, loss: float, seconds: float) -> None:
        validation = self._validation_loss()
        self.run.append_metrics({"step": step, "loss": loss, "validation_loss": validation, "seconds": seconds})
        self.display.line(
            f"step {step}/{self.settings.steps}  loss {loss:.4f}  validation {validation:.4f}  {seconds:.0f} s"
        )
