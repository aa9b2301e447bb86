"""Questions of the user's own: GSM8K's solutions with `#### 42`, or bare answers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentrl.api import DataError, Task, TaskRow, TaskSource, read_rows

MARK = "####"
_CALCULATOR = re.compile(r"<<[^<>\n]*>>")
"""GSM8K's marks for a calculator, `<<48/2=24>>`: nothing that a policy should write."""
INSTRUCTION = "End with a line of four hashes and the answer, such as: #### 7"


def own_tasks(sources: Sequence[TaskSource], split: str, seed: int) -> list[Task]:
    """The tasks of a split. `data["solution"]` is there where the answer comes with its working."""
    return [_task(row) for row in read_rows(sources, split, ("question", "answer"), seed=seed)]


def _task(row: TaskRow) -> Task:
    question, answer = row.fields["question"], row.fields["answer"]
    if not isinstance(question, str) or not question.strip():
        raise DataError(f"{row.where}: the question must be text, not {question!r:.60}")
    gold = gold_of(answer, row.where)
    return Task(
        id=row.id,
        messages=row.messages(f"{question.strip()}\n{INSTRUCTION}"),
        answer=gold,
        data={"solution": _CALCULATOR.sub("", answer)} if isinstance(answer, str) and MARK in answer else {},
    )


def gold_of(answer: object, where: str) -> str | int | float:
    """The gold of an answer: what follows the last `####`, else all of it. Raises DataError where there is none."""
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise DataError(f"{where}: the answer must be text or a number, not {answer!r:.60}")
    if not isinstance(answer, str):
        return answer
    gold = answer.rpartition(MARK)[2].strip()
    if not gold:
        after = f" after the last {MARK}" if MARK in answer else ""
        raise DataError(f"{where}: there is no answer{after}")
    return gold
