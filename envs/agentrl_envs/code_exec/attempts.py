"""Trying a program on what a task shows of its tests: how much of it passes, and what the policy is told."""

from __future__ import annotations

from collections.abc import Mapping

from agentrl.api import JSON, Call, Execution, Limits, Sandbox, SandboxUnavailable, same_text
from agentrl_envs.code_exec.feedback import examples_passed, observe, short

LIMITS = Limits(cpu_seconds=2.0, seconds=8.0, memory_mb=256)


def visible_count(data: Mapping[str, JSON]) -> int:
    """How many examples a task shows; one that shows nothing counts loading as its example."""
    return len(data["examples"]) if "examples" in data else 1


async def try_visible(sandbox: Sandbox, program: str, data: Mapping[str, JSON]) -> tuple[int, str]:
    """How many of the visible examples pass, and the text about the first that fails.

    Raises SandboxUnavailable when running failed, not the program.
    """
    visible = data.get("visible", {})
    if "io" in visible:
        return await _try_io(sandbox, program, visible["io"][0], str(data.get("compare") or "tokens"))
    if "tests" in visible:
        return await _try_tests(sandbox, program, visible["tests"], data.get("entry_point"))
    if "io" in data:
        return 1, ""  # a script does nothing before it has input
    examples = data.get("examples", visible.get("cases", ()))
    entry_point = str(data.get("entry_point"))
    calls = [
        Call(function=entry_point, args=example.get("args", []), kwargs=example.get("kwargs") or {})
        for example in examples
    ]
    execution = await sandbox.run_calls(program, calls, limits=LIMITS)
    _ours(execution.load)
    if not examples:
        loads = execution.load.reason == "ok"
        return int(loads), "" if loads else observe(entry_point, (), execution)
    return examples_passed(examples, execution), observe(entry_point, examples, execution)


async def _try_io(sandbox: Sandbox, program: str, pair: Mapping[str, str], compare: str) -> tuple[int, str]:
    done = await sandbox.run(program, stdin=pair.get("stdin", ""), limits=LIMITS)
    _ours(done)
    if done.reason != "ok":
        return 0, f"With that input it failed: {short(_error(done))}."
    if same_text(pair["stdout"], done.stdout, compare=compare):
        return 1, ""
    return 0, f"With that input it printed {short(done.stdout) or 'nothing'}, expected {short(pair['stdout'])}."


async def _try_tests(sandbox: Sandbox, program: str, tests: str, entry_point: str | None) -> tuple[int, str]:
    done = await sandbox.run_tests(program, tests, entry_point=entry_point, limits=LIMITS)
    _ours(done)
    if done.reason == "ok":
        return 1, ""
    return 0, f"{tests.splitlines()[-1]} failed: {short(_error(done))}."


def _error(done: Execution) -> str:
    return done.detail or done.reason


def _ours(done: Execution) -> None:
    if done.cause == "ours":
        raise SandboxUnavailable(f"the sandbox failed on the visible examples: {done.detail}")
