"""Judges the form of a reply by a small grammar."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import field_validator

from agentrl.api import Example, JSONTextError, Options, Rollout, Verdict, Verifier
from agentrl.api.json_text import read_json_at
from agentrl_verifiers.answers import answer_verdict

_WORDS = ("text", "boxed", "json", "code")
_TOKEN = re.compile(
    r"\s*(?:(?P<close>\))|(?:<(?P<tag>[A-Za-z][\w-]*)>|(?P<word>[a-z]+))(?P<optional>\?)?(?P<open>\()?)"
)
_BRACES = re.compile(r"\\[{}\\]|[{}]")
_FENCE_END = re.compile(r"^[ \t]*```[ \t]*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a grammar. kind: text, boxed, json, code or tag; `inside` are the elements of a tag.

    Example: `Element("tag", "answer", False, (Element("json", "", False, ()),))` for `<answer>(json)`.
    """

    kind: str
    tag: str
    optional: bool
    inside: tuple[Element, ...]

    @property
    def shown(self) -> str:
        return (
            f"<{self.tag}>"
            if self.kind == "tag"
            else {"boxed": r"\boxed{", "code": "a fenced block"}.get(self.kind, self.kind)
        )


def read_grammar(text: str) -> tuple[Element, ...]:
    """The elements of a grammar. Raises ValueError for what is none.

    >>> [element.tag for element in read_grammar("<think> <answer>(json)")]
    ['think', 'answer']
    """
    elements, place = _read_elements(text, 0, depth=0)
    if text[place:].strip():
        raise ValueError(f"grammar {text!r}: a bracket is closed that was never opened")
    if not elements:
        raise ValueError("the grammar is empty")
    return elements


def _read_elements(text: str, place: int, depth: int) -> tuple[tuple[Element, ...], int]:
    elements: list[Element] = []
    while text[place:].strip():
        token = _TOKEN.match(text, place)
        if token is None or (token["word"] and token["word"] not in _WORDS) or (token["word"] and token["open"]):
            raise ValueError(
                f"grammar {text!r}, character {place}: an element is <tag>, <tag>(elements), {', '.join(_WORDS)}, "
                f"each with '?' behind it when it may be missing (<tag>?(elements))"
            )
        if token["close"]:
            if depth == 0:
                return tuple(elements), place
            return _no_neighbours(text, elements), token.end()
        place = token.end()
        inside: tuple[Element, ...] = (Element("text", "", False, ()),)
        if token["open"]:
            inside, place = _read_elements(text, place, depth + 1)
        if not token["tag"]:
            inside = ()
        elements.append(
            Element("tag" if token["tag"] else token["word"], token["tag"] or "", bool(token["optional"]), inside)
        )
    if depth:
        raise ValueError(f"grammar {text!r}: a bracket is never closed")
    return _no_neighbours(text, elements), place


def _no_neighbours(text: str, elements: Sequence[Element]) -> tuple[Element, ...]:
    for first, second in itertools.pairwise(elements):
        if {first.kind, second.kind} <= {"text", "json"}:
            raise ValueError(f"grammar {text!r}: nothing tells where {first.kind} ends and {second.kind} begins")
    return tuple(elements)


class _Mismatch(ValueError):
    """The reply is not of the form; the text says where."""


