"""The verifier contract: a saved rollout in, a verdict out."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel

from agentrl.api.env import Options
from agentrl.api.services import Services
from agentrl.api.types import JSON, Rollout, Task, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A response to a task, and what must become of it; `agentrl verifier check` judges it.

    kind: `gold`, `near miss` (wrong by little) or `hack` (made to pass without being right). task: the data of the
    task, as in a line of `agentrl verify`. evidence: what the environment left, for verifiers that judge that.

    Example: `Example(kind="near miss", task={"answer": "42"}, response="The answer is 43.", passes=False)`.
    """

    kind: str
    task: Mapping[str, JSON]
    response: str
    passes: bool
    evidence: JSON = None


class Verifier:
    """Base class of verifiers. `verify` may be sync (run off the event loop) or async.

    A verdict is a function of the saved rollout alone, so that it can be repeated. What the policy can cause is a
    fail with a reason; only our own failure is unjudged (`score=None`). `correctness=True` promises that empty, junk
    and echoed responses score 0.
    """

    Options: ClassVar[type[BaseModel]] = Options
    name: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    correctness: ClassVar[bool] = False

    def __init__(self, options: BaseModel, services: Services) -> None:
        self.options = options
        self.services = services

    @classmethod
    def examples(cls) -> Sequence[Example]:
        """Responses with the right verdict: at least a gold one, and what has to fail. They show what is judged how."""
        return ()

    def check_task(self, task: Task) -> None:
        """Raise `DataError` for a task that this verifier cannot judge (gold that does not parse, a missing key).

        Asked when tasks are loaded, so that bad data is an error at the start and never a silent 0.
        """

    def verify(self, rollout: Rollout) -> Verdict | Awaitable[Verdict]:
        """Judge one rollout."""
        raise NotImplementedError(f"{type(self).__name__}.verify")
