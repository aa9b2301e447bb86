"""From what a worker reports to what a caller reads: reasons, and values parsed as data."""

from __future__ import annotations

import dataclasses
import json
import secrets
import signal
from typing import Any

from agentrl.api import CallResult, CallsExecution, Execution, Limits
from agentrl.sandbox.inside import plain
from agentrl.sandbox.worker import Answer

_STOPPED = {
    "cpu": ("timeout", "used more than {0.cpu_seconds:g} s of CPU time"),
    "tests_cpu": ("timeout", "the tests of this program used more than {0.cpu_seconds:g} s of CPU time"),
    "wall": ("timeout", "ran longer than {0.seconds:g} s"),
    "memory": ("memory_limit", "used more than {0.memory_mb} MB of memory"),
    "output": ("output_limit", "printed more than {0.output_bytes} bytes"),
    "processes": ("process_limit", "started more than {0.processes} processes"),
}
_PROGRAM_REASONS = frozenset(
    {"syntax_error", "runtime_error", "exited_early", "memory_limit", "output_limit", "process_limit", "file_limit"}
)


def ours(detail: str) -> Execution:
    """An execution that says nothing about the program."""
    return Execution(reason="sandbox_unavailable", cause="ours", detail=detail)


def execution(answer: Answer, limits: Limits) -> Execution:
    """How a script ended."""
    reason, detail = _ending(answer, limits)
    if reason == "runtime_error":
        for record in _records(answer.results):
            if record.get("end") in _PROGRAM_REASONS:
                reason, detail = record["end"], _text(record.get("error"))
    return build(answer, reason, detail)


def calls_execution(answer: Answer, limits: Limits, wanted: int) -> CallsExecution:
    """How loading and `wanted` calls ended; the results are fewer when the program ended early."""
    records = _records(answer.results)
    load = next(iter(records), {})
    if load.get("load") != "ok":
        reason, detail = _ending(answer, limits)
        if load.get("load") in _PROGRAM_REASONS:
            reason, detail = load["load"], _text(load.get("error"))
        elif reason in ("ok", "runtime_error"):
            reason, detail = _vanished(answer, "before it was loaded")
        return CallsExecution(load=build(answer, reason, detail))
    results = []
    for place, record in enumerate(records[1 : wanted + 1]):
        if record.get("place", place) != place:
            # A fork that vanished without a word; what follows belongs to later calls.
            break
        results.append(call_result(record))
    if len(results) < wanted:
        reason, detail = _ending(answer, limits)
        if reason in ("ok", "runtime_error"):
            reason, detail = _vanished(answer, "before the call returned")
        results.append(CallResult(reason=reason, error=detail))
    return CallsExecution(load=build(answer, "ok", ""), results=tuple(results))


def tests_execution(answer: Answer, limits: Limits, token: str) -> Execution:
    """What the tests concluded of the program; `ok` only with their token."""
    verdict = next(iter(_records(answer.verdict)), {})
    end, words = verdict.get("end"), _text(verdict.get("error"))
    if end == "ok" and secrets.compare_digest(str(verdict.get("token")), token):
        return build(answer, "ok", "")
    if end == "verifier_error":
        return dataclasses.replace(build(answer, "verifier_error", words), cause="ours")
    if end in _PROGRAM_REASONS or end == "wrong_answer":
        return build(answer, str(end), words)
    return build(answer, *_untested(answer, limits, words))


def _untested(answer: Answer, limits: Limits, words: str) -> tuple[str, str]:
    """Why the tests did not come to a conclusion: the program did not load or last, or the tests themselves did not."""
    load = next(iter(_records(answer.results)), {})
    if load.get("load") in _PROGRAM_REASONS:
        return load["load"], _text(load.get("error"))
    reason, detail = _ending(answer, limits)
    if reason not in ("ok", "runtime_error"):
        return reason, detail
    if words:
        return "runtime_error", f"the program's process sent something else than answers: {words}"
    return _vanished(answer, "before the tests were done")


def _vanished(answer: Answer, when: str) -> tuple[str, str]:
    facts = answer.facts
    if facts.get("signal"):
        return "runtime_error", f"the program was killed by {_signal_name(facts['signal'])} {when}"
    if facts.get("exit_code") is None:
        return "exited_early", f"the program's processes were all gone {when}"
    return "exited_early", f"the program ended with status {facts.get('exit_code')} {when}"


def call_result(record: dict[str, Any]) -> CallResult:
    """One call's record, which may be forged, as a result."""
    printed = _text(record.get("out"))
    if record.get("call") == "ok" and "value" in record:
        try:
            # The record was parsed once as JSON; the value is a text of its own inside it.
            return CallResult(value=plain.loads(record["value"]), stdout=printed)
        except (ValueError, TypeError, AttributeError) as error:
            return CallResult(reason="runtime_error", error=f"the program returned unreadable data: {error}")
    reason = record.get("call")
    if reason in _PROGRAM_REASONS or reason == "wrong_answer":
        return CallResult(reason=str(reason), error=_text(record.get("error")), stdout=printed)
    return CallResult(reason="runtime_error", error="the program wrote to the result channel")


def _ending(answer: Answer, limits: Limits) -> tuple[str, str]:
    facts = answer.facts
    if facts["stopped"]:
        reason, text = _STOPPED[facts["stopped"]]
        return reason, text.format(limits)
    killer = facts.get("signal")
    if killer == signal.SIGXCPU or (killer == signal.SIGKILL and facts["main_cpu"] >= limits.cpu_seconds):
        return "timeout", _STOPPED["cpu"][1].format(limits)
    if killer == signal.SIGXFSZ:
        return "file_limit", f"wrote a file of more than {limits.file_mb} MB"
    if killer:
        return "runtime_error", f"killed by {_signal_name(killer)}"
    code = facts.get("exit_code")
    if code is None:
        return "runtime_error", "the program's processes were all killed"
    return ("ok", "") if code == 0 else ("runtime_error", f"exit status {code}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def known_reason(word: object) -> str:
    """A reason word that a program's process reported, or `runtime_error` for anything else."""
    return str(word) if word == "ok" or word in _PROGRAM_REASONS else "runtime_error"


def ending_of_box(answer: Answer, limits: Limits) -> tuple[str, str]:
    """Why a box gave no reply."""
    if answer.facts["stopped"]:
        return _ending(answer, limits)
    return "exited_early", "the program's process ended"


def build(answer: Answer, reason: str, detail: str) -> Execution:
    """An execution with what the worker reports."""
    facts = answer.facts
    return Execution(
        stdout=answer.stdout.decode("utf-8", "replace"),
        stderr=answer.stderr.decode("utf-8", "replace"),
        exit_code=facts.get("exit_code"),
        signal=facts.get("signal"),
        reason=reason,
        detail=detail,
        cpu_seconds=facts.get("cpu", 0.0),
        seconds=facts.get("seconds", 0.0),
    )


def _records(results: bytes) -> list[dict[str, Any]]:
    """The whole lines of the result pipe; a line that is no JSON object becomes an empty record."""
    records = []
    for line in results.split(b"\n")[:-1]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = {}
        records.append(record if isinstance(record, dict) else {})
    return records


def _text(value: object) -> str:
    return value[:4000].encode("utf-8", "replace").decode() if isinstance(value, str) else ""
