"""What of a long conversation the policy is shown before each of its turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel

from agentrl.api.env import Options
from agentrl.api.types import Message, Turn


class History:
    """Base class of histories. `view` is a pure function: what was shown can be found again from a saved rollout.

    A view that does not begin with the whole of the one before costs a new segment of tokens, so one that drops
    something at every turn makes a rollout as long as the sum of its prompts.
    """

    Options: ClassVar[type[BaseModel]] = Options

    def __init__(self, options: BaseModel) -> None:
        self.options = options

    def view(self, opening: Sequence[Message], turns: Sequence[Turn]) -> Sequence[Message]:
        """The conversation as the policy sees it. Fast and sync: it runs on the event loop.

        opening: what `reset` gave. turns: all turns so far, each with its action and observation. Do not end with an
        assistant's message: the policy's next one comes behind.
        """
        raise NotImplementedError(f"{type(self).__name__}.view")
