"""Presets: an algorithm is a row of choices, not a class.

| preset       | baseline      | scale  | loss           | aggregation   | clip       | KL           | arXiv      |
|--------------|---------------|--------|----------------|---------------|------------|--------------|------------|
| ppo          | critic        | whiten | clip, token    | token mean    | 0.2, 0.2   | reward, 0.01 | 1707.06347 |
| grpo         | group         | std    | clip, token    | sequence mean | 0.2, 0.2   | loss, 0.04   | 2402.03300 |
| dr_grpo      | group         | none   | clip, token    | constant      | 0.2, 0.2   | off          | 2503.20783 |
| dapo         | group         | std    | clip, token    | token mean    | 0.2, 0.28  | off          | 2503.14476 |
| gspo         | group         | std    | clip, sequence | sequence mean | 3e-4, 4e-4 | off          | 2507.18071 |
| rloo         | leave-one-out | none   | clip, token    | constant      | 0.2, 0.2   | off          | 2402.14740 |
| reinforce_pp | none          | whiten | clip, token    | token mean    | 0.2, 0.2   | reward, 0.01 | 2501.03262 |
| cispo        | group         | std    | cispo, token   | token mean    | 1, 4       | off          | 2506.13585 |

`dapo` also draws up to three batches of tasks until a step is full of groups whose rewards differ (its dynamic
sampling). `ppo` adapts its coefficient of KL to 6 nats per rollout.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Literal

from pydantic import ValidationError

from agentrl.api import ConfigError, PluginError, nearest
from agentrl.config import AlgorithmConfig, Config
from agentrl.plugins import load_preset


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The choices of a learner.

    baseline: what rewards are compared with: the group's mean, the mean of the other members, nothing, or a critic.
    scale: what advantages are divided by: the group's spread, nothing, or the spread of all tokens of the step.
    loss: the clipped surrogate, or CISPO's capped weight. ratio: level of the probability ratio. aggregate: how token
    losses become one number. clip_low, clip_high: the ratio counts within [1 - clip_low, 1 + clip_high]. dual_clip:
    bound of the ratio where the advantage is negative. kl, kl_coefficient: where the KL to the start policy stands
    (k3 in the loss, k1 in the token rewards), and its weight. kl_target: nats per rollout for an adaptive coefficient.
    process: how process rewards of a group compare (DeepSeekMath's pooled form is the other one).
    entropy_coefficient: weight of an entropy bonus. gamma, lam: discount and lambda per sampled token. turn_gamma:
    discount per turn. critic_learning_rate (None: CRITIC_FACTOR times the policy's),
    critic_warmup (steps), value_clip: of the critic. dynamic_sampling: most batches of tasks drawn for one step. An
    optional bound of 0 is none.

    Example: `Algorithm(baseline="group", scale="std", aggregate="sequence_mean", kl_coefficient=0.04)`.
    """

    baseline: Literal["group", "leave_one_out", "none", "critic"]
    scale: Literal["std", "none", "whiten"]
    loss: Literal["clip", "cispo"] = "clip"
    ratio: Literal["token", "sequence"] = "token"
    aggregate: Literal["token_mean", "sequence_mean", "constant"]
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float = 0.0
    kl: Literal["loss", "reward"] = "loss"
    kl_coefficient: float = 0.0
    kl_target: float = 0.0
    process: Literal["turn", "pooled"] = "turn"
    entropy_coefficient: float = 0.0
    gamma: float = 1.0
    turn_gamma: float = 1.0
    lam: float = 1.0
    critic_learning_rate: float | None = None
    critic_warmup: int = 0
    value_clip: float = 0.0
    dynamic_sampling: int = 1

    @property
    def by_group(self) -> bool:
        """Whether advantages compare the members of a group (and need no other pass over the batch)."""
        return self.baseline in ("group", "leave_one_out")


