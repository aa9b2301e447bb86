"""The user's own tasks: a request, a world, and the plan that fulfils it or the rows that must be there in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from agentrl.api import JSON, DataError, Task, TaskRow, TaskSource, read_rows
from agentrl_envs.tool_use.requests import Request
from agentrl_envs.tool_use.tasks import make_task, state_after
from agentrl_envs.tool_use.world import COLUMNS, State


def own_tasks(sources: Sequence[TaskSource], split: str, seed: int) -> tuple[Task, ...]:
    """The tasks of a split. Raises DataError with file and line."""
    rows = read_rows(sources, split, ("request", "world"), optional=("plan", "expected", "answer"), seed=seed)
    return tuple(map(_task, rows))


def _task(row: TaskRow) -> Task:
    try:
        return own_task(row)
    except DataError as error:
        raise DataError(f"{row.where}: {error}") from error


def own_task(row: TaskRow) -> Task:
    """The task of a row with `request`, `world`, `plan` or `expected` or both, and `answer` where one is asked for.

    `expected` holds the rows of the tables that change; without it they are what `plan` leads to.
    """
    data = {name: value for name, value in row.fields.items() if value is not None}
    if not isinstance(data["request"], str) or not data["request"].strip():
        raise DataError(f"the request must be text, not {data['request']!r:.60}")
    start = state_after(_tables(data, "world"), ())
    plan, answer = _plan(data), data.get("answer")
    request = Request(text=data["request"], plan=plan, answer=None if answer is None else str(answer))
    try:
        task = make_task(row.id, start, request, (), row.messages(request.text))
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"the plan cannot be carried out: {type(error).__name__}: {error}") from error
    return _expecting(task, data)


def _expecting(task: Task, data: Mapping[str, JSON]) -> Task:
    """The task with the end that its line states, which must be that of its plan where it has both."""
    if "plan" not in data and "expected" not in data:
        raise DataError("give 'plan', 'expected' or both")
    if "expected" not in data:
        return task
    expected = {**task.data["start"], **_tables(data, "expected")}
    if "plan" not in data:
        made = {key: value for key, value in task.data.items() if key not in ("plan", "calls")}
    else:
        made = dict(task.data)
        different = [table for table in COLUMNS if not _same(expected[table], made["expected"][table])]
        if different:
            raise DataError(f"the plan leads to other '{different[0]}' than 'expected' states")
    return Task(id=task.id, messages=task.messages, answer=task.answer, data=made | {"expected": expected})


def _same(rows: Sequence[JSON], others: Sequence[JSON]) -> bool:
    return sorted(json.dumps(row, sort_keys=True) for row in rows) == sorted(
        json.dumps(row, sort_keys=True) for row in others
    )


def _tables(data: Mapping[str, JSON], key: str) -> State:
    tables = data.get(key)
    rows = list(tables.values()) if isinstance(tables, dict) else [None]
    if not all(isinstance(one, list) and all(isinstance(row, dict) for row in one) for one in rows):
        raise DataError(f"'{key}' must be lists of rows by table ({', '.join(COLUMNS)})")
    assert isinstance(tables, dict)
    for table in tables:
        if table not in COLUMNS:
            raise DataError(f"'{key}' has no table '{table}' ({', '.join(COLUMNS)})")
    return tables


def _plan(data: Mapping[str, JSON]) -> tuple[tuple[str, Mapping[str, JSON]], ...]:
    calls = data.get("plan", [])
    if not isinstance(calls, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) and isinstance(one.get("arguments"), dict)
        for one in calls
    ):
        raise DataError('\'plan\' must be a list of calls {"name", "arguments"}')
    return tuple((one["name"], one["arguments"]) for one in calls)
