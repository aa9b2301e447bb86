"""What the verifiers of answers share: the gold of a task as text, and the form of a verdict."""

from __future__ import annotations

import math

from agentrl.api import DataError, Task, Verdict


def gold_text(task: Task) -> str:
    """The gold of a task: `data["answer"]`, else `answer`; text, or a number. Raises DataError for anything else."""
    gold = task.data.get("answer", task.answer)
    if isinstance(gold, bool) or not isinstance(gold, str | int | float):
        raise DataError(f"the task's answer must be text or a number, not {type(gold).__name__}")
    if isinstance(gold, float):
        if not math.isfinite(gold):
            raise DataError(f"the task's answer must be a finite number, not {gold}")
        return repr(int(gold)) if gold.is_integer() and abs(gold) < 1e15 else repr(gold)
    if isinstance(gold, int) and abs(gold) >= 10**1000:
        raise DataError("the task's answer has more than 1000 digits")
    text = str(gold).strip()
    if not text:
        raise DataError("the task's answer is empty: nothing could be compared with it")
    return text


def answer_verdict(name: str, reason: str, detail: str, seconds: float) -> Verdict:
    """The verdict of a verifier of answers: 1.0, 0.0, or unjudged when our machinery failed."""
    if reason == "verifier_error":
        return Verdict(verifier=name, score=None, reason=reason, detail=detail, seconds=seconds)
    passed = reason == "passed"
    return Verdict(verifier=name, score=float(passed), passed=passed, reason=reason, detail=detail, seconds=seconds)
