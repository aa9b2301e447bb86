"""Trying a program on what a task shows of its tests: how much of it passes, and what the policy is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from agentrl.api import (
    JSON,
    Call,
    CodeSpec,
    Execution,
    Limits,
    Sandbox,
    SandboxUnavailable,
    read_code_spec,
    same_text,
)
from agentrl_envs.code_exec.feedback import examples_passed, observe, short

_BASIC = Limits(cpu_seconds=2.0, seconds=8.0, memory_mb=256)
_KINDS = ("cases", "io", "tests")


def visible_count(data: Mapping[str, JSON]) -> int:
    """How many examples a task shows; one that shows nothing counts loading as its example."""
    return len(data["examples"]) if "examples" in data else 1


async def try_visible(sandbox: Sandbox, program: str, data: Mapping[str, JSON]) -> tuple[int, str]:
    """How many of the visible examples pass, and the text about the first that fails.

    They run and are compared as the task says, exactly as the hidden ones are. Raises SandboxUnavailable when running
    failed, not the program.
    """
    spec = _visible_spec(data)
    if spec is not None and spec.io:
        return await _try_io(sandbox, program, spec)
    if spec is not None and spec.tests:
        return await _try_tests(sandbox, program, spec, str(data["visible"].get("shown", "The example")))
    if spec is not None:
        return await _try_cases(sandbox, program, spec)
    if "io" in data:
        return 1, ""  # a script does nothing before it has input
    hidden = read_code_spec(data)
    done = await sandbox.run_calls(program, [], files=hidden.workspace, limits=hidden.limits)
    _ours(done.load)
    loads = done.load.reason == "ok"
    return int(loads), "" if loads else observe("", (), done)


def _visible_spec(data: Mapping[str, JSON]) -> CodeSpec | None:
    """What is shown, with the task's own rules; None when nothing is."""
    rules = {key: value for key, value in data.items() if key in ("entry_point", "compare", "workspace", "limits")}
    if "examples" in data:
        return dataclasses.replace(read_code_spec({**rules, "cases": data["examples"]}), limits=_BASIC)
    shown = {kind: data["visible"][kind] for kind in _KINDS if kind in data["visible"]}
    return read_code_spec({**rules, **shown}) if shown else None


async def _try_cases(sandbox: Sandbox, program: str, spec: CodeSpec) -> tuple[int, str]:
    entry_point = str(spec.entry_point)
    calls = [Call(function=entry_point, args=case["args"], kwargs=case["kwargs"]) for case in spec.cases]
    done = await sandbox.run_calls(program, calls, files=spec.workspace, limits=spec.limits)
    _ours(done.load)
    return examples_passed(spec.cases, done, spec.compare), observe(entry_point, spec.cases, done, spec.compare)


async def _try_io(sandbox: Sandbox, program: str, spec: CodeSpec) -> tuple[int, str]:
    (pair,) = spec.io
    done = await sandbox.run(program, stdin=pair.get("stdin", ""), files=spec.workspace, limits=spec.limits)
    _ours(done)
    if done.reason != "ok":
        return 0, f"With that input it failed: {short(_error(done))}."
    if same_text(pair["stdout"], done.stdout, compare=spec.compare):
        return 1, ""
    return 0, f"With that input it printed {short(done.stdout) or 'nothing'}, expected {short(pair['stdout'])}."


async def _try_tests(sandbox: Sandbox, program: str, spec: CodeSpec, shown: str) -> tuple[int, str]:
    done = await sandbox.run_tests(
        program, spec.tests, entry_point=spec.entry_point, files=spec.workspace, limits=spec.limits
    )
    _ours(done)
    if done.reason == "ok":
        return 1, ""
    return 0, f"{shown} failed: {short(_error(done))}."


def _error(done: Execution) -> str:
    return done.detail or done.reason


def _ours(done: Execution) -> None:
    if done.cause == "ours":
        raise SandboxUnavailable(f"the sandbox failed on the visible examples: {done.detail}")
