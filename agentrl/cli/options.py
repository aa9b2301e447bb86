"""Options that commands share, and the layers that they make."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentrl.config import Layer, assignment, read_yaml

EnvOption = Annotated[str | None, typer.Option("--env", help="Environment: a name, file.py:Class or module:Class.")]
ModelOption = Annotated[str | None, typer.Option("--model", help="'tiny', a Hugging Face folder, or a hub id.")]
ConfigOption = Annotated[str | None, typer.Option("--config", help="YAML file of settings.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="One setting, as key.name=value; repeatable.")]
OutputOption = Annotated[str | None, typer.Option("--output", help="Run directory; must not hold another run.")]
SandboxOption = Annotated[str, typer.Option("--sandbox", help="Isolation backend: auto, bwrap or docker.")]
WorkersOption = Annotated[int | None, typer.Option("--workers", help="Warm workers; default one per processor.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]


def layers(config: str | None, assignments: list[str] | None, **keys: Any) -> list[Layer]:
    """The layers of a command: its file, its own options (dotted key with `__`), then every `--set`."""
    found = [read_yaml(config)] if config else []
    for key, value in keys.items():
        if value is None:
            continue
        settings: Any = value
        for name in reversed(key.split("__")):
            settings = {name: settings}
        found.append(Layer("command line", settings))
    return [*found, *(assignment(text) for text in assignments or [])]
