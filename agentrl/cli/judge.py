"""The command that judges saved texts."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from agentrl.api import ConfigError
from agentrl.cli.options import JsonOption, SetOption, layers
from agentrl.config import Layer, merge, parse


def verify(
    verifier: Annotated[str, typer.Argument(help="Verifier: a name, file.py:Class or module:Class.")],
    file: Annotated[str, typer.Argument(help='Lines {"id", "response" or "program", "task": {...}}.')],
    sandbox: Annotated[str, typer.Option("--sandbox", help="Isolation backend.")] = "auto",
    workers: Annotated[int | None, typer.Option("--workers", help="Warm workers; default one per processor.")] = None,
    set_: SetOption = None,
    json_: JsonOption = False,
) -> None:
    """Judge every line of a JSONL file; one verdict a line on stdout, in input order.

    Exit code 0 when all lines were judged, 3 when some were unjudged, 2 for bad input.
    """
    given = layers(None, set_, sandbox__backend=sandbox, sandbox__workers=workers)
    options: dict[str, Any] = {}
    for layer in given:
        for key in layer.settings.keys() - {"sandbox", "options"}:
            raise ConfigError(f"--set {key}: `verify` takes keys under sandbox and options (those of the verifier)")
        options = merge(options, layer.settings.get("options") or {})
    settings = parse([Layer(layer.source, {"sandbox": layer.settings.get("sandbox") or {}}) for layer in given])
    from agentrl.loops.verify import verify_file

    outcome = verify_file(
        verifier,
        file,
        sandbox=settings.sandbox,
        options=options,
        write=lambda line: print(json.dumps(line, ensure_ascii=False), flush=True),
        refuse=lambda text: print(f"error: {text}", file=sys.stderr),
    )
    if not json_:
        tier = f" (sandbox: {outcome.tier})" if outcome.tier else ""
        counts = f"{outcome.passed} passed, {outcome.judged - outcome.passed} failed, {outcome.unjudged} unjudged"
        print(f"{counts}, {outcome.refused} refused{tier}", file=sys.stderr)
    sys.exit(outcome.exit_code)
