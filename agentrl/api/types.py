"""The nouns: a Task is attempted as Rollouts, made of Turns whose tokens lie in Segments.

Everything here is frozen; a stage returns a new type and fills nothing in later. `True` in a mask means "sampled by
the policy". Say *rollout* for one attempt at one task.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

JSON: TypeAlias = Any
"""Plain data that `json.dumps` accepts: None, bool, int, float, str, list, and dict with text keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that the policy asks for.

    Example: `ToolCall(id="call_0", name="add", arguments={"a": 1, "b": 2})`.
    """

    id: str
    name: str
    arguments: Mapping[str, JSON]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """What the policy is told about a tool; `parameters` is a JSON schema of type object.

    Example: `ToolSpec(name="add", description="Add two numbers.", parameters={"type": "object", "properties":
    {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]})`.
    """

    name: str
    description: str
    parameters: Mapping[str, JSON]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat message. `role` is system, user, assistant or tool.

    Example: `Message(role="user", content="Write f(a, b) that returns a + b.")`.
    """

    role: str
    content: str
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem. `answer` and `data` are for environment and verifier; the policy sees `messages` only.

    `tags` name the groups by which results are reported (`skill:lists`, `template:unseen`).

    Example: `Task(id="basic/test/7", messages=(Message(role="user", content="..."),), data={"cases": [...]},
    tags=("skill:lists",))`.
    """

    id: str
    messages: tuple[Message, ...]
    answer: JSON | None = None
    data: Mapping[str, JSON] = field(default_factory=dict)
    tags: tuple[str, ...] = ()


class Stop(enum.Enum):
    """Why a rollout ended."""

    FINISHED = "finished"
    """The environment said terminated."""
    LENGTH = "length"
    """A turn reached its token limit without an end-of-turn token."""
    CONTEXT = "context"
    """The next prompt would not leave room in the model's context."""
    MAX_TURNS = "max_turns"
    """The turn limit of the rollout was reached."""
    BUDGET = "budget"
    """The token limit of the rollout was reached."""
    PARSE_ERROR = "parse_error"
    """The policy wrote a malformed tool call and the configuration says to stop."""
    ENV_TRUNCATED = "env_truncated"
    """The environment said truncated."""
    ENV_ERROR = "env_error"
    """The environment raised: a bug of its author."""
    ENGINE_ERROR = "engine_error"
    """The engine failed to sample."""
    TIMEOUT = "timeout"
    """The wall-clock limit of the rollout was reached."""
    CANCELLED = "cancelled"
    """The run was interrupted."""

    @property
    def truncated(self) -> bool:
        """True when a limit cut the rollout; it is still judged."""
        return self in _TRUNCATED

    @property
    def failed(self) -> bool:
        """True when the rollout is not the policy's doing; it is neither judged nor trained on."""
        return self in _FAILED


