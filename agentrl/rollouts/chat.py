"""Messages to token ids, append-only: what was sampled is never decoded and encoded again.

The first prompt is the model's own chat template. Each later prompt is the tokens so far plus the suffix that the
template adds; when the template renders the conversation so far differently from before (it rewrote history), a new
segment starts with the prompt as the template has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from agentrl.api import FORMATS, Completion, ConfigError, Message, Segment, ToolSpec, nearest, write_tool_calls
from agentrl.config import ChatConfig

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'].capitalize() }}: {{ message['content'] }}"
    "{{ eos_token if message['role'] == 'assistant' else '' }}{{ '\\n\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""For base models without a chat template of their own."""

_TOOLS_PROMPT = """You can call tools. Their names, descriptions and JSON schemas:
{tools}
Write each call as
{example}"""

_SIGNS = (
    ("<function=", "qwen3coder"),
    ("<tool_call>", "hermes"),
    ("[TOOL_CALLS]", "mistral"),
    ("<|python_start|>", "pythonic"),
    ('"parameters":', "llama"),
)


class ChatFormat:
    """A tokenizer's chat template, the ids that end a turn, and the way in which the model writes tool calls.

    stop_ids: the tokenizer's end-of-sequence id and those that the model's generation config names. A template that
    knows no tools gets them in its first message, calls as text, and a tool's answers as messages of the user.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int], config: ChatConfig | None = None
    ) -> None:
        config = config or ChatConfig()
        self.tokenizer = tokenizer
        self.stop_ids = tuple(dict.fromkeys(stop_ids))
        self.stop_marks = tuple(self.decode([stop]) for stop in self.stop_ids)
        own: Any = tokenizer.chat_template
        if isinstance(own, dict):  # several templates under names
            own = own.get("tool_use") or own.get("default")
        self.template: str = config.template or own or PLAIN_TEMPLATE
        self.options: Mapping[str, Any] = config.options
        self.system = config.system
        self.knows_tools = re.search(r"\btools\b", self.template) is not None
        self.tool_format = config.tool_format if config.tool_format != "auto" else _detect(self.template)
        if self.tool_format not in FORMATS:
            raise ConfigError(
                f"chat.tool_format = '{self.tool_format}': unknown{nearest(self.tool_format, FORMATS)}; "
                f"auto, {', '.join(FORMATS)}"
            )

    def render(self, messages: Sequence[Message], *, generate: bool, tools: Sequence[ToolSpec] = ()) -> str:
        """The template's text for `messages`; `generate` adds the head of an assistant turn."""
        if self.system is not None and not (messages and messages[0].role == "system"):
            messages = [Message(role="system", content=self.system), *messages]
        if tools and not self.knows_tools:
            messages = _with_tools(messages, tools, self.tool_format)
        if not self.knows_tools:
            messages = _without_tool_messages(messages, self.tool_format)
        text = self.tokenizer.apply_chat_template(
            [_to_template(message) for message in messages],
            tools=[_tool_to_template(one) for one in tools] if tools and self.knows_tools else None,
            chat_template=self.template,
            tokenize=False,
            add_generation_prompt=generate,
            **self.options,
        )
        return str(text)

    def encode(self, text: str) -> list[int]:
        """Token ids of rendered text, which already has its special marks. Half a surrogate pair becomes `?`."""
        clean = text.encode("utf-8", "replace").decode()
        return list(self.tokenizer.encode(clean, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special marks included."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def text(self, completion: Completion) -> str:
        """The text that was sampled, without the end-of-turn token."""
        ids = completion.token_ids
        return self.decode(ids[:-1] if completion.stop_token is not None else ids)

    def suffix(
        self, said: Sequence[Message], now: Sequence[Message], tools: Sequence[ToolSpec], ended: bool
    ) -> str | None:
        """What the template adds behind the last turn of `said` to make it `now`; None when it rewrites what was said.

        said: the conversation up to and with the policy's last message. ended: whether its end-of-turn mark was
        sampled; if not, the template's own is part of the suffix.
        """
        before = self.render(said, generate=False, tools=tools)
        after = self.render(now, generate=True, tools=tools)
        if not after.startswith(before) or any(part not in before for part in _parts(said[-1])):
            return None
        return self.behind_turn(before, ended) + after[len(before) :]

    def behind_turn(self, text: str, ended: bool) -> str:
        """What a rendered text has behind its last end-of-turn mark, or from it on when `ended` is false."""
        places = [(text.rfind(mark), mark) for mark in self.stop_marks if mark]
        place, mark = max(places, default=(-1, ""))
        return "" if place < 0 else text[place + (len(mark) if ended else 0) :]


def _parts(message: Message) -> list[str]:
    """What a template shows of a message unless it drops some of it; calls it may well write in its own way."""
    parts = [message.reasoning or "", *re.split("</?think(?:ing)?>", message.content)]
    return [part.strip() for part in parts]


def _detect(template: str) -> str:
    return next((format for sign, format in _SIGNS if sign in template), "hermes")


def _with_tools(messages: Sequence[Message], tools: Sequence[ToolSpec], format: str) -> list[Message]:
    """The tools as text in the first message: a system message, or before the user's words where there is none."""
    shown = "\n".join(json.dumps(_tool_to_template(one)["function"], ensure_ascii=False) for one in tools)
    text = _TOOLS_PROMPT.format(tools=shown, example=FORMATS[format].example)
    first = messages[0] if messages else Message(role="user", content="")
    joined = f"{first.content}\n\n{text}" if first.role == "system" else f"{text}\n\n{first.content}"
    return [Message(role=first.role, content=joined), *messages[1:]]


def _without_tool_messages(messages: Sequence[Message], format: str) -> list[Message]:
    """Calls as text, and the answers of tools, which follow one another, as one message of the user."""
    found: list[Message] = []
    answers = False
    for message in messages:
        content = message.content
        if message.tool_calls:
            content = "\n".join(part for part in (content, write_tool_calls(message.tool_calls, format)) if part)
        if message.role == "tool":
            content = f"<tool_response>\n{content}\n</tool_response>"
            if answers:
                found[-1] = Message(role="user", content=f"{found[-1].content}\n{content}")
                continue
        answers = message.role == "tool"
        role = "user" if answers else message.role
        found.append(Message(role=role, content=content, reasoning=message.reasoning))
    return found


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


def _tool_to_template(spec: ToolSpec) -> dict[str, Any]:
    function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
    return {"type": "function", "function": function}


class TokenLedger:
    """The tokens of one rollout as they come: prompts and observations are appended, completions are kept as sampled.

    After `prompt(...)` the open segment's ids are exactly what the engine must see.
    """

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat
        self._closed: list[Segment] = []
        self._said: int | None = None
        self._ended = True
        self._open_segment()

    def _open_segment(self) -> None:
        self._ids: list[int] = []
        self._sampled: list[bool] = []
        self._logprobs: list[float] = []
        self._turn: list[int] = []

    def prompt(self, messages: Sequence[Message], turn: int, tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """Bring the open segment to the prompt for `messages` (the whole conversation) and return its ids."""
        suffix = None
        if self._said is not None:
            # The conversation when the last completion was asked for, and the message that it became.
            suffix = self.chat.suffix(messages[: self._said + 1], messages, tools, self._ended)
        if suffix is None:
            if self._ids:
                self._close_segment()
            suffix = self.chat.render(messages, generate=True, tools=tools)
        self._append(self.chat.encode(suffix), turn)
        self._said = len(messages)
        return tuple(self._ids)

    def complete(self, completion: Completion, turn: int) -> tuple[int, tuple[int, int]]:
        """Append what was sampled; returns the segment's index and the span of the sampled tokens."""
        start = len(self._ids)
        self._append(completion.token_ids, turn, completion.logprobs)
        self._ended = completion.stop_token is not None
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
