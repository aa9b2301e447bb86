"""Verdicts to reward: the one place where a total is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentrl.api import ConfigError, Reward, RewardPart, Rollout, Step, Verdict, nearest
from agentrl.config import PartConfig, RewardConfig
from agentrl.rollouts.steps import bounded, clipped, delta_form, mean_form, min_form, potential_form


def compose(config: RewardConfig, rollout: Rollout, verdicts: Mapping[str, Verdict | None]) -> Reward:
    """The reward of a rollout. `verdicts` has one entry for each part that a verifier scores; None is unjudged.

    value = weight x raw for an outcome part; for a process part every step's value is weight x its reward in the
    form that `reduce` names, so that the steps sum to the part's value. A rollout that a limit cut is worth 0 when
    `on_truncated: zero`; its raw scores stay.
    """
    if any(turn.env_reward for turn in rollout.turns) and not any(p.source for p in config.parts):
        raise ConfigError(
            "the environment gives rewards that no part reads: add {name: env, source: env_reward, kind: process, "
            "weight: 1.0, reduce: sum, bound: 1.0} to reward.parts, or a weight of 0 to leave them out"
        )
    zero = config.on_truncated == "zero" and rollout.stop.truncated
    parts = tuple(_part(part, rollout, verdicts.get(part.name), zero) for part in config.parts)
    return Reward(parts=parts, success=_success(config, parts))


def _success(config: RewardConfig, parts: Sequence[RewardPart]) -> bool | None:
    if config.success is None:
        return None
    raw = next(part.raw for part in parts if part.name == config.success.part)
    return None if raw is None else raw >= config.success.at_least


def _part(part: PartConfig, rollout: Rollout, verdict: Verdict | None, zero: bool) -> RewardPart:
    steps = _steps(part, rollout, verdict)
    if steps is not None:
        raw: float | None = sum(step.score for step in steps)
    else:
        raw = verdict.score if verdict is not None else None
    weight = 0.0 if zero else part.weight
    values = None
    if part.kind == "process" and steps is not None:
        values = tuple(Step(turn=s.turn, end=s.end, score=weight * s.score) for s in steps)
    return RewardPart(
        name=part.name,
        kind=part.kind,
        raw=raw,
        weight=part.weight,
        value=None if raw is None else weight * raw,
        step_values=values,
    )


def _steps(part: PartConfig, rollout: Rollout, verdict: Verdict | None) -> tuple[Step, ...] | None:
    if part.source == "env_reward":
        if rollout.stop.failed:
            return None
        steps = tuple(Step(turn=i, score=turn.env_reward) for i, turn in enumerate(rollout.turns))
    elif part.kind == "process" and verdict is not None and verdict.score is not None:
        if verdict.steps is None:
            raise ConfigError(
                f"reward.parts.{part.name}.kind = 'process': the verifier '{part.verifier}' gives no scores of steps; "
                "set 'kind: outcome'"
            )
        steps = verdict.steps
    else:
        return None
    scores = [step.score for step in steps]
    if part.clip is not None:
        scores = clipped(scores, part.clip)
    counted = _form(part, scores)
    return tuple(replace(step, score=score) for step, score in zip(steps, counted, strict=True))


def _form(part: PartConfig, scores: Sequence[float]) -> Sequence[float]:
    match part.reduce:
        case "mean":
            return mean_form(scores)
        case "min":
            return min_form(scores, part.temperature or 0.1)
        case "delta":
            return delta_form(scores)
        case "potential":
            return potential_form(scores, 1.0 if part.gamma is None else part.gamma)
        case _:
            return scores if part.bound is None else bounded(scores, part.bound)


def check_reward(config: RewardConfig) -> None:
    """Refuse a reward that cannot be computed, with the fix in the message."""
    names = [part.name for part in config.parts]
    if config.success is None or not config.parts:
        raise ConfigError(
            "reward.parts and reward.success are empty: declare them in the configuration or as the environment's "
            "default_reward, e.g. {success: {part: answer, at_least: 1.0}, parts: [{name: answer, verifier: NAME}]}"
        )
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"reward.parts: the name '{name}' stands twice")
    if config.success.part not in names:
        raise ConfigError(f"reward.success.part = '{config.success.part}': no such part (parts: {', '.join(names)})")
    for part in config.parts:
        _check_part(part, [name for name in names if name != part.name])


def _check_part(part: PartConfig, others: Sequence[str]) -> None:
    key = f"reward.parts.{part.name}"
    if (part.verifier is None) == (part.source is None):
        hint = nearest(part.name, others) if part.verifier is None else ""
        raise ConfigError(f"{key}: give either 'verifier' or 'source: env_reward'{hint}")
    if part.kind == "process" and (part.reduce is None or (part.reduce == "sum" and part.bound is None)):
        raise ConfigError(
            f"{key}: a process part needs 'reduce': mean, min, delta, potential, or sum with a 'bound' (largest sum "
            "over its steps)"
        )
    if part.kind == "outcome" and part.reduce is not None:
        raise ConfigError(f"{key}.reduce: only a process part reduces steps; set 'kind: process' or remove it")
    if part.bound is not None and part.reduce != "sum" and (part.kind == "process" or part.verifier is not None):
        raise ConfigError(f"{key}.bound: only sums over steps are bounded; set 'reduce: sum' or remove it")
    if part.clip is not None and (part.kind == "outcome" or part.reduce == "potential"):
        raise ConfigError(f"{key}.clip: only scores of steps are clipped, and no potentials; remove it")
    if part.temperature is not None and part.reduce != "min":
        raise ConfigError(f"{key}.temperature: only 'reduce: min' has one; remove it")
    if part.gamma is not None and part.reduce != "potential":
        raise ConfigError(f"{key}.gamma: only 'reduce: potential' has one; the discount is algorithm.turn_gamma")
    if part.source is not None and part.options:
        raise ConfigError(f"{key}.options: only a verifier has options")
