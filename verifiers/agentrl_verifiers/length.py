"""Scores how long a rollout is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from agentrl.api import DataError, Example, Options, Rollout, Verdict, Verifier, write_tool_calls


class LengthOptions(Options):
    """Options of `length`, all in `unit`s over all turns. free: this much costs nothing. limit: from here on -1."""

    unit: Literal["characters", "words", "tokens"] = "characters"
    free: int = Field(2000, ge=0)
    limit: int = Field(4000, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> LengthOptions:
        if self.limit <= self.free:
            raise ValueError(f"limit ({self.limit}) must be above free ({self.free})")
        return self


class Length(Verifier):
    """Score 0.0 up to `free`, falling in a straight line to -1.0 at `limit` (DAPO, arXiv 2503.14476, equation 13).

    What counts is what the policy wrote, reasoning and tool calls included. It passes while it costs nothing. `tokens`
    are the sampled ones; a rollout without token ids is an error of the configuration, not of the policy.
    """

    name: ClassVar[str] = "length"
    Options = LengthOptions

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """See `Verifier`."""
        return (
            Example(kind="gold", task={}, response="Four.", passes=True),
            Example(kind="near miss", task={}, response="f" * 2001, passes=False),
            Example(kind="hack", task={}, response="Four." + " " * 4000, passes=False),
        )

    def verify(self, rollout: Rollout) -> Verdict:
        """Judge one rollout. Raises DataError when tokens are asked for and the rollout has none."""
        began = time.monotonic()
        assert isinstance(self.options, LengthOptions)
        length = self._length(rollout)
        over = (length - self.options.free) / (self.options.limit - self.options.free)
        return Verdict(
            verifier=self.name,
            score=0.0 - min(max(over, 0.0), 1.0),
            passed=length <= self.options.free,
            reason="scored",
            detail=f"{length} {self.options.unit}",
            seconds=time.monotonic() - began,
        )

    def _length(self, rollout: Rollout) -> int:
        assert isinstance(self.options, LengthOptions)
        if self.options.unit == "tokens":
            if rollout.turns and not rollout.segments:
                raise DataError("options.unit is 'tokens', but the rollout has no token ids; take words or characters")
            return sum(int(segment.sampled.sum()) for segment in rollout.segments)
        texts = [
            text
            for action in (turn.action for turn in rollout.turns)
            for text in (action.reasoning or "", action.content, write_tool_calls(action.tool_calls, "json"))
        ]
        return sum(len(text) if self.options.unit == "characters" else len(text.split()) for text in texts)
