"""The tool calls of a reply: what environments carry out and what the verifier `tool_calls` judges, by one reading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from agentrl.api.code import CLOSE_REASONING, LINE_OPENING, OPENING, open_reasoning
from agentrl.api.errors import DataError, nearest
from agentrl.api.schema import schema_error
from agentrl.api.tool_formats import FORMATS, CallSyntaxError, Plain, ToolFormat, Tools
from agentrl.api.types import ToolCall, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProblem:
    """Why the calls of a reply cannot be carried out; `text` can be shown to the policy.

    kind: `malformed` (an attempt at a call that is none), `unclosed` (a call or the reasoning before it was cut),
    `forged` (the reply holds a tool's answer that no tool gave), `unknown_tool`, `schema` (missing, strange or mistyped
    arguments), `too_complex`.

    Example: `CallProblem(kind="unknown_tool", text="there is no tool 'ad'; did you mean 'add'?")`.
    """

    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """A reply taken apart. With a problem there are no calls: a reply is carried out whole or not at all.

    content: the text around the calls. reasoning: what stood in a thinking section, or None.

    Example: `ToolReply(content="I will add.", calls=(ToolCall(id="call_0", name="add", arguments={"a": 1, "b": 2}),))`.
    """

    content: str
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    problem: CallProblem | None = None


MOST_CALLS = 1000
"""Calls and attempts at one in a reply; reading each costs time in proportion to what stands before it."""
_FORGED = re.compile(r"</?tool_response>|\[TOOL_RESULTS\]|<\|im_start\|>|<\|start_header_id\|>", re.IGNORECASE)
_ATTEMPT = re.compile(
    r"</?(?:tool_?calls?|tools|function_?calls?)>|<function=|\[TOOL_CALLS\]|<\|python_(?:tag|start)\|>"
    r'|\{\s*"name"\s*:\s*"[^"]*"\s*,\s*"(?:arguments|parameters)"\s*:'
    r'|\{\s*"(?:arguments|parameters)"\s*:\s*\{[^{}]*\}\s*,\s*"name"\s*:',
    re.IGNORECASE,
)
"""Signs of a call in any format: text that holds one and is no call was meant as a call."""
_PYTHON_ATTEMPT = re.compile(r"\[\s*[A-Za-z_][\w.]*\(|\A\s*[A-Za-z_][\w.]*\((?:\s*\w+\s*=|\s*\)\s*\Z)")


def parse_tool_calls(text: str, format: str, tools: Sequence[ToolSpec]) -> ToolReply:
    """Take a reply apart by the rules of a format (a key of `FORMATS`). Names and types are `check_tool_calls`' matter.

    Reasoning is cut first, and a call inside it is no call; a closing tag of reasoning inside a call's arguments is
    text. What looks like a call of any format and is none of this one is a problem, never an answer. Raises DataError
    for an unknown format.

    >>> parse_tool_calls('<tool_call>{"name": "now", "arguments": {}}</tool_call>', "hermes", ()).calls[0].name
    'now'
    """
    if format not in FORMATS:
        raise DataError(f"unknown tool-call format '{format}'{nearest(format, FORMATS)}: {', '.join(FORMATS)}")
    form = FORMATS[format]
    found = _Reading(text, form, {tool.name: tool for tool in tools})
    found.read()
    content, reasoning = "".join(found.content).strip(), "".join(found.reasoning).strip() or None
    problem = found.problem
    if problem is None and _FORGED.search(content):
        problem = CallProblem(kind="forged", text="the reply holds a tool's answer; wait for the tool to give it")
    if problem is None and _attempted(content, form):
        problem = CallProblem(kind="malformed", text=f"this is no tool call; write it as\n{form.example}")
    calls = () if problem else found.calls
    numbered = tuple(ToolCall(id=f"call_{i}", name=name, arguments=args) for i, (name, args) in enumerate(calls))
    return ToolReply(content=content, reasoning=reasoning, calls=numbered, problem=problem)


def check_tool_calls(calls: Sequence[ToolCall], tools: Sequence[ToolSpec]) -> CallProblem | None:
    """The first call that no tool takes: an unknown name, or arguments that its JSON schema refuses. None when all fit.

    >>> check_tool_calls([ToolCall(id="", name="now", arguments={})], ())
    CallProblem(kind='unknown_tool', text="there is no tool 'now'; there are no tools")
    """
    known = {tool.name: tool for tool in tools}
    for call in calls:
        if call.name not in known:
            there = f"the tools are {', '.join(known)}" if known else "there are no tools"
            near = nearest(call.name, known) or f"; {there}"
            return CallProblem(kind="unknown_tool", text=f"there is no tool {call.name[:100]!r}{near}")
        try:
            error = schema_error(dict(known[call.name].parameters), dict(call.arguments))
        except (RecursionError, OverflowError) as failure:
            return CallProblem(kind="too_complex", text=f"{call.name}: arguments too complex to check: {failure}")
        if error is not None:
            return CallProblem(kind="schema", text=f"{call.name}: {error}")
    return None


def write_tool_calls(calls: Sequence[ToolCall], format: str) -> str:
    """The text of calls in a format, which `parse_tool_calls` reads back; for demonstrations.

    >>> write_tool_calls([ToolCall(id="", name="add", arguments={"a": 1})], "pythonic")
    '[add(a=1)]'
    """
    return FORMATS[format].write([(call.name, dict(call.arguments)) for call in calls]) if calls else ""


def _attempted(content: str, form: ToolFormat) -> bool:
    return bool(_ATTEMPT.search(content) or (form.name == "pythonic" and _PYTHON_ATTEMPT.search(content)))


class _Reading:
    """One pass over a reply."""

    def __init__(self, text: str, form: ToolFormat, tools: Tools) -> None:
        self.text, self.form, self.tools = text, form, tools
        self.content: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[Plain] = []
        self.problem: CallProblem | None = None
        self.attempts = 0

    def read(self) -> None:
        if self.form.mark is None:
            self._whole()
        else:
            self._marked(self.form.mark)

    def _marked(self, mark: str) -> None:
        signs = re.compile(
            rf"(?P<mark>{re.escape(mark)})|(?P<close>{CLOSE_REASONING.pattern})|{LINE_OPENING.pattern}",
            re.IGNORECASE | re.MULTILINE,
        )
        place, fresh = 0, True
        while True:
            # Behind a closing tag an opening one need not begin a line.
            sign = (OPENING.match(self.text, place) if fresh else None) or signs.search(self.text, place)
            if sign is None:
                break
            self.content.append(self.text[place : sign.start()])
            kind = sign.lastgroup
            if kind == "mark" and sign[0] != mark:
                self.content.append(sign[0])
                place = sign.end()
            else:
                turn = {"mark": self._call, "close": self._forget}.get(kind or "", self._reason)
                place = turn(sign.end())
            fresh = kind != "mark"
        self.content.append(self.text[place:])

    def _call(self, place: int) -> int:
        if self.problem is not None:
            return place
        self.attempts += 1
        if self.attempts > MOST_CALLS:
            self.problem = CallProblem(kind="too_complex", text=f"more than {MOST_CALLS} calls")
            return len(self.text)
        try:
            calls, end = self.form.read(self.text, place, self.tools)
        except CallSyntaxError as error:
            self.problem = CallProblem(kind=error.kind, text=str(error))
            return place
        self.calls += calls
        return end

    def _reason(self, place: int) -> int:
        closing = CLOSE_REASONING.search(self.text, place)
        end = len(self.text) if closing is None else closing.start()
        self.reasoning.append(self.text[place:end])
        if closing is None:
            self.problem = CallProblem(kind="unclosed", text="the reasoning is never closed")
            return end
        return closing.end()

    def _forget(self, place: int) -> int:
        """A closing tag without an opening one: the template opened the reasoning, and all so far was part of it."""
        self.reasoning.append("".join(self.content))
        self.content, self.calls, self.problem = [], [], None
        return place

    def _whole(self) -> None:
        """The calls are the message: what is left after reasoning either parses to its end or is content."""
        place = 0
        while (opening := open_reasoning(self.text, place)) is not None and not self.text[
            place : opening.start()
        ].strip():
            place = self._reason(opening.end())
        if self.problem is not None:
            return
        rest = self.text[place:]
        closings = list(CLOSE_REASONING.finditer(rest))
        error = self._try(rest)
        # A closing tag may be part of an argument: the whole is tried first.
        if error is not None and closings:
            self.reasoning.append(rest[: closings[-1].start()])
            rest = rest[closings[-1].end() :]
            error = self._try(rest)
        if error is not None:
            self.content.append(rest)
            if _attempted(rest, self.form):
                self.problem = CallProblem(kind=error.kind, text=str(error))

    def _try(self, text: str) -> CallSyntaxError | None:
        try:
            self.calls = self.form.read(text, 0, self.tools)[0]
        except CallSyntaxError as error:
            return error
        return None
