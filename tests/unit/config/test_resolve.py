"""From layers to a checked run: what model and environment bring lies below what the user says."""

from __future__ import annotations

from pathlib import Path

import pytest

import agentrl.loops.resolve as module
from agentrl.api import ConfigError, PluginError
from agentrl.config import Layer, assignment, sources
from agentrl.loops.resolve import Resolved, config_hash, resolve

PLUGIN = """
from agentrl.api import Env, Options, Verdict, Verifier


class Count(Env):
    class Options(Options):
        max_turns: int = 3

    default_reward = {
        "success": {"part": "tests", "at_least": 1.0},
        "parts": [
            {"name": "tests", "verifier": __file__ + ":Tests"},
            {"name": "format", "verifier": __file__ + ":Tests", "weight": 0.1, "options": {"strict": True}},
        ],
    }


class Bare(Env):
    pass


class Tests(Verifier):
    class Options(Options):
        strict: bool = False
"""


@pytest.fixture
def plugin(tmp_path: Path) -> str:
    file = tmp_path / "resolve_plugin.py"
    file.write_text(PLUGIN)
    return str(file)


def resolved(plugin: str, *assignments: str, env: str = "Count") -> Resolved:
    # a hub id: nothing embedded, so no recipe changes the defaults
    base = {"env": {"name": f"{plugin}:{env}"}, "model": {"path": "some/model"}}
    return resolve([Layer("command line", base), *map(assignment, assignments)])


def weights(result: Resolved) -> dict[str, float]:
    return {part.name: part.weight for part in result.config.reward.parts}


def test_length_costs_before_the_limit_where_it_is_asked_for(plugin: str) -> None:
    """dapo asks for it, anybody may, and its part is one like any other: recorded, weighed, kept by a resumed run."""
    assert "overlong" not in weights(resolved(plugin))
    assert "overlong" not in weights(resolved(plugin, "algorithm.preset=dapo", "reward.on_truncated=keep"))
    asked = resolved(
        plugin, "reward.on_truncated=soft_overlong", "reward.overlong_share=0.5", "rollout.max_tokens=1000"
    )
    (part,) = [part for part in asked.config.reward.parts if part.name == "overlong"]
    assert (part.verifier, part.weight) == ("length", 1.0)
    assert part.options == {"unit": "tokens", "free": 500, "limit": 1000}
    weighed = resolved(plugin, "algorithm.preset=dapo", "rollout.max_tokens=20480", "reward.parts.overlong.weight=0.25")
    assert weights(weighed) == {"overlong": 0.25, "tests": 1.0, "format": 0.1}
    (part,) = [part for part in weighed.config.reward.parts if part.name == "overlong"]
    assert part.options["free"] == 16384
    again = resolve([Layer("saved", weighed.config.model_dump(mode="json"))])
    assert again.config == weighed.config


def test_the_environment_brings_its_reward(plugin: str) -> None:
    result = resolved(plugin)
    assert weights(result) == {"tests": 1.0, "format": 0.1}
    assert result.config.reward.success is not None
    assert result.config.reward.success.part == "tests"
    assert result.env.__name__ == "Count"
    assert result.env_options.model_dump() == {"max_turns": 3}
    assert sources(result.layers)["reward.parts"] == f"environment {plugin}:Count"


def test_a_part_of_the_environment_is_overridden_by_name(plugin: str) -> None:
    result = resolved(plugin, "reward.parts.tests.weight=0.5", "reward.success.at_least=0.25")
    assert weights(result) == {"tests": 0.5, "format": 0.1}
    assert result.config.reward.success is not None
    assert (result.config.reward.success.part, result.config.reward.success.at_least) == ("tests", 0.25)
    assert weights(resolved(plugin, "reward.parts=[{name: format, weight: 2}]")) == {"tests": 1.0, "format": 2.0}


def test_a_misspelt_part_is_refused_with_the_nearest(plugin: str) -> None:
    with pytest.raises(ConfigError, match=r"^reward\.parts\.tets: give either 'verifier' .* did you mean 'tests'\?$"):
        resolved(plugin, "reward.parts.tets.weight=0.5")