class _Reader:
    """Reads a reply along a grammar, without backtracking: free text ends at the next mark of the grammar."""

    def __init__(self, text: str, grammar: tuple[Element, ...]) -> None:
        self.text = text
        marks = sorted({mark for element in _all(grammar) for mark in _marks(element)})
        self.marks = re.compile("|".join(marks) or r"(?!)", re.MULTILINE)

    def read(self, elements: tuple[Element, ...], place: int) -> int:
        for element in elements:
            begin = self._skip(place)
            end = self._one(element, begin)
            if end is None and not element.optional:
                raise _Mismatch(f"{element.shown} is missing at character {begin}")
            place = begin if end is None else end
        return self._skip(place)

    def _skip(self, place: int) -> int:
        while place < len(self.text) and self.text[place].isspace():
            place += 1
        return place

    def _one(self, element: Element, place: int) -> int | None:
        """Where the element that begins at `place` ends, or None when it does not begin there."""
        if element.kind == "tag":
            return self._tag(element, place)
        if element.kind == "boxed":
            return self._boxed(place)
        if element.kind == "code":
            return self._code(place)
        if element.kind == "json":
            try:
                return read_json_at(self.text, place)[1]
            except JSONTextError as error:
                if element.optional:
                    return None
                raise _Mismatch(str(error)) from error
        mark = self.marks.search(self.text, place)
        end = len(self.text) if mark is None else mark.start()
        return end if self.text[place:end].strip() else None

    def _tag(self, element: Element, place: int) -> int | None:
        opening, closing = f"<{element.tag}>", f"</{element.tag}>"
        if not self.text.startswith(opening, place):
            return None
        end = self.read(element.inside, place + len(opening))
        if not self.text.startswith(closing, end):
            raise _Mismatch(f"{closing} is expected at character {end}")
        return end + len(closing)

    def _boxed(self, place: int) -> int | None:
        if not self.text.startswith(r"\boxed{", place):
            return None
        depth = 0
        for brace in _BRACES.finditer(self.text, place + len(r"\boxed")):
            depth += {"{": 1, "}": -1}.get(brace[0], 0)
            if depth == 0:
                if not self.text[place + len(r"\boxed{") : brace.start()].strip():
                    raise _Mismatch("the box is empty")
                return brace.end()
        raise _Mismatch("the box is never closed")

    def _code(self, place: int) -> int | None:
        if not self.text.startswith("```", place):
            return None
        line = self.text.find("\n", place)
        end = _FENCE_END.search(self.text, line + 1) if line >= 0 else None
        if end is None:
            raise _Mismatch("the fenced block is never closed")
        if not self.text[line : end.start()].strip():
            raise _Mismatch("the fenced block is empty")
        return end.end()


def _all(elements: tuple[Element, ...]) -> list[Element]:
    return [found for element in elements for found in (element, *_all(element.inside))]


def _marks(element: Element) -> list[str]:
    if element.kind == "tag":
        return [f"</?{re.escape(element.tag)}>"]
    return {"boxed": [r"\\boxed\{"], "code": [r"^[ \t]*```"]}.get(element.kind, [])


class FormatOptions(Options):
    """Options of `format`. grammar: what a reply must be. opened: what the prompt's template wrote before it."""

    grammar: str = "<think> <answer>"
    opened: str = ""

    @field_validator("grammar")
    @classmethod
    def _read(cls, grammar: str) -> str:
        read_grammar(grammar)
        return grammar


class Format(Verifier):
    """Score 1.0 when the reply, reasoning included, has the form of `grammar`, else 0.0; its content is not judged.

    A grammar is a sequence of elements with blanks between them: `<tag>` is a block `<tag>...</tag>` with text in it,
    `<tag>(...)` one with these elements in it; `text` is text, `boxed` is `\\boxed{...}`, `json` a strict JSON value,
    `code` a fenced block. None may be empty. `?` behind an element lets it be missing. Each element stands exactly
    once and nothing else may stand beside them: a repeated tag fails. Example: `<think> text? boxed text?`.
    """

    name: ClassVar[str] = "format"
    Options = FormatOptions

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        right = "<think>2 + 2 is 4.</think>\n<answer>4</answer>"
        return (
            Example(kind="gold", task={}, response=right, passes=True),
            Example(kind="near miss", task={}, response=f"Well: {right}", passes=False),
            Example(kind="near miss", task={}, response="<think>2 + 2 is 4.</think>\n<answer></answer>", passes=False),
            Example(kind="hack", task={}, response=f"{right}\n<answer>4</answer>", passes=False),
        )

    def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout."""
        began = time.monotonic()
        assert isinstance(self.options, FormatOptions)
        text = self.options.opened + rollout.response
        grammar = read_grammar(self.options.grammar)
        reason, detail = "passed", ""
        try:
            end = _Reader(text, grammar).read(grammar, 0)
            if end != len(text):
                raise _Mismatch(f"something follows the last element at character {end}")
        except _Mismatch as error:
            reason, detail = ("wrong_format" if text.strip() else "no_answer"), str(error)
        return answer_verdict(self.name, reason, detail, time.monotonic() - began)
