"""Commands about environments: check, play, new, and the audit of their rewards."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from agentrl.cli.options import ConfigOption, JsonOption, ModelOption, SetOption, layers
from agentrl.records.serial import json_text
from agentrl.report.text import table

NameArgument = Annotated[str, typer.Argument(help="Environment: a name, file.py:Class or module:Class.")]


def check(
    name: NameArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Tasks to try, over all splits.")] = 24,
    config: ConfigOption = None,
    set_: SetOption = None,
    json_: JsonOption = False,
) -> None:
    """Check an environment against its contract. Exit code 0 when all of it holds, 3 otherwise."""
    from agentrl.loops.resolve import resolve

    resolved = resolve(layers(config, set_, env__name=name))
    from agentrl.loops.check_env import check_env

    findings = check_env(resolved, limit)
    wrong = sum(finding.right is False for finding in findings)
    if json_:
        print(json_text([dataclasses.asdict(finding) for finding in findings]))
    else:
        words = {True: "ok", False: "WRONG", None: "-"}
        for finding in findings:
            print(f"{words[finding.right]:<6}{finding.name}: {finding.detail}")
        print(f"\n{len(findings)} checks, {wrong} wrong")
    sys.exit(3 if wrong else 0)


def audit(
    env: Annotated[str, typer.Option("--env", help="Environment: a name, file.py:Class or module:Class.")],
    split: Annotated[str, typer.Option("--split", help="Split of the environment's tasks.")] = "train",
    limit: Annotated[int, typer.Option("--limit", min=1, help="First tasks only.")] = 10,
    config: ConfigOption = None,
    set_: SetOption = None,
    json_: JsonOption = False,
) -> None:
    """Try a catalogue of reward hacks before anyone trains. Exit code 3 when one of them pays."""
    from agentrl.loops.resolve import resolve

    resolved = resolve(layers(config, set_, env__name=env))
    from agentrl.loops.audit import audit as run_audit

    found = run_audit(resolved, split, limit)
    flawed = [one for one in found.earned if one.flaw]
    if json_:
        entries = [dataclasses.asdict(one) | {"flaw": one.flaw} for one in found.earned]
        print(json_text({**dataclasses.asdict(found), "earned": entries, "flawed": len(flawed)}))
        sys.exit(found.exit_code)
    rows = [
        [one.hack, *(_number(value) for value in (one.reward, one.highest, one.wrong)), str(one.solved), one.reasons]
        for one in found.earned
    ]
    print("\n".join(table(["hack", "reward", "highest", "wrong attempt", "successes", "verdicts"], rows)))
    print(f"\n{found.tasks} tasks; gold earns {_number(found.gold)}; a wrong attempt is {found.reference}")
    for one in flawed:
        print(f"PAYS  {one.hack}: {one.flaw}")
    print(f"{len(found.earned)} hacks tried, {len(flawed)} pay")
    sys.exit(found.exit_code)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def play(
    name: NameArgument,
    policy: Annotated[str, typer.Option("--policy", help="Who writes: human, gold, random, or model.")] = "human",
    split: Annotated[str, typer.Option("--split", help="Split of the environment's tasks.")] = "train",
    task: Annotated[str | None, typer.Option("--task", help="Id of the task; the first one otherwise.")] = None,
    model: ModelOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
) -> None:
    """Play one rollout and see what the policy sees, what comes back, and what it earns."""
    from agentrl.loops.resolve import resolve

    resolved = resolve(layers(config, set_, env__name=name, model__path=model))
    from agentrl.loops.play import play as run_play

    run_play(resolved, policy=policy, split=split, task_id=task, show=print, ask=_ask)


def _ask() -> str:
    """A message from the terminal: lines up to an empty one; the end of the input is an empty message."""
    lines: list[str] = []
    print("> ", end="", flush=True, file=sys.stderr)
    for line in sys.stdin:
        if not line.strip() and lines:
            break
        lines.append(line.rstrip("\n"))
    return "\n".join(lines)


def new(
    name: Annotated[str, typer.Argument(help="Name of the environment; also of the folder that is written.")],
) -> None:
    """Write a complete plugin package into ./NAME: environment, verifier, tests, entry points."""
    from agentrl.loops.scaffold import write_package

    for path in write_package(name, "."):
        print(path)
    print(
        f"\ncd {name} && python -m pytest      its own tests\n"
        f"pip install -e ./{name}             makes it known as '{name}'\n"
        f"agentrl env check {name}            the whole contract\n"
        f"agentrl train --env {name}          trains on it"
    )
