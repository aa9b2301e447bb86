"""From layers of settings to a checked run: nothing is written, sampled or started before this has passed.

Order of the layers, later ones win: defaults, what an algorithm's preset says of the reward, the recipe of an embedded
policy, the environment's default reward, `--config`, the command's options, `--set`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

import agentrl.learning.algorithms as learning
import agentrl.rollouts.check as rollouts
from agentrl.api import ConfigError, Env, History, ModelError, Verifier
from agentrl.assets import embedded
from agentrl.config import (
    Config,
    HistoryConfig,
    Layer,
    ModelConfig,
    describe,
    parse,
    parse_options,
    read_yaml,
    value_at,
)
from agentrl.plugins import load_env, load_history, load_verifier
from agentrl.records.run import RunDirectory


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifierPlan:
    """A verifier to build for the named parts, which share its options."""

    parts: tuple[str, ...]
    plugin: type[Verifier]
    options: BaseModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """A configuration with the plugins that it names. `layers` tell where each value came from."""

    config: Config
    layers: tuple[Layer, ...]
    env: type[Env]
    env_options: BaseModel
    verifiers: tuple[VerifierPlan, ...]
    history: History


def resolve(layers: Sequence[Layer]) -> Resolved:
    """Add the layers that model and environment bring, parse, load the plugins and run every check."""
    # Only what decides the layers below: `reward.parts.tests.weight=0.5` means something above the environment's parts.
    first = parse([Layer(x.source, {k: v for k, v in x.settings.items() if k in ("env", "model")}) for x in layers])
    env = load_env(first.env.name)
    inner = [*_recipe(first.model.path), Layer(f"environment {first.env.name}", {"reward": dict(env.default_reward)})]
    preset = parse([*inner, *layers]).algorithm.preset
    if preset in learning.PRESET_REWARDS:
        inner.insert(0, Layer(f"preset {preset}", {"reward": learning.PRESET_REWARDS[preset]}))
    config = parse([*inner, *layers])
    if config.reward.on_truncated == "soft_overlong":
        inner.append(_soft_overlong(config))
    everything = (*inner, *layers)
    config = parse(everything)
    resolved = Resolved(
        config=config,
        layers=everything,
        env=env,
        env_options=parse_options(env.Options, config.env.options, "env.options"),
        verifiers=_verifiers(config),
        history=_history(config.rollout.history),
    )
    rollouts.check(config)
    learning.check(config)
    check_model_path(str(model_folder(config.model)))
    return resolved


def model_folder(config: ModelConfig) -> str | Path:
    """Where the policy is loaded from: an embedded folder, or the path as given."""
    return embedded(config.path) or config.path


def check_model_path(path: str) -> None:
    """Refuse a path that cannot be a model, before anything else starts. A hub id passes: only loading can tell."""
    folder = Path(path)
    looks_local = path.startswith((".", "/", "~")) or path.count("/") > 1 or folder.exists()
    if not looks_local:
        return
    if not folder.is_dir():
        raise ModelError(f"--model {path}: no such folder; give a Hugging Face model folder, a hub id, or 'tiny'")
    if not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise ModelError(f"--model {path}: no model folder (config.json is missing)")


def config_hash(config: Config) -> str:
    """A short hash of everything that decides what a run computes."""
    text = json.dumps(config.model_dump(mode="json"), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _recipe(model: str) -> list[Layer]:
    folder = embedded(model)
    if folder is None or not (folder / "recipe.yaml").is_file():
        return []
    return [Layer(f"recipe of {model}", read_yaml(folder / "recipe.yaml").settings)]


def _soft_overlong(config: Config) -> Layer:
    """A part of the reward for length near the limit (arXiv:2503.14476, equation 13), beneath what the user says."""
    most = config.rollout.max_tokens
    free = int(most * (1 - config.reward.overlong_share))
    options = {"unit": "tokens", "free": min(free, most - 1), "limit": most}
    part = {"name": "overlong", "verifier": "length", "kind": "outcome", "weight": 1.0, "options": options}
    return Layer("reward.on_truncated = soft_overlong", {"reward": {"parts": [part]}})


def _history(config: HistoryConfig) -> History:
    plugin = load_history(config.name)
    return plugin(parse_options(plugin.Options, config.options, "rollout.history.options"))


def _verifiers(config: Config) -> tuple[VerifierPlan, ...]:
    """One plan for each distinct (verifier, options): parts that agree on both share the verdict."""
    plans: dict[str, VerifierPlan] = {}
    for part in config.reward.parts:
        if part.verifier is None:
            continue
        plugin = load_verifier(part.verifier)
        options = parse_options(plugin.Options, part.options, f"reward.parts.{part.name}.options")
        key = json.dumps([part.verifier, options.model_dump(mode="json")], sort_keys=True)
        before = plans[key].parts if key in plans else ()
        plans[key] = VerifierPlan(parts=(*before, part.name), plugin=plugin, options=options)
    return tuple(plans.values())


RESUMABLE = (
    "train.steps",
    "train.max_seconds",
    "train.save_every",
    "train.keep_checkpoints",
    "judge.endpoint",
    "judge.api_key_env",
    "judge.concurrency",
)
"""Keys that may change when a run is resumed."""


def resumed_layers(output: str, asked: list[Layer]) -> list[Layer]:
    """The saved configuration of the run in `output`, with what may change; anything else that differs is refused."""
    saved = Layer(f"{output}/config.yaml", RunDirectory.open(output).read_config())
    layers = [saved, *asked]
    before, now = (parse(found).model_dump(mode="json") for found in ([saved], layers))
    for key, _, _ in describe():
        old, new = value_at(before, key), value_at(now, key)
        if old != new and key not in RESUMABLE:
            raise ConfigError(
                f"{key} = {new!r}: the run in {output} was started with {old!r}; only "
                f"{', '.join(RESUMABLE)} may change on --resume"
            )
    return layers
