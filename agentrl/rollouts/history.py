"""The built-in histories: all of the conversation, or its last turns with a note of what came before."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Sequence

from pydantic import Field

from agentrl.api import History, Message, Options, Turn, write_tool_calls


class Full(History):
    """The whole conversation."""

    def view(self, opening: Sequence[Message], turns: Sequence[Turn]) -> Sequence[Message]:
        return [*opening, *(message for turn in turns for message in (turn.action, *turn.observation))]


class WindowOptions(Options):
    """Options of `Window`. Example: `WindowOptions(turns=6, slack=2)` shows six to eight turns."""

    turns: int = Field(4, ge=1, description="turns that are always shown whole")
    slack: int = Field(4, ge=0, description="further turns that may gather before all of them leave at once")
    characters: int = Field(160, ge=0, description="of each message of a turn that left; 0 leaves only notes")


class Window(History):
    """The opening, a note of the turns that left, and the last turns whole.

    The note stands at the end of the opening's last message. It holds the last text that the policy wrote between
    `<summary>` and `</summary>` (its running summary), for each turn since then the beginning of what was said and
    answered, and the progress marks of all turns that left: texts under `info["progress"]` of the environment's steps.
    """

    Options = WindowOptions
    options: WindowOptions

    def view(self, opening: Sequence[Message], turns: Sequence[Turn]) -> Sequence[Message]:
        step = self.options.slack + 1
        gone = max(0, len(turns) - self.options.turns) // step * step
        shown = Full(self.options).view(opening, turns[gone:])
        if gone == 0:
            return shown
        note = "\n".join(self._note(turns[:gone]))
        last = opening[-1] if opening else None
        if last is None or last.role != "user":
            return [*opening, Message(role="user", content=note), *shown[len(opening) :]]
        return [
            *opening[:-1],
            dataclasses.replace(last, content=f"{last.content}\n\n{note}"),
            *shown[len(opening) :],
        ]

    def _note(self, turns: Sequence[Turn]) -> Iterator[str]:
        yield f"[Turns 1 to {len(turns)} are not shown."
        summaries = [(place, written) for place, turn in enumerate(turns) if (written := _summary(turn.action.content))]
        told = 0
        if summaries:
            told = summaries[-1][0] + 1
            yield f"Your summary in turn {told}: {summaries[-1][1]}"
        if self.options.characters:
            for number, turn in enumerate(turns[told:], told + 1):
                yield f"Turn {number}: {' -> '.join(self._excerpts(turn))}"
        marks = [str(turn.info["progress"]) for turn in turns if turn.info.get("progress")]
        if marks:
            yield f"Progress: {'; '.join(marks)}"
        yield "]"

    def _excerpts(self, turn: Turn) -> Iterator[str]:
        calls = write_tool_calls(turn.action.tool_calls, "json") if turn.action.tool_calls else ""
        for text in (f"{turn.action.content} {calls}", *(message.content for message in turn.observation)):
            words = " ".join(text.split())
            yield words if len(words) <= self.options.characters else words[: self.options.characters] + "..."


def _summary(text: str) -> str | None:
    """What stands in the last complete pair of summary tags."""
    found = re.findall(r"<summary>((?:(?!<summary>).)*?)</summary>", text, re.DOTALL)
    return found[-1].strip() if found else None


FULL = Full(Options())
"""The history of rollouts that are not told otherwise."""