_GRPO = Algorithm(baseline="group", scale="std", aggregate="sequence_mean", kl_coefficient=0.04)
_FREE = replace(_GRPO, kl_coefficient=0.0)
_TOKENS = Algorithm(baseline="none", scale="whiten", aggregate="token_mean", kl="reward", kl_coefficient=0.01)
PRESETS = {
    "ppo": replace(_TOKENS, baseline="critic", kl_target=6.0, value_clip=0.5),
    "grpo": _GRPO,
    "dr_grpo": replace(_FREE, scale="none", aggregate="constant"),
    "dapo": replace(_FREE, aggregate="token_mean", clip_high=0.28, dynamic_sampling=3),
    "gspo": replace(_FREE, ratio="sequence", clip_low=3e-4, clip_high=4e-4),
    "rloo": replace(_FREE, baseline="leave_one_out", scale="none", aggregate="constant"),
    "reinforce_pp": _TOKENS,
    "cispo": replace(_FREE, loss="cispo", aggregate="token_mean", clip_low=1.0, clip_high=4.0),
}
PRESET_REWARDS = {"dapo": {"on_truncated": "soft_overlong"}}
"""What a preset brings to the section `reward`, beneath everything else."""
_OF_THE_SAMPLER = ("max_staleness", "importance_cap", "importance_level", "importance_above")
CRITIC_FACTOR = 5.0
"""A critic starts with a head that knows nothing and has no policy to preserve: it may move faster."""
_CRITIC = ("lam", "critic_learning_rate", "critic_warmup", "value_clip")
_TOKEN_REWARDS = ("gamma", "kl_target")


def resolve(config: AlgorithmConfig) -> Algorithm:
    """The preset's row with the configuration's overrides; a combination that makes no sense is refused."""
    overrides = config.model_dump(exclude={"preset", *_OF_THE_SAMPLER}, exclude_none=True)
    algorithm = replace(_preset(config.preset), **overrides)
    _check_options(algorithm, overrides)
    for key, value, why in _senseless(algorithm):
        raise ConfigError(f"algorithm.{key} = {value!r}: {why}")
    return algorithm


def _preset(name: str) -> Algorithm:
    """A row of the table, or the `Algorithm` that `file.py:NAME` holds."""
    if name in PRESETS:
        return PRESETS[name]
    if ":" not in name:
        hint = nearest(name, PRESETS) or f" (known: {', '.join(PRESETS)}; or file.py:NAME)"
        raise ConfigError(f"algorithm.preset = '{name}': unknown preset{hint}")
    loaded = load_preset(name)
    if not isinstance(loaded, Algorithm):
        raise PluginError(f"algorithm.preset = '{name}': is no agentrl.learning.algorithms.Algorithm")
    try:
        AlgorithmConfig.model_validate(asdict(loaded))  # a dataclass takes any value
    except ValidationError as error:
        first = error.errors()[0]
        raise PluginError(
            f"algorithm.preset = '{name}': {first['loc'][0]} = {first['input']!r}: {first['msg']}"
        ) from error
    return loaded


def _check_options(algorithm: Algorithm, overrides: dict[str, object]) -> None:
    """An option that nothing would read is an error, not a silence."""
    unread = {name: "needs algorithm.baseline: critic" for name in _CRITIC if algorithm.baseline != "critic"}
    if algorithm.by_group:
        unread |= dict.fromkeys(_TOKEN_REWARDS, "works on rewards of tokens: needs algorithm.baseline none or critic")
    if algorithm.loss == "cispo":
        unread["dual_clip"] = "the loss cispo caps the weight already: use clip_high"
    for name, why in unread.items():
        if overrides.get(name):
            raise ConfigError(f"algorithm.{name} = {overrides[name]}: {why}")


