"""Layers: later ones win, mappings merge, lists of named entries merge by name; the result is frozen and traceable."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from agentrl.config import Config, Layer, PartConfig, assignment, describe, merge, parse, read_yaml, sources, value_at
from agentrl.config.models import Section

KEYS = st.sampled_from(["a", "b", "c"])
SETTINGS = st.recursive(
    st.none() | st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=2),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
MAPPINGS = st.dictionaries(KEYS, SETTINGS, max_size=3)


@given(MAPPINGS, MAPPINGS)
def test_merging_keeps_what_is_above_and_changes_neither(below: dict[str, Any], above: dict[str, Any]) -> None:
    before = copy.deepcopy((below, above))
    merged = merge(below, above)
    assert (below, above) == before
    assert merge(merged, above) == merged
    assert merge({}, above) == above
    assert merge(below, {}) == below
    for key, value in _leaves(above):
        assert value_at(merged, key, "absent") == value
    assert set(merged) == set(below) | set(above)


def _leaves(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found = []
    for key, value in settings.items():
        if isinstance(value, dict):
            found += _leaves(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def test_mappings_merge_and_all_else_is_replaced() -> None:
    below = {"train": {"steps": 1, "epochs": 2}, "eval": {"k": [1, 4, 8]}}
    above = {"train": {"steps": 9}, "eval": {"k": [2]}}
    assert merge(below, above) == {"train": {"steps": 9, "epochs": 2}, "eval": {"k": [2]}}
    assert merge({"a": {"x": 1}}, {"a": None}) == {"a": None}
    assert merge({"a": None}, {"a": {"x": 1}}) == {"a": {"x": 1}}


PARTS = [{"name": "tests", "verifier": "t", "weight": 1.0}, {"name": "format", "verifier": "f", "weight": 0.1}]


def test_named_entries_merge_by_name_and_keep_their_order() -> None:
    above = [{"name": "format", "weight": 0.5}, {"name": "length", "verifier": "l"}]
    assert merge(PARTS, above) == [
        {"name": "tests", "verifier": "t", "weight": 1.0},
        {"name": "format", "verifier": "f", "weight": 0.5},
        {"name": "length", "verifier": "l"},
    ]


def test_a_mapping_of_names_changes_single_entries() -> None:
    merged = merge(PARTS, {"tests": {"weight": 0.5}})
    assert merged == [{"name": "tests", "verifier": "t", "weight": 0.5}, PARTS[1]]
    assert PARTS[0]["weight"] == 1.0


def test_doubled_names_are_left_for_the_check_to_refuse() -> None:
    doubled = [{"name": "tests", "weight": 1.0}, {"name": "tests", "weight": 2.0}]
    assert merge(PARTS, doubled) == doubled
    assert merge([{"name": [1]}], [{"name": [1]}]) == [{"name": [1]}]
    assert merge(PARTS, []) == []


def test_an_assignment_reaches_into_a_list_of_parts() -> None:
    base = Layer("file", {"reward": {"success": {"part": "tests"}, "parts": PARTS}})
    config = parse([base, assignment("reward.parts.tests.weight=0.5"), assignment("reward.parts.new.verifier=n")])
    assert [(part.name, part.verifier, part.weight) for part in config.reward.parts] == [
        ("tests", "t", 0.5),
        ("format", "f", 0.1),
        ("new", "n", 1.0),
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", 3),
        ("a.b = 3", 3),
        ("a.b=1.5", 1.5),
        ("a.b=true", True),
        ("a.b=null", None),
        ("a.b=", None),
        ("a.b=[1, 2]", [1, 2]),
        ("a.b={c: 1}", {"c": 1}),
        ("a.b='3'", "3"),
        ("a.b=x=y", "x=y"),
        ("a.b=./my_env.py:MyEnv", "./my_env.py:MyEnv"),
    ],
)
def test_an_assigned_value_is_read_as_yaml(text: str, value: Any) -> None:
    assert assignment(text) == Layer("--set", {"a": {"b": value}})


def test_later_layers_win_and_defaults_stay() -> None:
    layers = [Layer("file", {"train": {"steps": 5, "epochs": 2}}), assignment("train.steps=7")]
    config = parse(layers)
    assert (config.train.steps, config.train.epochs, config.train.group_size) == (7, 2, Config().train.group_size)
    assert parse([]) == Config()


def test_exponents_without_a_point_are_numbers() -> None:
    assert parse([assignment("train.learning_rate=1e-5")]).train.learning_rate == 1e-5


def test_a_file_is_a_layer_and_an_empty_one_is_empty(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("base: &base {steps: 3}\ntrain:\n  <<: *base\n  epochs: 2\n")
    assert read_yaml(file) == Layer(str(file), {"base": {"steps": 3}, "train": {"steps": 3, "epochs": 2}})
    file.write_text("# nothing yet\n")
    assert read_yaml(file) == Layer(str(file), {})


def _models(model: BaseModel) -> list[BaseModel]:
    inner = [value for value in dict(model).values() if isinstance(value, BaseModel)]
    return [model, *(found for value in inner for found in _models(value))]


def test_a_configuration_is_frozen() -> None:
    config = parse([assignment("reward.success={part: a}"), assignment("sft.scratch={}"), assignment("model.lora={}")])
    models = _models(config)
    assert {type(model) for model in models} == {*Section.__subclasses__()} - {PartConfig}
    for model in [*models, PartConfig(name="a")]:
        name = next(iter(type(model).model_fields))
        with pytest.raises(ValidationError, match="frozen"):
            setattr(model, name, getattr(model, name))


def test_two_configurations_share_no_mutable_default() -> None:
    first, second = parse([]), parse([])
    first.env.options["changed"] = True
    first.eval.k.append(99)
    try:
        assert "changed" not in parse([]).env.options
        assert "changed" not in second.env.options
        assert 99 not in parse([]).eval.k
    finally:
        first.env.options.clear()
        first.eval.k.remove(99)


def test_the_dump_of_a_configuration_reads_back() -> None:
    base = Layer("file", {"reward": {"success": {"part": "tests"}, "parts": PARTS}, "sft": {"scratch": {"layers": 2}}})
    config = parse([base, assignment("train.learning_rate=3e-4")])
    assert parse([Layer("saved", config.model_dump(mode="json"))]) == config


def test_every_key_is_described() -> None:
    rows = describe()
    names = [name for name, _, _ in rows]
    assert len(names) == len(set(names))
    assert {"seed", "train.steps", "train.learning_rate", "engine.max_new_tokens", "rollout.max_turns"} <= set(names)
    assert {"reward.parts", "reward.success.part", "sft.scratch.layers", "env.options"} <= set(names)
    for name, default, meaning in rows:
        assert meaning.strip(), f"{name} has no description"
        assert default is None or isinstance(default, int | float | str | list | dict), f"{name}: {default!r}"


def test_described_defaults_are_those_of_the_configuration() -> None:
    settings = Config().model_dump()
    for name, default, _ in describe():
        if not name.startswith(
            ("reward.success.", "sft.scratch.", "model.lora.")
        ):  # optional sections, absent by default
            assert value_at(settings, name) == default


def test_every_described_key_can_be_set() -> None:
    for name, default, _ in describe():
        if default is not None:
            section = {"part": "x"} if name.startswith("reward.success.") else {}
            layers = [Layer("base", {"reward": {"success": section}})] if section else []
            config = parse([*layers, Layer("test", _nested(name, default))])
            assert value_at(config.model_dump(), name) == default


def _nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    return dict(value)


def test_sources_name_the_last_layer_that_set_a_key() -> None:
    layers = [
        Layer("recipe", {"train": {"steps": 1, "epochs": 2}}),
        Layer("environment e", {"reward": {"parts": PARTS}}),
        assignment("train.steps=3"),
        assignment("reward.parts.tests.weight=0.5"),
        assignment("threads=null"),
    ]
    assert sources(layers) == {
        "train.steps": "--set",
        "train.epochs": "recipe",
        "reward.parts": "--set",
        "threads": "--set",
    }


def test_value_at() -> None:
    assert value_at({"a": {"b": None}}, "a.b", "absent") is None
    assert value_at({"a": {"b": 1}}, "a.c", "absent") == "absent"
    assert value_at({"a": 3}, "a.b", "absent") == "absent"
