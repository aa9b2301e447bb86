"""Commands that only look: env and verifier list and show, config show, doctor."""

from __future__ import annotations

import inspect
import json
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from pydantic import BaseModel

from agentrl.cli.options import ConfigOption, EnvOption, JsonOption, ModelOption, SetOption, layers
from agentrl.config import describe, sources, value_at
from agentrl.plugins import installed, load_env, load_verifier
from agentrl.report.text import table

PACKAGES = ("torch", "transformers", "accelerate", "datasets", "peft", "math-verify", "docker", "vllm", "deepspeed")


def env_list(json_: JsonOption = False) -> None:
    """List the installed environments."""
    _list("agentrl.envs", json_)


def verifier_list(json_: JsonOption = False) -> None:
    """List the installed verifiers."""
    _list("agentrl.verifiers", json_)


def _list(group: str, json_: bool) -> None:
    plugins = installed(group)
    if json_:
        print(json.dumps([{"name": p.name, "class": p.target, "package": p.package} for p in plugins]))
        return
    print("\n".join(table(["name", "class", "package"], [[p.name, p.target, p.package] for p in plugins])))


def env_show(name: Annotated[str, typer.Argument(help="Environment: a name, file.py:Class or module:Class.")]) -> None:
    """Show an environment's options, services and default reward."""
    env = load_env(name)
    print(inspect.cleandoc(env.__doc__ or "") + "\n")
    _print_options(env.Options, "env.options")
    print(f"\nneeds: {', '.join(sorted(env.needs)) or 'nothing'}\nsplits: {', '.join(env.splits)}")
    print(f"default reward: {json.dumps(env.default_reward)}")


def verifier_show(
    name: Annotated[str, typer.Argument(help="Verifier: a name, file.py:Class or module:Class.")],
) -> None:
    """Show a verifier's options, services and examples."""
    verifier = load_verifier(name)
    print(inspect.cleandoc(verifier.__doc__ or "") + "\n")
    _print_options(verifier.Options, "options")
    print(f"\nneeds: {', '.join(sorted(verifier.needs)) or 'nothing'}")
    print(f"judges: {'the rollouts of a task together' if verifier.scope == 'group' else 'each rollout by itself'}")
    print(f"judges correctness: {'yes' if verifier.correctness else 'no'}")
    for example in verifier.examples():
        verdict = "passes" if example.passes else "fails"
        shown = {"task": example.task, "response": example.response}
        if example.others:
            shown["others"] = list(example.others)
        print(f"{example.kind} {verdict}: {json.dumps(shown)}")


def _print_options(options: type[BaseModel], prefix: str) -> None:
    rows = []
    for key, field in options.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "required" if field.is_required() else json.dumps(default, default=str)
        rows.append([f"{prefix}.{key}", shown, field.description])
    print("\n".join(table(["option", "default", "meaning"], [[str(cell or "") for cell in row] for row in rows])))


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
