"""Every kind of wrong input is one sentence that names the key, the value and the nearest valid key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field, field_validator

from agentrl.api import ConfigError, Options
from agentrl.config import Layer, assignment, parse, parse_options, read_yaml


def complaint(*assignments: str) -> str:
    """What `parse` says of some `--set` arguments."""
    with pytest.raises(ConfigError) as caught:
        parse([assignment(text) for text in assignments])
    return one_sentence(str(caught.value))


def one_sentence(text: str) -> str:
    assert text
    assert "\n" not in text
    assert "pydantic" not in text
    assert "Error" not in text
    return text


@pytest.mark.parametrize(
    ("text", "key", "value", "nearest"),
    [
        ("train.stepz=3", "train.stepz", "3", "train.steps"),
        ("train.learnin_rate=0.5", "train.learnin_rate", "0.5", "train.learning_rate"),
        ("trian.steps=3", "trian", "{'steps': 3}", "train"),
        ("seeed=3", "seeed", "3", "seed"),
        ("group_size=4", "group_size", "4", "train.group_size"),
        ("max_new_tokens=64", "max_new_tokens", "64", "engine.max_new_tokens"),
        ("train.temperature=1", "train.temperature", "1", "engine.temperature"),
        ("reward.succes={part: a}", "reward.succes", "{'part': 'a'}", "reward.success"),
        ("reward.success.prat=a", "reward.success.prat", "'a'", "reward.success.part"),
        ("reward.parts=[{name: a, wieght: 1}]", "reward.parts.a.wieght", "1", "reward.parts.a.weight"),
        ("sft.scratch.layer=2", "sft.scratch.layer", "2", "sft.scratch.layers"),
    ],
)
def test_an_unknown_key(text: str, key: str, value: str, nearest: str) -> None:
    message = complaint(text)
    assert message.startswith(f"unknown key '{key}' with value {value}; did you mean '{nearest}'?")
    assert "agentrl config show" in message


def test_an_unknown_key_like_no_other_gets_no_wrong_hint() -> None:
    message = complaint("xyzzy=1")
    assert message.startswith("unknown key 'xyzzy' with value 1 (")
    assert "did you mean" not in message


def test_a_long_value_is_cut() -> None:
    message = complaint(f"train.stepz={'9' * 500}")
    assert "99..." in message
    assert len(message) < 250


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("train.steps=many", "train.steps = 'many': input should be a valid integer"),
        ("train.steps=3.0", "train.steps = 3.0: input should be a valid integer"),
        ("train.steps=1e3", "train.steps = '1e3': input should be a valid integer"),
        ("train.steps=", "train.steps = None: input should be a valid integer"),
        ("train.steps=true", "train.steps = True: input should be a valid integer"),
        ("train.learning_rate=true", "train.learning_rate = True: input should be a valid number"),
        ("reward.success={part: a, at_least: yes}", "reward.success.at_least = True: input should be a valid number"),
        ("train.learning_rate=fast", "train.learning_rate = 'fast': input should be a valid number"),
        ("model.path=3", "model.path = 3: input should be a valid string"),
        ("model.path=2024-01-01", "model.path = datetime.date(2024, 1, 1): input should be a valid string"),
        ("train=3", "train = 3: a mapping of keys is expected"),
        ("train=", "train = None: a mapping of keys is expected"),
        ("train.steps.x=3", "train.steps = {'x': 3}: input should be a valid integer"),
        ("eval.k=3", "eval.k = 3: input should be a valid list"),
        ("eval.k=[1, two]", "eval.k.1 = 'two': input should be a valid integer"),
        ("env.options=3", "env.options = 3: input should be a valid dictionary"),
        ("env.options={1: 2}", "env.options.1: a key must be text, not 1"),
        ("reward.parts=[{name: a, weight: x}]", "reward.parts.a.weight = 'x': input should be a valid number"),
        ("reward.parts=[3]", "reward.parts.0 = 3: a mapping of keys is expected"),
        ("reward.parts=[{name: [1]}]", "reward.parts.0.name = [1]: input should be a valid string"),
        ("reward.parts=[{weight: 1}]", "the key 'reward.parts.0.name' is missing"),
        ("engine.kind=vlm", "engine.kind = 'vlm': input should be 'auto' or 'hf'"),
        ("algorithm.ratio=tokn", "algorithm.ratio = 'tokn': input should be 'token' or 'sequence'"),
    ],
)
def test_a_value_of_the_wrong_type(text: str, start: str) -> None:
    assert complaint(text).startswith(start)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("train.steps=0", "train.steps = 0: input should be greater than or equal to 1"),
        ("seed=-1", "seed = -1: input should be greater than or equal to 0"),
        ("train.learning_rate=0", "train.learning_rate = 0: input should be greater than 0"),
        ("eval.temperature=-0.1", "eval.temperature = -0.1: input should be greater than or equal to 0"),
        ("engine.temperature=0", "engine.temperature = 0: input should be greater than 0"),
        ("rollout.max_failed_share=1.5", "rollout.max_failed_share = 1.5: input should be less than or equal to 1"),
        ("sft.validation_share=1", "sft.validation_share = 1: input should be less than 1"),
        ("eval.k=[1, 0]", "eval.k.1 = 0: input should be greater than or equal to 1"),
        ("threads=0", "threads = 0: input should be greater than or equal to 1"),
    ],
)
def test_a_value_out_of_bounds(text: str, start: str) -> None:
    assert complaint(text).startswith(start)


@pytest.mark.parametrize("value", [".nan", "nan", ".inf", "-.inf", "inf"])
@pytest.mark.parametrize(
    "key", ["train.learning_rate", "algorithm.importance_cap", "rollout.max_failed_share", "train.max_seconds"]
)
def test_nan_and_infinity(key: str, value: str) -> None:
    assert complaint(f"{key}={value}").startswith(f"{key} = ")


def test_nan_in_a_list_of_parts() -> None:
    message = complaint("reward.parts=[{name: a, weight: .nan}]")
    assert message == "reward.parts.a.weight = nan: input should be a finite number"


@pytest.mark.parametrize("text", ["train.steps", "=3", "train..steps=3", ".steps=3", "train.=3", ""])
def test_an_assignment_of_the_wrong_form(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        assignment(text)
    assert one_sentence(str(caught.value)) == f"--set {text}: write it as key.name=value"


@pytest.mark.parametrize("value", ["[1, 2", "{a: 1", "a: b: c", "'open", "2024-13-45", "{a: 1, a: 2}", "@x"])
def test_an_assigned_value_that_is_no_yaml(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        assignment(f"model.path={value}")
    message = one_sentence(str(caught.value))
    assert message == f"--set model.path={value}: '{value}' is not valid YAML; quote it"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"train: [1, 2", "not valid YAML"),
        (b"train:\n\t- 1\n", "not valid YAML"),
        (b"model: {path: \xff\xfe}\n", "not valid YAML"),
        (b"model:\n  path: 2024-13-45\n", "not valid YAML"),
        (b"train: {steps: 1}\nseed: 2\ntrain: {group_size: 4}\n", "the key 'train' stands twice"),
        (b"train: {steps: 1, steps: 2}\n", "the key 'steps' stands twice"),
        (b"- 1\n- 2\n", "a mapping of keys is expected, not list"),
        (b"just words\n", "a mapping of keys is expected, not str"),
        (b"3\n", "a mapping of keys is expected, not int"),
    ],
)
def test_a_file_that_is_no_mapping(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_yaml(file)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"--config {file}: ")
    assert words in message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_yaml(tmp_path / "none.yaml")
    assert one_sentence(str(caught.value)) == f"--config {tmp_path}/none.yaml: No such file or directory"
    with pytest.raises(ConfigError, match=f"--config {tmp_path}: Is a directory"):
        read_yaml(tmp_path)


@pytest.mark.parametrize("settings", [{1: 2}, {"train": {1: 2}}, {"train": {True: 2}}])
def test_a_key_that_is_no_text(settings: dict[Any, Any]) -> None:
    with pytest.raises(ConfigError, match=r"a key must be text, not (1|True); quote it"):
        parse([Layer("file", settings)])


def test_a_misspelt_key_is_named_before_the_key_that_it_leaves_missing() -> None:
    assert complaint("reward.success={prat: a}").startswith("unknown key 'reward.success.prat'")
    assert complaint("reward.success={at_least: 1.0}") == "the key 'reward.success.part' is missing"


class Inner(BaseModel, extra="forbid"):
    depth: int = 1


class PluginOptions(Options):
    """Options as a plugin's author writes them."""

    max_turns: int = Field(3, ge=1)
    inner: Inner = Inner()
    mode: str = "plain"

    @field_validator("mode")
    @classmethod
    def known(cls, value: str) -> str:
        if value not in ("plain", "odd"):
            raise ValueError("Known modes are plain and odd")
        return value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"max_turn": 2},
            "unknown key 'env.options.max_turn' with value 2; did you mean 'env.options.max_turns'? "
            "(known: env.options.max_turns, env.options.inner, env.options.inner.depth, env.options.mode)",
        ),
        ({"max_turns": 0}, "env.options.max_turns = 0: input should be greater than or equal to 1"),
        ({"inner": {"depth": "x"}}, "env.options.inner.depth = 'x': input should be a valid integer"),
        ({"mode": "od"}, "env.options.mode = 'od': known modes are plain and odd"),
    ],
)
def test_options_of_a_plugin(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(PluginOptions, options, "env.options")
    assert one_sentence(str(caught.value)).startswith(message)


def test_options_of_a_plugin_that_are_right() -> None:
    parsed = parse_options(PluginOptions, {"max_turns": 5, "inner": {"depth": 2}}, "env.options")
    assert parsed == PluginOptions(max_turns=5, inner=Inner(depth=2))
