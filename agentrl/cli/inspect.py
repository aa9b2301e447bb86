"""Commands that only look: env list, env show, config show, doctor."""

from __future__ import annotations

import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from agentrl.cli.options import ConfigOption, EnvOption, JsonOption, ModelOption, SetOption, layers
from agentrl.config import describe, sources, value_at
from agentrl.plugins import installed, load_env
from agentrl.report.text import table

PACKAGES = ("torch", "transformers", "accelerate", "datasets", "peft", "math-verify", "docker", "vllm", "deepspeed")


def env_list(json_: JsonOption = False) -> None:
    """List the installed environments."""
    plugins = installed("agentrl.envs")
    if json_:
        print(json.dumps([{"name": p.name, "class": p.target, "package": p.package} for p in plugins]))
        return
    print("\n".join(table(["name", "class", "package"], [[p.name, p.target, p.package] for p in plugins])))


def env_show(name: Annotated[str, typer.Argument(help="Environment: a name, file.py:Class or module:Class.")]) -> None:
    """Show an environment's options, services and default reward."""
    env = load_env(name)
    print((env.__doc__ or "").strip() + "\n")
    rows = []
    for key, field in env.Options.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "required" if field.is_required() else json.dumps(default, default=str)
        rows.append([f"env.options.{key}", shown, field.description])
    print("\n".join(table(["option", "default", "meaning"], [[str(cell or "") for cell in row] for row in rows])))
    print(f"\nneeds: {', '.join(sorted(env.needs)) or 'nothing'}\nsplits: {', '.join(env.splits)}")
    print(f"default reward: {json.dumps(env.default_reward)}")


def config_show(
    env: EnvOption = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    json_: JsonOption = False,
) -> None:
    """List every key with its value, where the value came from, and what it means."""
    asked = layers(config, set_, env__name=env, model__path=model)
    from agentrl.loops.resolve import resolve

    resolved = resolve(asked)
    origin = sources(resolved.layers)
    settings = resolved.config.model_dump(mode="json")
    if json_:
        print(json.dumps(settings))
        return
    rows = [[key, json.dumps(value_at(settings, key)), origin.get(key, "default"), text] for key, _, text in describe()]
    print("\n".join(table(["key", "value", "from", "meaning"], rows)))


def doctor() -> None:
    """Say what this machine has and what is missing; exit code 1 when no sandbox backend works."""
    from agentrl.sandbox import describe as describe_backends

    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"
    print(f"python {platform.python_version()} on {machine}")
    for package in PACKAGES:
        print(f"{package} {_version(package)}")
    backends = describe_backends()
    for backend in backends:
        state = f"works, tier {backend.tier}" if backend.available else backend.missing
        print(f"sandbox {backend.name} {backend.version or 'not found'}: {state}")
        if backend.available:
            print(f"  stops: {backend.stops}")
            print(f"  does not stop: {backend.lets_through}")
    print(f"environments: {', '.join(p.name for p in installed('agentrl.envs')) or 'none'}")
    print(f"verifiers: {', '.join(p.name for p in installed('agentrl.verifiers')) or 'none'}")
    if not any(backend.available for backend in backends):
        sys.exit(1)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