def test_parts_that_agree_share_a_verifier(plugin: str) -> None:
    plans = resolved(plugin).verifiers
    assert [(plan.parts, plan.options.model_dump()) for plan in plans] == [
        (("tests",), {"strict": False}),
        (("format",), {"strict": True}),
    ]
    (plan,) = resolved(plugin, "reward.parts.tests.options.strict=true").verifiers
    assert (plan.parts, plan.options.model_dump()) == (("tests", "format"), {"strict": True})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("train.stepz=3", "unknown key 'train.stepz' with value 3; did you mean 'train.steps'?"),
        ("env.options.max_turn=3", "unknown key 'env.options.max_turn' with value 3; did you mean"),
        ("reward.parts.tests.options.strikt=true", "unknown key 'reward.parts.tests.options.strikt' with value True"),
        ("reward.parts.tests.wait=1", "unknown key 'reward.parts.tests.wait' with value 1; did you mean"),
        ("reward.success.part=test", "reward.success.part = 'test': no such part (parts: tests, format)"),
        ("reward.parts.tests.verifier=code_test", "unknown verifier 'code_test'"),
        ("algorithm.preset=grp", "algorithm.preset = 'grp': unknown preset; did you mean 'grpo'?"),
        ("train.group_size=1", "train.group_size = 1: "),
        ("eval.samples=4", "eval.k = 8 is above eval.samples = 4"),
        ("engine.max_new_tokens=9999", "engine.max_new_tokens = 9999 is above rollout.max_tokens = 4096"),
        ("train.minibatches=65", "train.minibatches = 65 is above the 64 rollouts"),
        ("train.patience=2", "train.patience counts validations: set train.validate_every"),
    ],
)
def test_what_cannot_be_honoured_is_refused(plugin: str, text: str, message: str) -> None:
    with pytest.raises((ConfigError, PluginError)) as caught:
        resolved(plugin, text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_an_environment_without_a_reward_says_what_to_add(plugin: str) -> None:
    with pytest.raises(ConfigError, match=r"^reward\.parts and reward\.success are empty: declare them"):
        resolved(plugin, env="Bare")
    result = resolved(
        plugin, f"reward.parts=[{{name: a, verifier: '{plugin}:Tests'}}]", "reward.success.part=a", env="Bare"
    )
    assert weights(result) == {"a": 1.0}


def test_unknown_environment() -> None:
    with pytest.raises(PluginError, match="unknown environment 'no_such_env'"):
        resolve([assignment("env.name=no_such_env")])


def test_the_recipe_of_an_embedded_policy_lies_below_all_else(
    plugin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipe.yaml").write_text(
        "train: {steps: 11, epochs: 2}\nreward: {parts: [{name: tests, weight: 9}]}\n"
    )
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(module, "embedded", lambda name: tmp_path if name == "pocket" else None)
    result = resolved(plugin, "model.path=pocket", "train.steps=5")
    assert (result.config.train.steps, result.config.train.epochs) == (5, 2)
    origin = sources(result.layers)
    assert (origin["train.epochs"], origin["train.steps"]) == ("recipe of pocket", "--set")
    assert module.model_folder(result.config.model) == tmp_path
    assert resolved(plugin, "model.path=other").config.train.epochs == 1


def test_a_saved_configuration_resolves_to_itself(plugin: str) -> None:
    first = resolved(plugin, "reward.parts.tests.weight=0.5", "train.learning_rate=3e-4", "env.options.max_turns=2")
    again = resolve([Layer("config.yaml", first.config.model_dump(mode="json"))])
    assert again.config == first.config
    assert again.env_options == first.env_options
    assert config_hash(again.config) == config_hash(first.config)


def test_the_hash_sees_every_change(plugin: str) -> None:
    changes = ["seed=1", "train.steps=7", "reward.parts.tests.weight=0.5", "env.options.max_turns=2", "threads=1"]
    hashes = [config_hash(resolved(plugin, *text).config) for text in ([], *([change] for change in changes))]
    assert len(set(hashes)) == len(hashes)
    assert config_hash(resolved(plugin).config) == hashes[0]
