"""Commands that run models: train, eval, sft."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import Annotated, Any

import typer

from agentrl.api import ConfigError
from agentrl.cli.options import ConfigOption, EnvOption, JsonOption, ModelOption, OutputOption, SetOption, layers
from agentrl.config import Layer
from agentrl.report.text import evaluation_lines, summary_lines

_STARTED = time.monotonic()


def train(
    env: EnvOption = None,
    model: ModelOption = None,
    algo: Annotated[
        str | None,
        typer.Option("--algo", help="Preset, such as ppo, grpo or gspo, or file.py:NAME."),
    ] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --output.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Resolve and check everything, run nothing.")] = False,
) -> None:
    """Train a policy by reinforcement learning, with held-out evaluation before and after."""
    asked = layers(config, set_, env__name=env, model__path=model, algorithm__preset=algo)
    from agentrl.loops.resolve import resolve, resumed_layers

    if resume:
        if output is None:
            raise ConfigError("--resume: name the run with --output DIR")
        asked = resumed_layers(output, asked)
    resolved = resolve(asked)
    if dry_run:
        print(_resolved_yaml(resolved.config.model_dump(mode="json")), end="")
        return
    from agentrl.loops.train import train as run_training  # torch comes only when the settings hold

    folder = output or f"runs/{resolved.config.env.name.split(':')[-1]}-{datetime.now():%Y%m%d-%H%M%S}"
    summary = run_training(resolved, folder, resume=resume, started=_STARTED)
    print("\n" + "\n".join(summary_lines(summary)))
    if summary["stop_reason"] == "interrupted":
        print(f"interrupted after step {summary['steps']}; continue with: agentrl train --resume --output {folder}")
        sys.exit(130)


def evaluate(
    env: EnvOption = None,
    model: ModelOption = None,
    split: Annotated[str, typer.Option("--split", help="Split of the environment's tasks.")] = "test",
    samples: Annotated[int | None, typer.Option("--samples", help="Rollouts per task.")] = None,
    k: Annotated[str | None, typer.Option("--k", help="k of pass@k, separated by commas.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", help="First tasks only.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = None,
    json_: JsonOption = False,
) -> None:
    """Measure a policy: pass@k with intervals, reward parts, verdict reasons."""
    if env is None and config is None:
        raise ConfigError("--env: name the environment to evaluate in (`agentrl env list`)")
    given = {"eval__k": _numbers(k)} if k is not None else {}
    asked = layers(config, set_, env__name=env, model__path=model, eval__samples=samples, eval__limit=limit, **given)
    if samples is not None:  # the lowest layer: what a file or --k says of k wins
        asked.insert(0, Layer("--samples", {"eval": {"k": [n for n in (1, 4, 8) if n <= samples]}}))
    from agentrl.loops.resolve import resolve

    resolved = resolve(asked)
    from agentrl.loops.standalone import evaluate_model

    result = evaluate_model(resolved, split, output, quiet=json_)
    print(json.dumps(result) if json_ else "\n".join(evaluation_lines({resolved.config.model.path: result})))


def sft(
    env: EnvOption = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    output: OutputOption = None,
) -> None:
    """Fine-tune a policy on an environment's demonstrations, or make a new one from them."""
    asked = layers(config, set_, env__name=env, model__path=model)
    from agentrl.loops.resolve import resolve

    resolved = resolve(asked)
    from agentrl.loops.sft import sft as run_sft

    folder = output or f"runs/sft-{datetime.now():%Y%m%d-%H%M%S}"
    summary = run_sft(resolved, folder)
    print(f"policy: {summary['policy']}\nvalidation loss {summary['validation_loss']:.4f} nats per token")


def _numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"--k {text}: numbers separated by commas are expected, such as 1,4,8") from None


def _resolved_yaml(settings: dict[str, Any]) -> str:
    import yaml

    return str(yaml.safe_dump(settings, sort_keys=False))
