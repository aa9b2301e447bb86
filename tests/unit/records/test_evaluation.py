"""What an evaluation says, against numbers counted by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from agentrl.api import Group, Message, Reward, RewardPart, Rollout, Scored, Segment, Stop, Task, Turn, Verdict
from agentrl.records.evaluation import evaluation, improvement
from agentrl.records.statistics import wilson_interval


def member(
    task: Task,
    index: int,
    success: bool | None,
    *,
    turns: int = 1,
    tokens: int = 4,
    stop: Stop = Stop.FINISHED,
    weight: float = 2.0,
) -> Scored:
    """A scored rollout: success None stands for one that failed or could not be judged."""
    one = Turn(segment=0, span=(0, 0), completion=None, action=Message(role="assistant", content="x"))
    segment = Segment(
        ids=np.zeros(tokens + 3, np.int32),
        sampled=np.asarray([False] * 3 + [True] * tokens),
        logprobs=np.zeros(tokens + 3, np.float32),
        turn=np.zeros(tokens + 3, np.int16),
    )
    raw = None if success is None else float(success)
    value = None if raw is None else weight * raw
    verdicts: tuple[Verdict, ...] = ()
    if not stop.failed:
        reason = "verifier_error" if success is None else "passed" if success else "wrong_answer"
        verdicts = (Verdict(verifier="v", score=raw, passed=success, reason=reason),)
    return Scored(
        rollout=Rollout(task=task, index=index, seed=0, turns=(one,) * turns, segments=(segment,), stop=stop),
        verdicts=verdicts,
        reward=Reward(
            parts=(RewardPart(name="tests", kind="outcome", raw=raw, weight=weight, value=value),), success=success
        ),
    )


def group(name: str, *successes: bool | None, tags: tuple[str, ...] = (), **changes: Any) -> Group:
    task = Task(id=name, messages=(), tags=tags)
    return Group(task=task, members=tuple(member(task, i, s, **changes) for i, s in enumerate(successes)))


def evaluate(*groups: Group, k: tuple[int, ...] = (1, 2, 4)) -> dict[str, Any]:
    return evaluation(groups, k=k, seconds=1.5, seed=0)


def test_pass_at_k_by_hand() -> None:
    """1 of 4: pass@1 1/4, pass@2 1 - C(3,2)/C(4,2) = 1/2, pass@4 1. 2 of 4: 1/2, 5/6, 1. 0 of 4: 0."""
    result = evaluate(
        group("a", True, False, False, False), group("b", True, True, False, False), group("c", *[False] * 4)
    )
    means = {k: value["mean"] for k, value in result["pass_at_k"].items()}
    assert means == pytest.approx({"1": 0.25, "2": (1 / 2 + 5 / 6) / 3, "4": 2 / 3})
    assert result["pass_at_k"]["1"]["low"] <= 0.25 <= result["pass_at_k"]["1"]["high"]
    assert result["per_task"] == [
        {"id": "a", "samples": 4, "successes": 1},
        {"id": "b", "samples": 4, "successes": 2},
        {"id": "c", "samples": 4, "successes": 0},
    ]
    assert (result["tasks"], result["samples"], result["unjudged"], result["seconds"]) == (3, 4, 0, 1.5)


def test_unjudged_members_are_no_samples() -> None:
    """1 of 2 judged is pass@1 1/2, not 1/4; with 2 samples there is no pass@4 of that task."""
    result = evaluate(group("a", True, None, False, None), group("b", *[False] * 4))
    assert result["per_task"][0] == {"id": "a", "samples": 2, "successes": 1}
    assert result["unjudged"] == 2
    assert result["samples"] == 4
    assert result["pass_at_k"]["1"]["mean"] == 0.25
    assert result["pass_at_k"]["2"]["mean"] == 0.5
    assert result["pass_at_k"]["4"]["mean"] == 0.0
    assert result["parts"]["tests"] == {"raw": pytest.approx(1 / 6), "value": pytest.approx(1 / 3), "judged": 0.75}
    assert result["reward"] == pytest.approx(2.0 / 6)


def test_a_task_without_any_verdict_is_left_out_of_every_rate() -> None:
    result = evaluate(group("a", None, None, tags=("x",)), group("b", True, True, tags=("x",)), k=(1, 2))
    assert result["pass_at_k"]["1"]["mean"] == 1.0
    assert result["tags"]["x"]["tasks"] == 1
    assert result["tasks"] == 2


def test_nothing_judged_gives_none_and_not_zero() -> None:
    result = evaluate(group("a", None, None), k=(1, 2))
    assert result["pass_at_k"] == {"1": None, "2": None}
    assert result["reward"] is None
    assert result["parts"]["tests"] == {"raw": None, "value": None, "judged": 0.0}
    assert result["success_turns"] == {}


def test_no_groups() -> None:
    result = evaluate(k=(1,))
    assert (result["tasks"], result["samples"], result["tokens"], result["mean_length"]) == (0, 0, 0, None)
    assert result["pass_at_k"] == {"1": None}


def test_success_and_reward_are_separate() -> None:
    result = evaluate(group("a", True, False, weight=0.0), k=(1,))
    assert result["pass_at_k"]["1"]["mean"] == 0.5
    assert result["reward"] == 0.0
    assert result["parts"]["tests"]["raw"] == 0.5


def test_counts_of_reasons_and_stops_most_common_first() -> None:
    cut = group("c", False, stop=Stop.LENGTH)
    failed = group("d", None, stop=Stop.ENV_ERROR)
    result = evaluate(group("a", False, True, False), group("b", None, True), cut, failed, k=(1,))
    assert list(result["reasons"].items()) == [("wrong_answer", 3), ("passed", 2), ("verifier_error", 1)]
    assert list(result["stops"].items()) == [("finished", 5), ("length", 1), ("env_error", 1)]
    assert result["unjudged"] == 2


def test_successes_by_number_of_turns() -> None:
    groups = [
        group("a", True, False, turns=1),
        group("b", True, True, None, turns=3),
        group("c", False, turns=2),
        group("d", True, turns=12),
    ]
    assert list(evaluate(*groups, k=(1,))["success_turns"].items()) == [("1", 1), ("3", 2), ("12", 1)]


def test_tokens_and_length() -> None:
    result = evaluate(group("a", True, False, tokens=5), group("b", None, tokens=2), k=(1,))
    assert result["tokens"] == 12
    assert result["mean_length"] == 4.0


def test_tags_average_over_their_tasks() -> None:
    result = evaluate(
        group("a", True, False, tags=("z", "x")),
        group("b", True, True, tags=("x",)),
        group("c", False, False, tags=("y",)),
        group("d", False, False),
        k=(1,),
    )
    assert list(result["tags"]) == ["x", "y", "z"]
    assert {tag: (row["tasks"], row["pass_at_1"]["mean"]) for tag, row in result["tags"].items()} == {
        "x": (2, 0.75),
        "y": (1, 0.0),
        "z": (1, 0.5),
    }


def test_it_is_json_and_repeats() -> None:
    groups = [group("a", True, False, None), group("b", False, False, True, tags=("x",))]
    first = evaluate(*groups)
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    assert evaluate(*groups) == first


def test_improvement_pairs_tasks_by_their_id() -> None:
    """Same ids in another order, one task only on each side: (1/2 - 0 + 1/2 - 1/2) / 2."""
    before = evaluate(group("a", False, False), group("b", True, False), group("old", True, True))
    after = evaluate(group("new", False, False), group("b", False, True), group("a", True, False))
    gain = improvement(before, after, seed=0)
    assert gain is not None
    assert gain["mean"] == 0.25
    assert gain["low"] <= 0.25 <= gain["high"]
    back = improvement(after, before, seed=0)
    assert back is not None
    assert back["mean"] == -0.25


def test_improvement_leaves_out_tasks_that_one_side_could_not_judge() -> None:
    before = evaluate(group("a", False, False), group("b", None, None))
    after = evaluate(group("a", True, True), group("b", True, True))
    gain = improvement(before, after, seed=0)
    assert gain is not None
    assert (gain["mean"], gain["high"]) == (1.0, 1.0)
    assert gain["low"] == pytest.approx(1 - 2 * wilson_interval(0, 1).high), "one task shows little"
    assert improvement(evaluate(group("b", None)), after, seed=0) is None
    assert improvement(evaluate(group("c", True)), after, seed=0) is None


def test_improvement_reads_evaluations_from_a_file() -> None:
    before, after = evaluate(group("a", False)), evaluate(group("a", True))
    first, second = (json.loads(json.dumps(e)) for e in (before, after))
    assert improvement(first, second, seed=0) == improvement(before, after, seed=0)