_TRUNCATED = frozenset({Stop.LENGTH, Stop.CONTEXT, Stop.MAX_TURNS, Stop.BUDGET, Stop.ENV_TRUNCATED, Stop.TIMEOUT})
_FAILED = frozenset({Stop.ENV_ERROR, Stop.ENGINE_ERROR, Stop.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """Exactly what the engine sampled for one turn.

    token_ids: sampled ids, the end-of-turn token included when it was sampled.
    logprobs: natural log-probability of each id under the distribution it was drawn from (temperature applied).
    finish: `stop` (stop token or string), `length`, or `abort`.
    stop_token / stop_string: what stopped it, when `finish` is `stop`. The tokens of a stop string are kept: they
        were sampled.
    versions: ((start, policy version), ...): from which token on which weights sampled.

    Example: `Completion(token_ids=(12, 7, 2), logprobs=(-0.1, -0.7, -0.01), finish="stop", stop_token=2,
    temperature=1.0, versions=((0, 3),))`.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str
    stop_token: int | None = None
    stop_string: str | None = None
    temperature: float = 1.0
    versions: tuple[tuple[int, int], ...] = ((0, 0),)

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(f"{len(self.token_ids)} token ids but {len(self.logprobs)} log-probabilities")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Segment:
    """One append-only token sequence of a rollout. A new one starts when the next prompt is no extension of the last.

    ids: int32 [n]; sampled: bool [n], True where the policy sampled the token; logprobs: float32 [n], 0 where not
    sampled; turn: int16 [n], the turn whose action or observation the token belongs to (the first prompt has turn 0).

    Example: prompt of 3 tokens, 2 sampled: `ids=[5, 9, 4, 7, 2], sampled=[F, F, F, T, T], turn=[0, 0, 0, 0, 0]`.
    """

    ids: npt.NDArray[np.int32]
    sampled: npt.NDArray[np.bool_]
    logprobs: npt.NDArray[np.float32]
    turn: npt.NDArray[np.int16]

    def __post_init__(self) -> None:
        lengths = {len(self.ids), len(self.sampled), len(self.logprobs), len(self.turn)}
        if len(lengths) != 1:
            raise ValueError(f"the columns of a segment differ in length: {sorted(lengths)}")

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One action of the policy and what came back. Its tokens are `segments[segment].ids[span[0]:span[1]]`.

    observation: the new messages only; empty when the rollout ended here. info: JSON from the environment's step.

    Example: `Turn(segment=0, span=(41, 60), completion=..., action=Message(role="assistant", content="..."),
    observation=(Message(role="user", content="f(2) returned 3"),), env_reward=0.0, info={"passed": False})`.
    """

    segment: int
    span: tuple[int, int]
    completion: Completion | None
    action: Message
    observation: tuple[Message, ...] = ()
    env_reward: float = 0.0
    info: Mapping[str, JSON] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """One attempt at one task; a verdict is a function of this record alone.

    index: place among the rollouts of its group. seed: the environment's seed, the same for the whole group.
    evidence: JSON that the environment left for the verifier before it was closed. error: traceback when
    `stop.failed`.

    Example: `Rollout(task=task, index=0, seed=17, turns=(turn,), segments=(segment,), stop=Stop.FINISHED,
    evidence={"program": "def f(a, b): ..."})`.
    """

    task: Task
    index: int
    seed: int
    turns: tuple[Turn, ...]
    segments: tuple[Segment, ...]
    stop: Stop
    evidence: JSON = None
    error: str | None = None

    @property
    def sampled_tokens(self) -> int:
        """Number of tokens that the policy sampled."""
        return int(sum(int(segment.sampled.sum()) for segment in self.segments))

    @property
    def response(self) -> str:
        """Text of the last action, or the empty string when the policy never acted."""
        return self.turns[-1].action.content if self.turns else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A score at a place. `end`: exclusive index among the turn's sampled tokens, or None for the whole turn.

    Example: `Step(turn=1, end=None, score=0.5)`.
    """

    turn: int
    end: int | None = None
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a verifier says of one rollout. `score` None means unjudged, which is never 0.

    reason: one word of `REASONS`. detail: text for people. seconds: wall time of the judging.

    Example: `Verdict(verifier="code_tests", score=1.0, passed=True, reason="passed", seconds=0.004)`.
    """

    verifier: str
    score: float | None
    passed: bool | None = None
    steps: tuple[Step, ...] | None = None
    reason: str
    detail: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"unknown verdict reason '{self.reason}'; one of {', '.join(sorted(REASONS))}")
        if (self.score is None) != (self.reason in UNJUDGED_REASONS):
            raise ValueError(f"score {self.score} does not go with reason '{self.reason}'")


UNJUDGED_REASONS = frozenset(
    {
        "sandbox_unavailable",
        "judge_unavailable",  # the endpoint of the service `judge` gave no valid reply, retries included
        "verifier_error",
        "verifier_timeout",
    }
)
"""Our failures: the score is None, and the member leaves its group."""

REASONS = UNJUDGED_REASONS | {
    "passed",
    "scored",  # a graded score without a notion of passing
    "wrong_answer",
    "no_answer",
    "syntax_error",
    "runtime_error",
    "exited_early",
    "timeout",
    "memory_limit",
    "output_limit",
    "process_limit",
    "file_limit",
    "too_complex",
    "forbidden",
    "invalid_tool_call",
    "wrong_format",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardPart:
    """One part of a reward: what was measured, its weight, and what it contributes.

    raw: the verifier's score, None when unjudged. value: weight x (scheduled, normalised, clipped) raw, None when
    unjudged. step_values: for kind `process`, the weighted value of each step; they sum to `value`.

    Example: `RewardPart(name="tests", kind="outcome", raw=1.0, weight=1.0, value=1.0)`.
    """

    name: str
    kind: str
    raw: float | None
    weight: float
    value: float | None
    step_values: tuple[Step, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The parts of a rollout's reward. `success` comes from a declared predicate and is what pass@k counts.

    Example: `Reward(parts=(part,), success=True).total == 1.0`.
    """

    parts: tuple[RewardPart, ...]
    success: bool | None

    @property
    def total(self) -> float | None:
        """Sum of the parts' values; None when a part of nonzero weight is unjudged."""
        if any(part.value is None and part.weight != 0 for part in self.parts):
            return None
        return float(sum(part.value for part in self.parts if part.value is not None))

    @property
    def step_values(self) -> tuple[Step, ...]:
        """Every process part's weighted steps, in order of turn and end (a whole turn comes last)."""
        steps = [step for part in self.parts for step in part.step_values or ()]
        return tuple(sorted(steps, key=lambda step: (step.turn, step.end is None, step.end or 0)))

    @property
    def by_name(self) -> Mapping[str, RewardPart]:
        """The parts by their names."""
        return {part.name: part for part in self.parts}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A rollout with its verdicts (one for each verifier that was asked) and its reward."""

    rollout: Rollout
    verdicts: tuple[Verdict, ...]
    reward: Reward


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The scored rollouts of one task, in order of their index."""

    task: Task
    members: tuple[Scored, ...]


def sampled_ids(rollout: Rollout) -> Sequence[int]:
    """The sampled token ids of a rollout over all its segments, in order."""
    return [int(token) for segment in rollout.segments for token in segment.ids[segment.sampled]]
