"""agentrl: agentic, verifiable-reward reinforcement learning of language models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__version__ = "0.1.0"


def train(
    config: Mapping[str, Any], *, output: str, callbacks: Sequence[Callable[..., None]] = (), resume: bool = False
) -> dict[str, Any]:
    """Train as `agentrl train` does, from settings such as `{"env": {"name": "code_exec"}}`; returns the summary.

    callbacks: called after every step with its metrics and its groups. Raises `agentrl.api.AgentRLError`.
    """
    from agentrl.config import Layer
    from agentrl.loops.resolve import resolve, resumed_layers
    from agentrl.loops.train import train as run

    asked = [Layer("agentrl.train", dict(config))]
    layers = resumed_layers(output, asked) if resume else asked
    return run(resolve(layers), output, resume=resume, callbacks=tuple(callbacks))


def evaluate(config: Mapping[str, Any], *, split: str = "test", output: str | None = None) -> dict[str, Any]:
    """Evaluate as `agentrl eval` does; returns the evaluation object. Raises `agentrl.api.AgentRLError`."""
    from agentrl.config import Layer
    from agentrl.loops.resolve import resolve
    from agentrl.loops.standalone import evaluate_model

    return evaluate_model(resolve([Layer("agentrl.evaluate", dict(config))]), split, output)


def check_env(env: str, *, settings: Mapping[str, Any] | None = None, limit: int = 24) -> list[Any]:
    """Check an environment as `agentrl env check` does; returns its findings, of which none may be `right is False`.

    env: a name, `file.py:Class` or `module:Class`. settings: more configuration, such as `{"seed": 3}`.
    """
    from agentrl.config import Layer, merge
    from agentrl.loops.check_env import check_env as check
    from agentrl.loops.resolve import resolve

    return list(
        check(resolve([Layer("agentrl.check_env", merge(dict(settings or {}), {"env": {"name": env}}))]), limit)
    )
