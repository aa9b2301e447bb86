"""The command that judges saved texts."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated, Any

import typer

from agentrl.api import ConfigError
from agentrl.cli.options import JsonOption, SandboxOption, SetOption, WorkersOption, layers
from agentrl.config import Config, Layer, merge, parse
from agentrl.records.serial import json_text
from agentrl.report.text import table


def verify(
    verifier: Annotated[str, typer.Argument(help="Verifier: a name, file.py:Class or module:Class.")],
    file: Annotated[str, typer.Argument(help='Lines {"id", "response" or "program", "task": {...}}.')],
    sandbox: SandboxOption = "auto",
    workers: WorkersOption = None,
    set_: SetOption = None,
    json_: JsonOption = False,
) -> None:
    """Judge every line of a JSONL file; one verdict a line on stdout, in input order.

    For a verifier that judges groups each line needs a "group": lines with the same one are judged together.

    Exit code 0 when all lines were judged, 3 when some were unjudged, 2 for bad input.
    """
    settings, options = _settings(set_, sandbox, workers)
    from agentrl.loops.verify import verify_file

    outcome = verify_file(
        verifier,
        file,
        sandbox=settings.sandbox,
        judge_config=settings.judge,
        options=options,
        write=lambda line: print(json_text(line), flush=True),
        refuse=lambda text: print(f"error: {text}", file=sys.stderr),
    )
    if not json_:
        tier = f" (sandbox: {outcome.tier})" if outcome.tier else ""
        counts = f"{outcome.passed} passed, {outcome.judged - outcome.passed} failed, {outcome.unjudged} unjudged"
        print(f"{counts}, {outcome.refused} refused{tier}", file=sys.stderr)
    sys.exit(outcome.exit_code)


def check(
    name: Annotated[str, typer.Argument(help="Verifier: a name, file.py:Class or module:Class.")],
    sandbox: SandboxOption = "auto",
    workers: WorkersOption = None,
    set_: SetOption = None,
    json_: JsonOption = False,
) -> None:
    """Check a verifier: gold passes; empty, junk, near misses and hacks fail; its speed is printed.

    Exit code 0 when every response was judged as it has to be, 3 otherwise.
    """
    settings, options = _settings(set_, sandbox, workers)
    from agentrl.loops.check_verifier import check_verifier

    report = check_verifier(name, sandbox=settings.sandbox, judge_config=settings.judge, options=options)
    if json_:
        print(json_text(dataclasses.asdict(report)))
        sys.exit(report.exit_code)
    rows = [
        ["ok" if one.right else "WRONG", one.kind, one.reason, one.response[:60].replace("\n", " "), one.detail[:60]]
        for one in report.checks
    ]
    print("\n".join(table(["", "kind", "reason", "response", "detail"], rows)))
    wrong = sum(not one.right for one in report.checks)
    print(f"\n{len(report.checks)} responses, {wrong} judged wrongly")
    print(
        f"{report.rate:.0f} verdicts/s; latency median {1e3 * report.median:.1f} ms, "
        f"slowest {1e3 * report.slowest:.1f} ms"
    )
    sys.exit(report.exit_code)


def _settings(assignments: list[str] | None, sandbox: str, workers: int | None) -> tuple[Config, dict[str, Any]]:
    """The settings of the services, and the verifier's options; any other key is an error."""
    given = layers(None, assignments, sandbox__backend=sandbox, sandbox__workers=workers)
    options: dict[str, Any] = {}
    for layer in given:
        for key in layer.settings.keys() - {"sandbox", "judge", "options"}:
            raise ConfigError(
                f"--set {key}: only keys under sandbox, judge and options (of the verifier) are taken here"
            )
        options = merge(options, layer.settings.get("options") or {})
    kept = ("sandbox", "judge")
    settings = parse([Layer(x.source, {key: x.settings[key] for key in kept if key in x.settings}) for x in given])
    return settings, options
