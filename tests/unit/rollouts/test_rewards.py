"""Verdicts to reward: one total, unjudged is never zero, steps sum to their part and stay within the bound."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.api import ConfigError, Message, Rollout, Step, Stop, Task, Turn, Verdict
from agentrl.config import PartConfig, RewardConfig, SuccessConfig
from agentrl.rollouts.rewards import check_reward, compose

TASK = Task(id="t/1", messages=())
EIGHTHS = st.integers(-24, 24).map(lambda n: n / 8)  # exact in binary, so that sums are exact


def rollout(*env_rewards: float, stop: Stop = Stop.FINISHED) -> Rollout:
    action = Message(role="assistant", content="x")
    turns = tuple(Turn(segment=0, span=(0, 0), completion=None, action=action, env_reward=r) for r in env_rewards)
    return Rollout(task=TASK, index=0, seed=0, turns=turns, segments=(), stop=stop)


def verdict(score: float | None, *steps: float) -> Verdict:
    reason = "verifier_error" if score is None else "scored"
    places = tuple(Step(turn=turn, score=value) for turn, value in enumerate(steps)) if steps else None
    return Verdict(verifier="v", score=score, reason=reason, steps=places)


def outcome(name: str = "tests", weight: float = 1.0) -> PartConfig:
    return PartConfig(name=name, verifier="v", weight=weight)


def process(name: str = "steps", weight: float = 1.0, bound: float | None = 1.0, **changes: Any) -> PartConfig:
    settings: dict[str, Any] = {"name": name, "verifier": "v", "kind": "process", "reduce": "sum", "weight": weight}
    return PartConfig(**(settings | {"bound": bound} | changes))


def env_part(weight: float = 1.0, bound: float = 1.0) -> PartConfig:
    return process("env", weight, bound, verifier=None, source="env_reward")


def reward_config(
    *parts: PartConfig, success: str | None = None, at_least: float = 1.0, **changes: Any
) -> RewardConfig:
    predicate = SuccessConfig(part=success or parts[0].name, at_least=at_least)
    return RewardConfig(success=predicate, parts=list(parts), **changes)


def test_the_total_is_the_weighted_sum() -> None:
    config = reward_config(outcome("tests", 1.0), outcome("format", 0.5), outcome("length", -0.25))
    reward = compose(config, rollout(0.0), {"tests": verdict(1.0), "format": verdict(0.5), "length": verdict(2.0)})
    assert [(p.name, p.raw, p.weight, p.value) for p in reward.parts] == [
        ("tests", 1.0, 1.0, 1.0),
        ("format", 0.5, 0.5, 0.25),
        ("length", 2.0, -0.25, -0.5),
    ]
    assert reward.total == 0.75
    assert reward.step_values == ()


@given(
    st.lists(st.tuples(st.sampled_from(["outcome", "process"]), EIGHTHS, st.lists(EIGHTHS, max_size=4)), max_size=4),
    st.sampled_from(["keep", "zero"]),
    st.sampled_from([Stop.FINISHED, Stop.LENGTH]),
)
def test_the_total_is_the_sum_of_the_parts_and_steps_sum_to_theirs(
    drawn: list[tuple[str, float, list[float]]], on_truncated: str, stop: Stop
) -> None:
    parts = [
        process(str(i), weight, bound=2.0) if kind == "process" else outcome(str(i), weight)
        for i, (kind, weight, _) in enumerate(drawn)
    ]
    verdicts = {
        str(i): Verdict(
            verifier="v",
            score=0.5,
            reason="scored",
            steps=tuple(Step(turn=turn, score=score) for turn, score in enumerate(scores)),
        )
        for i, (_, _, scores) in enumerate(drawn)
    }
    config = RewardConfig(parts=parts, on_truncated=on_truncated)
    reward = compose(config, rollout(*[0.0] * 4, stop=stop), verdicts)
    assert reward.total == sum(part.value for part in reward.parts if part.value is not None)
    for part in reward.parts:
        assert (part.step_values is not None) == (part.kind == "process")
        if part.step_values is not None:
            assert sum(step.score for step in part.step_values) == part.value
    if on_truncated == "zero" and stop is Stop.LENGTH:
        assert reward.total == 0


def test_an_unjudged_part_of_nonzero_weight_leaves_no_total() -> None:
    config = reward_config(outcome("tests"), outcome("format", 0.1))
    for missing in ({"tests": verdict(1.0), "format": verdict(None)}, {"tests": verdict(1.0)}):
        reward = compose(config, rollout(0.0), missing)
        assert reward.total is None
        assert reward.by_name["format"].raw is None
        assert reward.by_name["format"].value is None
        assert reward.by_name["tests"].value == 1.0
        assert reward.success is True


def test_an_unjudged_part_of_weight_zero_leaves_the_total() -> None:
    config = reward_config(outcome("tests"), outcome("watch", 0.0))
    reward = compose(config, rollout(0.0), {"tests": verdict(0.5), "watch": verdict(None)})
    assert reward.total == 0.5
    assert reward.by_name["watch"].value is None


def test_a_part_of_weight_zero_is_recorded_and_earns_nothing() -> None:
    config = reward_config(outcome("tests"), outcome("watch", 0.0))
    reward = compose(config, rollout(0.0), {"tests": verdict(0.5), "watch": verdict(9.0)})
    assert (reward.by_name["watch"].raw, reward.by_name["watch"].value, reward.total) == (9.0, 0.0, 0.5)


@pytest.mark.parametrize(
    ("raw", "at_least", "success"),
    [(1.0, 1.0, True), (0.999, 1.0, False), (0.5, 0.5, True), (0.0, 0.0, True), (-1.0, -0.5, False), (None, 0.0, None)],
)
def test_success_is_a_predicate_on_the_raw_score(raw: float | None, at_least: float, success: bool | None) -> None:
    config = reward_config(outcome("watch", 0.0), outcome("other"), success="watch", at_least=at_least)
    reward = compose(config, rollout(0.0), {"watch": verdict(raw), "other": verdict(0.25)})
    assert reward.success is success
    assert reward.total == 0.25


def test_without_a_predicate_there_is_no_success() -> None:
    config = RewardConfig(parts=[outcome()])
    assert compose(config, rollout(0.0), {"tests": verdict(1.0)}).success is None


@pytest.mark.parametrize("stop", Stop)
def test_a_rollout_that_a_limit_cut_is_worth_nothing_when_asked(stop: Stop) -> None:
    parts = (outcome("tests", 2.0), process("steps", 0.5, bound=3.0))
    verdicts = {"tests": verdict(1.0), "steps": verdict(0.5, 1.0, 0.5)}
    kept = compose(reward_config(*parts), rollout(0.0, 0.0, stop=stop), verdicts)
    zero = compose(reward_config(*parts, on_truncated="zero"), rollout(0.0, 0.0, stop=stop), verdicts)
    assert kept.total == 2.75
    if not stop.truncated:
        assert zero == kept
        return
    assert zero.total == 0.0
    assert [part.value for part in zero.parts] == [0.0, 0.0]
    assert [step.score for step in zero.step_values] == [0.0, 0.0]
    assert [part.raw for part in zero.parts] == [1.0, 1.5]
    assert zero.success is True


def test_zero_for_truncated_does_not_make_an_unjudged_one_zero() -> None:
    config = reward_config(outcome(), on_truncated="zero")
    assert compose(config, rollout(0.0, stop=Stop.LENGTH), {"tests": verdict(None)}).total is None


def test_env_rewards_that_no_part_reads_stop_the_run() -> None:
    config = reward_config(outcome())
    with pytest.raises(ConfigError, match=r"rewards that no part reads: add \{name: env, source: env_reward"):
        compose(config, rollout(0.0, 0.1), {"tests": verdict(1.0)})
    assert compose(config, rollout(0.0, 0.0), {"tests": verdict(1.0)}).total == 1.0
    read = compose(reward_config(outcome(), env_part(weight=0.0)), rollout(0.0, 0.1), {"tests": verdict(1.0)})
    assert (read.total, read.by_name["env"].raw) == (1.0, 0.1)


def test_env_rewards_are_steps_of_their_turns() -> None:
    reward = compose(reward_config(env_part(weight=2.0)), rollout(0.5, -0.25, 2.0), {})
    part = reward.by_name["env"]
    assert (part.raw, part.value, reward.total) == (1.0, 2.0, 2.0)
    assert part.step_values == (Step(turn=0, score=1.0), Step(turn=1, score=-0.5), Step(turn=2, score=1.5))


def test_env_rewards_of_a_failed_rollout_are_unjudged() -> None:
    reward = compose(reward_config(env_part()), rollout(0.5, stop=Stop.ENV_ERROR), {})
    assert (reward.total, reward.by_name["env"].raw, reward.step_values) == (None, None, ())


def test_env_rewards_as_an_outcome_have_no_steps() -> None:
    part = PartConfig(name="env", source="env_reward", weight=0.5)
    check_reward(reward_config(part))
    reward = compose(reward_config(part), rollout(1.0, 2.0), {})
    assert (reward.total, reward.by_name["env"].raw, reward.by_name["env"].step_values) == (1.5, 3.0, None)


def test_steps_of_a_verifier_are_bounded_together() -> None:
    reward = compose(reward_config(process(bound=1.0, weight=0.5)), rollout(0.0), {"steps": verdict(2.25, 0.75, 1.5)})
    assert reward.by_name["steps"].raw == 1.0
    assert [step.score for step in reward.step_values] == [0.375, 0.125]
    assert reward.total == 0.5


def test_a_process_part_without_steps_is_refused_and_unjudged_stays_unjudged() -> None:
    config = reward_config(process())
    with pytest.raises(ConfigError, match=r"reward\.parts\.steps\.kind = 'process': the verifier 'v' gives no scores"):
        compose(config, rollout(0.0), {"steps": verdict(5.0)})
    assert compose(config, rollout(0.0), {"steps": verdict(None)}).total is None
    nothing = Verdict(verifier="v", score=0.0, reason="no_answer", steps=())
    empty = compose(config, rollout(), {"steps": nothing})
    assert (empty.total, empty.success, empty.step_values) == (0.0, False, ())


@pytest.mark.parametrize(
    ("changes", "scores", "expected"),
    [
        ({"reduce": "mean"}, (0.5, 1.0), (0.25, 0.5)),
        ({"reduce": "delta"}, (0.75, -0.25, 0.5), (1.0, -0.75, 0.5)),
        ({"reduce": "delta", "clip": 0.5}, (0.75, -0.25, 0.5), (0.75, -0.75, 0.0)),
        ({"reduce": "sum", "clip": 0.5, "bound": 1.0}, (0.75, -0.25, -0.25), (0.0, -0.75, -0.25)),
        ({"reduce": "potential"}, (0.25, 0.75, 1.0), (0.25, 0.5, -0.75)),
        ({"reduce": "potential", "gamma": 0.5}, (0.25, 0.75, 1.0), (0.125, 0.125, -0.75)),
        ({"reduce": "min", "temperature": 0.01}, (0.5, -0.25), (0.0, -0.25)),
    ],
)
def test_the_form_of_a_process_part_decides_what_each_step_is_worth(
    changes: dict[str, Any], scores: tuple[float, ...], expected: tuple[float, ...]
) -> None:
    part = process(**{"bound": None, "weight": 0.5, **changes})
    check_reward(reward_config(part))
    reward = compose(reward_config(part), rollout(*[0.0] * 3), {"steps": verdict(1.0, *scores)})
    assert [step.score for step in reward.step_values] == pytest.approx([0.5 * value for value in expected], abs=1e-12)
    assert reward.total == pytest.approx(0.5 * sum(expected))


def refusal(config: RewardConfig) -> str:
    with pytest.raises(ConfigError) as caught:
        check_reward(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([outcome("a"), outcome("a")], "reward.parts: the name 'a' stands twice"),
        ([outcome("b")], "reward.success.part = 'a': no such part (parts: b)"),
        ([PartConfig(name="a")], "reward.parts.a: give either 'verifier' or 'source: env_reward'"),
        (
            [PartConfig(name="a", verifier="v", source="env_reward")],
            "reward.parts.a: give either 'verifier' or 'source: env_reward'",
        ),
        (
            [outcome("a"), outcome("format"), PartConfig(name="fromat", weight=0.5)],
            "reward.parts.fromat: give either 'verifier' or 'source: env_reward'; did you mean 'format'?",
        ),
        ([process("a", reduce=None)], "reward.parts.a: a process part needs 'reduce': mean, min"),
        ([process("a", bound=None)], "reward.parts.a: a process part needs 'reduce': mean, min"),
        ([process("a", kind="outcome", bound=None)], "reward.parts.a.reduce: only a process part reduces steps"),
        ([process("a", kind="outcome", reduce=None)], "reward.parts.a.bound: only sums over steps are bounded"),
        ([process("a", reduce="delta")], "reward.parts.a.bound: only sums over steps are bounded"),
        ([process("a", reduce="potential", bound=None, clip=0.5)], "reward.parts.a.clip: only scores of steps"),
        ([process("a", temperature=0.5)], "reward.parts.a.temperature: only 'reduce: min'"),
        ([process("a", gamma=0.5)], "reward.parts.a.gamma: only 'reduce: potential'"),
        (
            [PartConfig(name="a", source="env_reward", options={"x": 1})],
            "reward.parts.a.options: only a verifier has options",
        ),
    ],
)
def test_a_reward_that_cannot_be_computed_is_refused(parts: list[PartConfig], message: str) -> None:
    assert refusal(reward_config(*parts, success="a")).startswith(message)


def test_an_empty_reward_is_refused() -> None:
    for config in (
        RewardConfig(),
        RewardConfig(parts=[outcome()]),
        RewardConfig(success=SuccessConfig(part="tests")),
    ):
        assert "declare them in the configuration or as the environment's default_reward" in refusal(config)


def test_a_whole_reward_is_accepted() -> None:
    check_reward(reward_config(outcome(), outcome("watch", 0.0), process(), env_part()))
