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
    others: the responses of the other members, for a verifier that judges whole groups.

    Example: `Example(kind="near miss", task={"answer": "42"}, response="The answer is 43.", passes=False)`.
    """

    kind: str
    task: Mapping[str, JSON]
    response: str
    passes: bool
    evidence: JSON = None
    others: tuple[str, ...] = ()


class Verifier:
    """Base class of verifiers. `verify` and `verify_group` may be sync (run off the event loop) or async.

    scope: `rollout` judges each rollout by itself, as soon as it ends, with `verify`; `group` judges all rollouts of a
    task together, once, with `verify_group`. A verdict is a function of the saved rollout (of the saved group) alone,
    so that it can be repeated. What the policy can cause is a fail with a reason; only our own failure is unjudged
    (`score=None`). `correctness=True` promises that empty, junk and echoed responses score 0. timeout: seconds by the
    clock after which a verdict is given up as unjudged, the waiting for services included; a safety net.
    """

    Options: ClassVar[type[BaseModel]] = Options
    name: ClassVar[str] = ""
    needs: ClassVar[frozenset[str]] = frozenset()
    correctness: ClassVar[bool] = False
    scope: ClassVar[str] = "rollout"
    timeout: ClassVar[float] = 300.0

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

    def verify_group(self, rollouts: Sequence[Rollout]) -> Sequence[Verdict] | Awaitable[Sequence[Verdict]]:
        """Judge the rollouts of one task together: one verdict for each, in their order.

        `rollouts` are in order of their index and never empty. Members that failed are not among them, so there may be
        fewer than were sampled.
        """
        raise NotImplementedError(f"{type(self).__name__}.verify_group")