def _senseless(algorithm: Algorithm) -> list[tuple[str, object, str]]:
    """(key, value, reason) of every choice that contradicts another."""
    a, found = algorithm, list[tuple[str, object, str]]()
    if a.ratio == "sequence" and a.aggregate == "token_mean":
        why = "a ratio of whole sequences weighs long ones by their length then; use aggregate: sequence_mean"
        found.append(("aggregate", a.aggregate, f"with algorithm.ratio = 'sequence': {why}"))
    if a.loss == "cispo" and (a.ratio, a.aggregate) != ("token", "token_mean"):
        found.append(("loss", a.loss, "is defined for ratio: token and aggregate: token_mean"))
    if a.clip_low >= 1 and a.loss == "clip":
        found.append(("clip_low", a.clip_low, "must be below 1, or nothing is clipped there"))
    if a.clip_low > 1:
        found.append(("clip_low", a.clip_low, "must be 1 (no lower bound of the weight) or less"))
    if 0 < a.dual_clip <= 1:
        found.append(("dual_clip", a.dual_clip, "must be above 1 (3 is common), or 0 for none"))
    if a.scale == "whiten" and a.baseline == "leave_one_out":
        found.append(("scale", a.scale, "a spread of all tokens changes what leave_one_out keeps unbiased; use none"))
    if a.scale == "std" and a.baseline != "group":
        found.append(("scale", a.scale, "the spread of a group goes with baseline: group; use none or whiten"))
    if a.kl == "reward" and a.by_group and a.kl_coefficient > 0:
        found.append(("kl", a.kl, "rewards of single tokens need algorithm.baseline none or critic; use kl: loss"))
    if a.process == "pooled" and (not a.by_group or a.scale != "std" or a.turn_gamma < 1):
        found.append(("process", a.process, "is defined for baseline: group with scale: std and turn_gamma: 1"))
    if a.kl == "loss" and a.kl_target > 0:
        found.append(("kl_target", a.kl_target, "only a coefficient in the reward is adapted; use kl: reward, or 0"))
    return found


def check(config: Config) -> None:
    """Refuse settings that the learner cannot honour."""
    algorithm = resolve(config.algorithm)
    for part in config.reward.parts:
        if part.reduce == "potential":
            _check_potential(part.name, 1.0 if part.gamma is None else part.gamma, algorithm)
    train = config.train
    if train.group_size < 2 and algorithm.by_group:
        raise ConfigError("train.group_size = 1: a group-relative advantage needs two rollouts or more per task")
    if train.group_size * train.tasks_per_step < 2 and algorithm.scale == "whiten":
        raise ConfigError("train.tasks_per_step = 1 with train.group_size = 1: one rollout has no spread to whiten by")
    if algorithm.dynamic_sampling > 1 and train.group_size < 2:
        raise ConfigError("algorithm.dynamic_sampling: a group of one always looks equal; set train.group_size to 2")
    if train.minibatches > train.tasks_per_step * train.group_size:
        raise ConfigError(
            f"train.minibatches = {train.minibatches} is above the {train.tasks_per_step * train.group_size} rollouts "
            "of a step (train.tasks_per_step x train.group_size)"
        )
    if train.patience and not train.validate_every:
        raise ConfigError("train.patience counts validations: set train.validate_every, or patience to 0")


def _check_potential(part: str, gamma: float, algorithm: Algorithm) -> None:
    """Shaping by a potential leaves the best policy the best only while nothing else bends it."""
    key = f"reward.parts.{part}"
    if gamma != algorithm.turn_gamma:
        raise ConfigError(
            f"{key}.gamma = {gamma:g}: a potential is discounted as the return is, by algorithm.turn_gamma, which is "
            f"{algorithm.turn_gamma:g}: set both to the same"
        )
    if not algorithm.by_group and algorithm.gamma < 1:
        raise ConfigError(
            f"{key}.reduce = 'potential': counts by turn; set algorithm.gamma to 1, and turn_gamma instead"
        )
    if algorithm.scale == "std":
        raise ConfigError(
            f"{key}.reduce = 'potential': a spread of groups depends on the potential and bends what it shapes; set "
            "algorithm.scale to none (algorithm.preset dr_grpo or rloo), or take another form"
        )
