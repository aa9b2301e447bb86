"""Messages to token ids, append-only: what was sampled is never decoded and encoded again.

The first prompt is the model's own chat template. Each later prompt is the tokens so far plus the suffix that the
template adds; when the template's text is no exact extension of the text so far (it rewrote history), a new segment
starts with the prompt as the template has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from agentrl.api import Completion, Message, Segment

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].capitalize() }}: {{ message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '' }}{{ '\\n\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For base models without a chat template of their own."""


class ChatFormat:
    """A tokenizer's chat template, and the ids that end a turn.

    stop_ids: the tokenizer's end-of-sequence id and those that the model's generation config names.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int]) -> None:
        self.tokenizer = tokenizer
        self.stop_ids = tuple(dict.fromkeys(stop_ids))
        self.template = tokenizer.chat_template or PLAIN_TEMPLATE

    def render(self, messages: Sequence[Message], *, generate: bool) -> str:
        """The template's text for `messages`; `generate` adds the head of an assistant turn."""
        text = self.tokenizer.apply_chat_template(
            [_to_template(message) for message in messages],
            chat_template=self.template,
            tokenize=False,
            add_generation_prompt=generate,
        )
        return str(text)

    def encode(self, text: str) -> list[int]:
        """Token ids of rendered text, which already has its special marks."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special marks included."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def action(self, completion: Completion) -> Message:
        """The assistant message that was sampled, without the end-of-turn token."""
        ids = completion.token_ids
        if completion.stop_token is not None:
            ids = ids[:-1]
        return Message(role="assistant", content=self.decode(ids))


def _to_template(message: Message) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        entry["reasoning_content"] = message.reasoning
    if message.tool_calls:
        entry["tool_calls"] = [
            {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": dict(c.arguments)}}
            for c in message.tool_calls
        ]
    if message.tool_call_id is not None:
        entry["tool_call_id"] = message.tool_call_id
    return entry


class TokenLedger:
    """The tokens of one rollout as they come: prompts and observations are appended, completions are kept as sampled.

    After `prompt(...)` the open segment's ids are exactly what the engine must see.
    """

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat
        self._closed: list[Segment] = []
        self._open_segment()

    def _open_segment(self) -> None:
        self._ids: list[int] = []
        self._sampled: list[bool] = []
        self._logprobs: list[float] = []
        self._turn: list[int] = []

    def prompt(self, messages: Sequence[Message], turn: int) -> tuple[int, ...]:
        """Bring the open segment to the prompt for `messages` (the whole conversation) and return its ids."""
        text = self.chat.render(messages, generate=True)
        so_far = self.chat.decode(self._ids) if self._ids else ""
        if self._ids and text.startswith(so_far):
            suffix = self.chat.encode(text[len(so_far) :])
        else:
            if self._ids:
                self._close_segment()
            suffix = self.chat.encode(text)
        self._append(suffix, turn)
        return tuple(self._ids)

    def complete(self, completion: Completion, turn: int) -> tuple[int, tuple[int, int]]:
        """Append what was sampled; returns the segment's index and the span of the sampled tokens."""
        start = len(self._ids)
        self._append(completion.token_ids, turn, completion.logprobs)
        return len(self._closed), (start, len(self._ids))

    def _append(self, ids: Sequence[int], turn: int, logprobs: Sequence[float] | None = None) -> None:
        self._ids.extend(ids)
        self._sampled.extend([logprobs is not None] * len(ids))
        self._logprobs.extend(logprobs if logprobs is not None else [0.0] * len(ids))
        self._turn.extend([turn] * len(ids))

    def _close_segment(self) -> None:
        self._closed.append(self._segment())
        self._open_segment()

    def _segment(self) -> Segment:
        return Segment(
            ids=np.asarray(self._ids, dtype=np.int32),
            sampled=np.asarray(self._sampled, dtype=np.bool_),
            logprobs=np.asarray(self._logprobs, dtype=np.float32),
            turn=np.asarray(self._turn, dtype=np.int16),
        )

    def segments(self) -> tuple[Segment, ...]:
        """All segments, the open one included when it holds a sampled token."""
        return (*self._closed, self._segment()) if any(self._sampled) else tuple(self._closed)
