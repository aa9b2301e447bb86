"""Messages to token ids, append-only: what was sampled is never decoded and encoded again.

The first prompt is the model's own chat template. Each later prompt is the tokens so far plus the suffix that the
template adds; when the template renders the conversation so far differently from before (it rewrote history), a new
segment starts with the prompt as the template has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from agentrl.api import (
    FORMATS,
    Completion,
    ConfigError,
    Message,
    Segment,
    ToolCall,
    ToolSpec,
    nearest,
    parse_tool_calls,
    write_tool_calls,
)
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

_PROBE = ToolSpec(
    name="probe",
    description="Look at a chosen word.",
    parameters={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
_ASKED = Message(role="user", content="go")


class ChatFormat:
    """A tokenizer's chat template, the ids that end a turn, and the way in which the model writes tool calls.

    stop_ids: the tokenizer's end-of-sequence id and those that the model's generation config names. What a template
    can show is found out by trying. One that knows no tools, not two calls at once, or calls in none of `FORMATS`
    gets the tools in its first message, calls as text, and a tool's answers as messages of the user; one that knows
    no reasoning gets it as part of the content.
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
        self.stop_strings = tuple(config.stop_strings)
        self.keep_stop_string = config.keep_stop_string
        self.show_tools = True  # while it is found out how the template shows them
        self._settle_tools(config.tool_format)
        self.show_tools = config.show_tools

    def _settle_tools(self, asked: str) -> None:
        """Find out by trying how the template shows tools, calls and answers."""
        if asked not in ("auto", *FORMATS):
            near = nearest(asked, FORMATS)
            raise ConfigError(f"chat.tool_format = '{asked}': unknown{near}; auto, {', '.join(FORMATS)}")
        self.knows_tools = self.knows_reasoning = self.orphans = True
        self.knows_reasoning = self._shows((_ASKED, Message(role="assistant", content="?", reasoning="9053")), "9053")
        found = self._read_back([asked] if asked != "auto" else FORMATS)
        self.knows_tools = found is not None
        self.tool_format = found or (asked if asked != "auto" else "hermes")
        if self.knows_tools:
            self.orphans = self._shows((_ASKED, Message(role="assistant", content="?"), _told("0", "9051")), "9051")

    def _read_back(self, formats: Iterable[str]) -> str | None:
        """The first format that reads the template's calls; None when it cannot show two of them and their answers."""
        calls = tuple(
            ToolCall(id=f"00000000{i}", name="probe", arguments={"word": word}) for i, word in enumerate("ab")
        )
        said = (_ASKED, Message(role="assistant", content="", tool_calls=calls))
        answered = (*said, _told(calls[0].id, "9051"), _told(calls[1].id, "9052"))
        if not (self._shows((_ASKED,), "chosen") and self._shows(answered, "9051", "9052")):
            return None
        text = self.render(said, generate=False, tools=(_PROBE,))
        turn = text[len(_common(text, self.render(said[:1], generate=True, tools=(_PROBE,)))) :]
        place, _ = self.last_mark(turn)
        turn = turn if place < 0 else turn[:place]
        wanted = [(one.name, dict(one.arguments)) for one in calls]
        for format in formats:
            reply = parse_tool_calls(turn, format, (_PROBE,))
            if reply.problem is None and [(one.name, dict(one.arguments)) for one in reply.calls] == wanted:
                return format
        return None

    def _shows(self, messages: Sequence[Message], *texts: str) -> bool:
        """Whether the template takes such a conversation and shows all of `texts`."""
        try:
            text = self.render(messages, generate=True, tools=(_PROBE,))
        except (TemplateError, TypeError, ValueError, KeyError):  # what templates raise for what they do not foresee
            return False
        return all(part in text for part in texts)

    def render(self, messages: Sequence[Message], *, generate: bool, tools: Sequence[ToolSpec] = ()) -> str:
        """The template's text for `messages`; `generate` adds the head of an assistant turn."""
        if self.system is not None and not (messages and messages[0].role == "system"):
            messages = [Message(role="system", content=self.system), *messages]
        tools = tools if self.show_tools else ()
        if tools and not self.knows_tools:
            messages = _with_tools(messages, tools, self.tool_format)
        if not self.knows_tools:
            messages = _without_tool_messages(messages, self.tool_format)
        elif not self.orphans:
            messages = _without_orphans(messages)
        text = self.tokenizer.apply_chat_template(
            [_to_template(message, self.knows_reasoning) for message in messages],
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
        """The text that was sampled, without the end-of-turn token, and without the stop string unless it is kept."""
        ids = completion.token_ids
        text = self.decode(ids[:-1] if completion.stop_token is not None else ids)
        if completion.stop_string is not None and not self.keep_stop_string:
            return text[: text.index(completion.stop_string)]
        return text

    def suffix(
        self, asked: Asked, said: Sequence[Message], now: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> tuple[str, str] | None:
        """What the template adds behind the last turn of `said` to make it `now`, and all of `now` as it shows it.

        said: the conversation up to and with the policy's last message. None when the template shows the conversation
        so far differently from how it was; calls may be written differently, for that a policy's JSON need only be
        right.
        """
        after = self.render(now, generate=True, tools=tools)
        head, stopped = asked.head, asked.stopped
        exact = head + asked.text + (stopped or "")
        if after.startswith(exact):
            return after[len(exact) :], after
        before = self.render(said, generate=False, tools=tools)
        # Some templates write more behind a last message than behind one in the middle: only what both show counts.
        common = _common(before, after)
        if not common.startswith(head):
            return None
        turn = common[len(head) :]
        parts = _parts(said[-1])
        if any(part not in turn for part in parts):
            return None
        inside = max(
            (turn.rfind(part) + len(part) for part in parts), default=0
        )  # the policy may have written a mark as text
        place, mark = self.last_mark(turn[inside:])
        if place >= 0:
            end = len(head) + inside + place + (len(mark) if stopped is not None else 0)
            return after[end:], after
        if common != before:
            return None
        behind = after[len(before) :]
        return (behind.removeprefix(stopped) if stopped is not None else behind), after

    def last_mark(self, text: str) -> tuple[int, str]:
        """The last end-of-turn mark of a rendered text and its place, or -1."""
        return max(((text.rfind(mark), mark) for mark in self.stop_marks if mark), default=(-1, ""))


def _common(first: str, second: str) -> str:
    """The longest text that both begin with."""
    length = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    return first[: min(len(first), len(second)) if length is None else length]


def _parts(message: Message) -> list[str]:
    """What a template shows of a message unless it drops some of it; calls it may well write in its own way."""
    parts = [message.reasoning or "", *re.split("</?think(?:ing)?>", message.content)]
    return [part.strip() for part in parts if part.strip()]


def _with_tools(messages: Sequence[Message], tools: Sequence[ToolSpec], format: str) -> list[Message]:
    """The tools as text in the first message: a system message, or before the user's words where there is none."""
    shown = "\n".join(json.dumps(_tool_to_template(one)["function"], ensure_ascii=False) for one in tools)
    text = _TOOLS_PROMPT.format(tools=shown, example=FORMATS[format].example)
    first = messages[0] if messages else Message(role="user", content="")
    joined = f"{first.content}\n\n{text}" if first.role == "system" else f"{text}\n\n{first.content}"
    return [Message(role=first.role, content=joined), *messages[1:]]


def _without_tool_messages(messages: Sequence[Message], format: str) -> list[Message]:
    """Calls as text; the answers of tools and what the user says behind them as one message of the user."""
    found: list[Message] = []
    answered = False
    for message in messages:
        content = message.content
        if message.tool_calls:
            content = "\n".join(part for part in (content, write_tool_calls(message.tool_calls, format)) if part)
        if message.role == "tool":
            content = f"<tool_response>\n{content}\n</tool_response>"
        role = "user" if message.role == "tool" else message.role
        if answered and role == "user":  # many templates want user and assistant to take turns
            found[-1] = Message(role="user", content=f"{found[-1].content}\n{content}")
            continue
        answered = message.role == "tool"
        found.append(Message(role=role, content=content, reasoning=message.reasoning))
    return found


def _without_orphans(messages: Sequence[Message]) -> list[Message]:
    """Answers to calls that could not be read as messages of the user, for templates that want a call before each."""
    called: set[str] = set()
    found = []
    for message in messages:
        called.update(one.id for one in message.tool_calls)
        orphan = message.role == "tool" and message.tool_call_id not in called
        found.append(Message(role="user", content=message.content) if orphan else message)
    return found


def _told(call_id: str, text: str) -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id)


def _to_template(message: Message, knows_reasoning: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None and knows_reasoning:
        entry["reasoning_content"] = message.reasoning
    elif message.reasoning is not None:
        entry["content"] = f"<think>\n{message.reasoning.strip()}\n</think>\n\n{message.content}"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A turn as text. head: the prompt. text: what was sampled, without its end-of-turn mark. stopped: that mark.

    Example: `Asked(head="<|im_start|>assistant\\n", text="4", stopped="<|im_end|>")`.
    """

    head: str
    text: str = ""
    stopped: str | None = None


class TokenLedger:
    """The tokens of one rollout as they come: prompts and observations are appended, completions are kept as sampled.

    After `prompt(...)` the open segment's ids are exactly what the engine must see.
    """

    def __init__(self, chat: ChatFormat) -> None:
        self.chat = chat
        self._closed: list[Segment] = []
        self._said: int | None = None
        self._dropped = False
        self._asked = Asked(head="")
        self._open_segment()

    def _open_segment(self) -> None:
        self._ids: list[int] = []
        self._sampled: list[bool] = []
        self._logprobs: list[float] = []
        self._turn: list[int] = []

    def prompt(self, messages: Sequence[Message], turn: int, tools: Sequence[ToolSpec] = ()) -> tuple[int, ...]:
        """Bring the open segment to the prompt for `messages` (the whole conversation) and return its ids."""
        found = None
        if self._said is not None and not self._dropped:
            # The conversation when the last completion was asked for, and the message that it became.
            said = messages[: self._said + 1]
            found = self.chat.suffix(self._asked, said, messages, tools)
        if found is None:
            if self._ids:
                self._close_segment()
            text = self.chat.render(messages, generate=True, tools=tools)
            found = text, text
        suffix, head = found
        self._asked = Asked(head=head)
        self._append(self.chat.encode(suffix), turn)
        self._said = len(messages)
        return tuple(self._ids)

    def complete(self, completion: Completion, turn: int) -> tuple[int, tuple[int, int]]:
        """Append what was sampled; returns the segment's index and the span of the sampled tokens."""
        start = len(self._ids)
        self._append(completion.token_ids, turn, completion.logprobs)
        mark = None if completion.stop_token is None else self.chat.decode([completion.stop_token])
        self._asked = Asked(head=self._asked.head, text=self.chat.text(completion), stopped=mark)
        self._dropped = completion.stop_string is not None and not self.chat.keep_stop_string
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
