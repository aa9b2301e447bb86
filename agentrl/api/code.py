"""Finding the program in a model's reply: pure text in, text out. Nothing here compiles or runs what it reads."""

from __future__ import annotations

import re
from dataclasses import dataclass

_TAG = r"(?:think|thinking|reasoning)"
OPENING = re.compile(rf"[ \t]*<{_TAG}>", re.IGNORECASE)
LINE_OPENING = re.compile(rf"^{OPENING.pattern}", re.IGNORECASE | re.MULTILINE)
CLOSE_REASONING = re.compile(rf"</{_TAG}>", re.IGNORECASE)
_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})(?P<info>.*)$")
_PYTHON = re.compile(r"^\{?\.?(?:python|py)[\d.]*\}?$", re.IGNORECASE)
_CODE_LINE = re.compile(
    r"^(?:def |class |import |from |print\(|for |while |if |with |try:|async |return |@\w|#|"
    r"[A-Za-z_][\w.\[\]'\", ]*\s*(?:[-+*/|&^%]|//|\*\*|<<|>>)?=[^=]|[A-Za-z_][\w.]*\()"
)


@dataclass(frozen=True, slots=True)
class _Block:
    """A fenced block: its language word (lower case, may be empty) and its content."""

    language: str
    content: str


def strip_reasoning(text: str) -> str | None:
    """Return what follows the reasoning of a reply, or None when the reasoning was never closed.

    A `<think>` (or `<thinking>`, `<reasoning>`) that begins a line opens reasoning, up to its first closing tag. A
    closing tag without an opening one closes reasoning that the prompt's template opened: all before it goes.

    >>> strip_reasoning("<think>try 1</think>\\nThe answer is 2.")
    '\\nThe answer is 2.'
    >>> strip_reasoning("<think>still thinking") is None
    True
    """
    kept: list[str] = []
    place = 0
    while (opened := open_reasoning(text, place)) is not None:
        kept.append(text[place : opened.start()])
        closed = CLOSE_REASONING.search(text, opened.end())
        if closed is None:
            return None
        place = closed.end()
    kept.append(text[place:])
    answer = "".join(kept)
    return CLOSE_REASONING.split(answer)[-1]


def open_reasoning(text: str, place: int) -> re.Match[str] | None:
    """The next opening tag of reasoning from `place` on, which is the text's start or behind a closing tag.

    It begins a line, or stands at `place`.
    """
    return OPENING.match(text, place) or LINE_OPENING.search(text, place)


def extract_program(text: str) -> str | None:
    """Return the Python program that a reply submits, or None when it submits none.

    The rules: reasoning is cut first; the last fenced block tagged as Python wins; without one, the last block that
    has no tag; blocks in other languages never count. A fence opens and closes at the start of a line, so backticks
    inside the code are harmless. A block that is never closed runs to the end. Blocks are not joined, an earlier one
    does not stand in for a broken last one, and console transcripts are not repaired. A reply without any fence is
    the program itself when it has a line that looks like Python.

    >>> extract_program("Here:\\n```python\\nprint(3)\\n```\\nRun it with\\n```bash\\npython a.py\\n```")
    'print(3)\\n'
    >>> extract_program("I could not finish.") is None
    True
    """
    answer = strip_reasoning(text)
    if answer is None:
        return None
    blocks = _fenced_blocks(answer)
    if blocks:
        python = [block for block in blocks if _PYTHON.match(block.language)]
        candidates = python or [block for block in blocks if not block.language]
        program = candidates[-1].content if candidates else ""
    else:
        program = answer if any(_CODE_LINE.match(line) for line in answer.splitlines()) else ""
    return program if program.strip() else None


def _fenced_blocks(text: str) -> list[_Block]:
    """All fenced blocks of a Markdown text, in order (CommonMark, but a fence may be indented, as in a list)."""
    blocks: list[_Block] = []
    mark, indent, language = "", 0, ""
    content: list[str] = []
    for line in text.split("\n"):
        fence = _FENCE.match(line.rstrip())
        if not mark:
            if fence and not ("`" in fence["mark"] and "`" in fence["info"]):
                mark, indent, content = fence["mark"], len(fence["indent"]), []
                language = (fence["info"].split() or [""])[0].lower()
        elif fence and not fence["info"] and fence["mark"].startswith(mark) and len(fence["indent"]) <= indent + 3:
            blocks.append(_Block(language, "".join(content)))
            mark = ""
        else:
            content.append(_without_indent(line, indent) + "\n")
    if mark:
        blocks.append(_Block(language, "".join(content)))
    return blocks


def _without_indent(line: str, width: int) -> str:
    """Remove at most `width` leading blanks: the fence's own indentation, never the program's."""
    blanks = len(line) - len(line.lstrip(" \t"))
    return line[min(width, blanks) :]
