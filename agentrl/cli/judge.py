"""The command that judges saved texts."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from agentrl.cli.options import JsonOption
from agentrl.config import Layer, parse


def verify(
    verifier: Annotated[str, typer.Argument(help="Verifier: a name, file.py:Class or module:Class.")],
    file: Annotated[str, typer.Argument(help='Lines {"id", "response" or "program", "task": {...}}.')],
    sandbox: Annotated[str, typer.Option("--sandbox", help="Isolation backend.")] = "auto",
    workers: Annotated[int | None, typer.Option("--workers", help="Warm workers; default one per processor.")] = None,
    json_: JsonOption = False,
) -> None:
    """Judge every line of a JSONL file; one verdict a line on stdout, in input order.

    Exit code 0 when all lines were judged, 3 when some were unjudged, 2 for bad input.
    """
    settings = parse([Layer("command line", {"sandbox": {"backend": sandbox, "workers": workers}})])
    from agentrl.loops.verify import verify_file

    outcome = verify_file(
        verifier,
        file,
        sandbox=settings.sandbox,
        write=lambda line: print(json.dumps(line, ensure_ascii=False), flush=True),
        refuse=lambda text: print(f"error: {text}", file=sys.stderr),
    )
    if not json_:
        tier = f" (sandbox: {outcome.tier})" if outcome.tier else ""
        counts = f"{outcome.passed} passed, {outcome.judged - outcome.passed} failed, {outcome.unjudged} unjudged"
        print(f"{counts}, {outcome.refused} refused{tier}", file=sys.stderr)
    sys.exit(outcome.exit_code)
