"""Layers of settings: merged in order, parsed once, each value traceable to where it came from."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from agentrl.api import ConfigError, nearest
from agentrl.config.models import Config

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings from one place. Example: `Layer("--set", {"train": {"steps": 3}})`."""

    source: str
    settings: Settings


class _Loader(yaml.SafeLoader):
    """YAML without doubled keys: PyYAML alone keeps the last one and drops the others silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for name in names:
            if names.count(name) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key '{name}' stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> Layer:
    """Read a configuration file; an empty file is an empty layer."""
    try:
        settings = yaml.load(Path(path).read_text(encoding="utf-8"), _Loader)
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror or error}") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: no UTF-8, or a date such as 2024-13-45
        raise ConfigError(f"--config {path}: not valid YAML: {' '.join(str(error).split())}") from error
    if settings is None:
        settings = {}
    if not isinstance(settings, dict):
        raise ConfigError(f"--config {path}: a mapping of keys is expected, not {type(settings).__name__}")
    return Layer(str(path), settings)


def assignment(text: str) -> Layer:
    """Turn `train.steps=3` into a layer; the value is read as YAML.

    An element of a list of named entries is addressed by its name: `reward.parts.tests.weight=0.5`.
    """
    key, separator, value = text.partition("=")
    names = key.strip().split(".")
    if not separator or not all(names):
        raise ConfigError(f"--set {text}: write it as key.name=value")
    try:
        parsed = yaml.load(value, _Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"--set {text}: '{value}' is not valid YAML; quote it") from error
    settings: Any = parsed
    for name in reversed(names):
        settings = {name: settings}
    return Layer("--set", settings)


def merge(below: Any, above: Any) -> Any:
    """Lay `above` over `below`: mappings merge, lists of named entries merge by name, all else is replaced.

    >>> merge({"a": {"x": 1, "y": 2}}, {"a": {"y": 3}})
    {'a': {'x': 1, 'y': 3}}
    """
    if isinstance(below, Mapping) and isinstance(above, Mapping):
        merged = dict(below)
        for key, value in above.items():
            merged[key] = merge(below[key], value) if key in below else value
        return merged
    if _named(below) and (_named(above) or isinstance(above, Mapping)):
        changes = above if isinstance(above, Mapping) else {entry["name"]: entry for entry in above}
        entries = {entry["name"]: entry for entry in below}
        for name, change in changes.items():
            entries[name] = merge(entries.get(name, {"name": name}), change)
        return list(entries.values())
    return above


def _named(value: Any) -> bool:
    """Whether a list can be merged by name: all entries have one, and no two the same (merging would drop one)."""
    if not isinstance(value, list) or not value or not all(isinstance(entry, Mapping) for entry in value):
        return False
    names = [entry.get("name") for entry in value]
    return all(isinstance(name, str) for name in names) and len(set(names)) == len(names)


def parse(layers: Sequence[Layer]) -> Config:
    """Merge `layers` and check the result; an error names the key, the value and the nearest valid one."""
    settings: Any = {}
    for layer in layers:
        settings = merge(settings, layer.settings)
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(_sentence(error, Config, settings, "")) from None


def parse_options(model: type[BaseModel], options: Mapping[str, Any], where: str) -> BaseModel:
    """Check a plugin's options; `where` is the key they stand under, such as `env.options`."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError(_sentence(error, model, options, where)) from None


def _sentence(error: ValidationError, model: type[BaseModel], settings: Any, prefix: str) -> str:
    """One error as one sentence; a misspelt key comes first, for a missing one is often its consequence."""
    errors = error.errors()
    first = next((e for e in errors if e["type"] == "extra_forbidden"), errors[0])
    key, value = _dotted(first["loc"], settings, prefix), _short(first["input"])
    if first["type"] == "extra_forbidden":
        known = _known_keys(model, first["loc"], key, prefix)
        lists_all = f"known: {', '.join(known) or 'none'}" if prefix else "`agentrl config show` lists all"
        return f"unknown key '{key}' with value {value}{nearest(key, known)} ({lists_all})"
    if first["type"] == "missing":
        return f"the key '{key}' is missing"
    if first["type"] == "invalid_key" or first["loc"][-1:] == ("[key]",):
        return f"{key.removesuffix('.[key]')}: a key must be text, not {value}; quote it"
    if first["type"] in ("model_type", "model_attributes_type"):
        return f"{key} = {value}: a mapping of keys is expected"
    message = first["msg"].removeprefix("Value error, ")
    return f"{key} = {value}: {message[:1].lower()}{message[1:]}"


def _dotted(location: Sequence[int | str], settings: Any, prefix: str) -> str:
    """A location as `--set` addresses it: an element of a list of named entries goes by its name."""
    names = [prefix] if prefix else []
    for part in location:
        if isinstance(part, int):
            names.append(settings[part]["name"] if _named(settings) else str(part))
            settings = settings[part]
        else:
            names.append(part)
            settings = settings.get(part) if isinstance(settings, Mapping) else None
    return ".".join(names)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _known_keys(model: type[BaseModel], location: Sequence[int | str], key: str, prefix: str) -> list[str]:
    """Sections and keys of `model`, and those of the list element that an unknown `key` stands in."""
    known = [f"{prefix}.{name}" if prefix else name for name in _names(model)]
    if any(isinstance(part, int) for part in location):
        inner = model
        for part in location:
            if isinstance(part, str) and part in inner.model_fields:
                inner = _model(inner.model_fields[part].annotation) or inner
        known += [f"{key.rpartition('.')[0]}.{name}" for name in inner.model_fields]
    return known


def _names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}"
        inner = _section(field.annotation)
        if inner is not None:
            yield from _names(inner, f"{prefix}{name}.")


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        key = f"{prefix}{name}"
        if inner is not None:
            yield from _leaves(inner, f"{key}.")
        else:
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            yield key, default, field.description or ""


def _section(annotation: Any) -> type[BaseModel] | None:
    """The model of a section; None for a plain value and for a list of models."""
    return None if getattr(annotation, "__origin__", None) is list else _model(annotation)


def _model(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def describe() -> list[tuple[str, Any, str]]:
    """Every key as (dotted name, default, meaning); a key that has no default shows None."""
    return list(_leaves(Config))


def sources(layers: Sequence[Layer]) -> dict[str, str]:
    """For every key that a layer sets: the name of the last layer that sets it."""
    found: dict[str, str] = {}
    for layer in layers:
        for key, _, _ in describe():
            if value_at(layer.settings, key, _ABSENT) is not _ABSENT:
                found[key] = layer.source
    return found


def value_at(settings: Any, key: str, default: Any = None) -> Any:
    """The value under a dotted key, or `default` where there is none."""
    for name in key.split("."):
        if not isinstance(settings, Mapping) or name not in settings:
            return default
        settings = settings[name]
    return settings


_ABSENT = object()
