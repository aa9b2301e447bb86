"""Layers of settings: merged in order, parsed once, each value traceable to where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from agentrl.api import ConfigError, nearest
from agentrl.config.models import Config

Settings = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings from one place. Example: `Layer("--set", {"train": {"steps": 3}})`."""

    source: str
    settings: Settings


def read_yaml(path: str | Path) -> Layer:
    """Read a configuration file; an empty file is an empty layer."""
    try:
        settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path}: {error.strerror or error}") from error
    except yaml.YAMLError as error:
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
        parsed = yaml.safe_load(value)
    except yaml.YAMLError as error:
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
    return isinstance(value, list) and bool(value) and all(isinstance(e, Mapping) and "name" in e for e in value)


def parse(layers: Sequence[Layer]) -> Config:
    """Merge `layers` and check the result; an error names the key, the value and the nearest valid one."""
    settings: Any = {}
    for layer in layers:
        settings = merge(settings, layer.settings)
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(_sentence(error.errors()[0], Config, "")) from None


def parse_options(model: type[BaseModel], options: Mapping[str, Any], where: str) -> BaseModel:
    """Check a plugin's options; `where` is the key they stand under, such as `env.options`."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        raise ConfigError(_sentence(error.errors()[0], model, where)) from None


def _sentence(error: ErrorDetails, model: type[BaseModel], prefix: str) -> str:
    location = [str(part) for part in error["loc"]]
    key = ".".join([*([prefix] if prefix else []), *location])
    if error["type"] == "extra_forbidden":
        known = _known_keys(model, prefix)
        return f"unknown key '{key}'{nearest(key, known)} (`agentrl config show` lists all)"
    if error["type"] == "missing":
        return f"the key '{key}' is missing"
    message = error["msg"][0].lower() + error["msg"][1:]
    return f"{key} = {error['input']!r}: {message}"


def _known_keys(model: type[BaseModel], prefix: str) -> list[str]:
    return [f"{prefix}.{name}" if prefix else name for name, _, _ in _leaves(model)]


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any, str]]:
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        key = f"{prefix}{name}"
        if inner is not None:
            yield from _leaves(inner, f"{key}.")
        else:
            yield key, field.get_default(call_default_factory=True), field.description or ""


def _section(annotation: Any) -> type[BaseModel] | None:
    for candidate in (annotation, *getattr(annotation, "__args__", ())):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return None if getattr(annotation, "__origin__", None) is list else candidate
    return None


def describe() -> list[tuple[str, Any, str]]:
    """Every key as (dotted name, default, meaning)."""
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
