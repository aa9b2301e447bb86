"""What several suites use: a small random policy, a scripted engine, and an environment to try faults on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agentrl.api import Completion, Env, Message, Options, Services, StepResult, Task
from agentrl.config import RolloutConfig
from agentrl.learning.models import Policy, wrap_policy
from agentrl.rollouts.chat import ChatFormat
from agentrl.rollouts.engines.base import Capabilities, SampleRequest, WeightSource
from agentrl.rollouts.players import Settings

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer with marks for chat; the pad token is not the end token."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    marks = ["<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=marks, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["def f(a, b):\n    return a + b\n"] * 20, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|pad|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_policy(seed: int = 0, **changes: Any) -> Policy:
    """A random Llama of two narrow layers."""
    tokenizer = make_tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        **{**sizes, "num_key_value_heads": 2, "max_position_embeddings": 256, **changes},
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config)
    with torch.no_grad():  # the default initialisation is nearly uniform: spread it, so that mistakes show
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return wrap_policy(model, tokenizer)


class ScriptedEngine:
    """Answers with given texts, one list per call order of a prompt; records every batch of requests."""

    def __init__(self, chat: ChatFormat, answer: Callable[[SampleRequest], str], context: int = 4096) -> None:
        self.chat, self.answer, self.context = chat, answer, context
        self.batches: list[list[SampleRequest]] = []

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(shares_weights=False, context=self.context, deterministic=True)

    async def generate(self, requests: Sequence[SampleRequest]) -> list[Completion]:
        self.batches.append(list(requests))
        await asyncio.sleep(0)
        return [self._complete(request) for request in requests]

    def _complete(self, request: SampleRequest) -> Completion:
        text = self.answer(request)
        stop = self.chat.stop_ids[0]
        string = next((one for one in request.stop_strings if one in text), None)
        if string is not None:
            text = text[: text.index(string) + len(string)]
        ids = (*self.chat.encode(text), *(() if string else (stop,)))[: request.max_new_tokens]
        stopped = ids[-1] == stop
        return Completion(
            token_ids=ids,
            logprobs=tuple(-0.5 for _ in ids),
            finish="stop" if stopped or string else "length",
            stop_string=string,
            stop_token=stop if stopped else None,
            temperature=request.temperature,
        )

    async def update(self, weights: WeightSource, version: int) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def abort(self) -> None: ...
    async def close(self) -> None: ...

    async def health(self) -> str:
        return "ok"


def make_settings(chat: ChatFormat, **changes: Any) -> Settings:
    """Rollout settings with small limits."""
    own = {key: changes.pop(key) for key in ("max_new_tokens", "temperature", "context") if key in changes}
    return Settings(
        chat=chat,
        limits=RolloutConfig(**{"max_tokens": 200, "max_turns": 4, **changes}),
        **{"max_new_tokens": 60, "temperature": 1.0, "context": 4096, **own},
    )


class Guess(Env):
    """Guess the task's number: says higher or lower; terminates on a hit. `fault` names what misbehaves."""

    class GuessOptions(Options):
        fault: str = ""

    Options = GuessOptions
    closed = 0

    def __init__(self, fault: str = "", reward: float = 0.0) -> None:
        super().__init__(self.GuessOptions(fault=fault), Services())
        self.fault, self.reward = fault, reward
        self.said: list[str] = []
        self.was_closed = False

    def _maybe(self, where: str) -> None:
        if self.fault == where:
            raise RuntimeError(f"planted in {where}")

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
        self._maybe("reset")
        self.number = int(task.answer)
        return list(task.messages), {}

    def step(self, action: Message) -> StepResult:
        self._maybe("step")
        self.said.append(action.content)
        hit = action.content.strip() == str(self.number)
        if self.fault == "truncate":
            return StepResult(truncated=True)
        observation = () if hit else (Message(role="user", content="no <|end|> {{ 7 * 7 }} \x00 é"),)
        return StepResult(observation=observation, terminated=hit, reward=self.reward, info={"hit": hit})

    def evidence(self) -> dict[str, Any]:
        self._maybe("evidence")
        return {"said": self.said}

    def close(self) -> None:
        self.was_closed = True
        self._maybe("close")


def guess_task(number: int = 7, name: str = "guess") -> Task:
    return Task(id=f"{name}/{number}", messages=(Message(role="user", content=f"hint {number}"),), answer=number)
