"""The user's own tasks: where they lie, which columns mean what, and how they become a prompt.

An environment puts `TaskSources` into its options and asks `read_rows` for the rows of a split.
"""

from __future__ import annotations

import json
import math
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError, field_validator, model_validator

from agentrl.api.env import Options
from agentrl.api.errors import DataError, nearest
from agentrl.api.seeds import keyed_seed
from agentrl.api.task_files import Record, find_file, read_dataset, read_file
from agentrl.api.types import JSON, Message

SHARES: Mapping[str, float] = {"train": 0.8, "validation": 0.1, "test": 0.1}
"""How a single file is split when `splits` says nothing."""
_WHOLE = "train"
"""The split of a source, or the file of a folder, that shares are taken of."""


class TaskFilter(Options):
    """Keeps the rows that meet every condition given. min, max: also of numbers written as text.

    Example: `TaskFilter(column="level", min=3)`, in YAML `{column: kind, in: [algebra, geometry]}`.
    """

    column: str = Field(description="column, dotted for nested ones")
    equals: Any = Field(None, description="the value")
    one_of: tuple[Any, ...] | None = Field(None, alias="in", description="the values")
    min: float | None = Field(None, description="least number")
    max: float | None = Field(None, description="largest number")
    contains: Any = Field(None, description="part of a text, or entry of a list")
    max_length: int | None = Field(None, ge=0, description="most characters of a text, or entries of a list")

    @model_validator(mode="after")
    def _says_something(self) -> TaskFilter:
        if not self.model_fields_set - {"column"}:
            raise ValueError("a filter needs equals, in, min, max, contains or max_length")
        return self


class TaskSource(Options):
    """Where tasks come from. A text alone is a path, so that `--set env.options.source=tasks.jsonl` is enough.

    splits: from the environment's split names to the source's (a split of a dataset, a file of a folder), or to a
    share of the file, of the dataset's split `train` or of the folder's file `train`; the share that a row is in
    depends on its id alone (without an id, on its contents). A file without `splits` is shared out as `SHARES` says.

    Example: `TaskSource(path="tasks.jsonl", columns={"question": "problem.text", "answer": "solution"})`.
    """

    path: str | None = Field(None, description="a .jsonl, .json, .csv or .parquet file, or a folder of them")
    dataset: str | None = Field(None, description="or: a Hugging Face dataset, by name or folder")
    config: str | None = Field(None, description="configuration of the dataset")
    revision: str | None = Field(None, description="revision of the dataset")
    splits: dict[str, str | float] = Field({}, description="split to the source's split or file, or to a share")
    columns: dict[str, str] = Field({}, description="field to column; dotted for nested ones; 'id' names the tasks")
    prompt: str | None = Field(None, description="template with {field}; null takes the environment's")
    system: str | None = Field(None, description="system message")
    filter: tuple[TaskFilter, ...] = Field((), description="conditions that a row must meet")
    limit: int | None = Field(None, ge=1, description="first rows of each split only")
    weight: float | None = Field(None, gt=0, description="share of the mixture, in proportion; null takes all rows")

    @property
    def name(self) -> str:
        """What the tasks are called after: the file's stem or the dataset's last name."""
        return Path(self.path or self.dataset or "").stem

    @model_validator(mode="after")
    def _one_place(self) -> TaskSource:
        if (self.path is None) == (self.dataset is None):
            raise ValueError("give either path or dataset")
        for key in ("config", "revision"):
            if self.path is not None and getattr(self, key) is not None:
                raise ValueError(f"{key} belongs to a dataset, and this source is a path")
        return self

    @field_validator("splits")
    @classmethod
    def _shares(cls, splits: dict[str, str | float]) -> dict[str, str | float]:
        shares = [share for share in splits.values() if not isinstance(share, str)]
        if any(not 0 < share <= 1 for share in shares) or math.fsum(shares) > 1 + 1e-9:
            raise ValueError("shares must be above 0 and together at most 1")
        return splits

    @field_validator("prompt")
    @classmethod
    def _names_only(cls, prompt: str | None) -> str | None:
        for name in placeholders(prompt or ""):
            if not name.isidentifier():
                raise ValueError(f"{{{name}}} in the prompt must be a plain name (write {{{{ and }}}} for braces)")
        return prompt


def _as_sources(value: object) -> object:
    entries = value if isinstance(value, list | tuple) else [value]
    return tuple(
        _as_source(entry, f"{place}." if isinstance(value, list) else "") for place, entry in enumerate(entries)
    )


def _as_source(entry: object, prefix: str) -> TaskSource:
    """One source; the message of a mistake names the key, as a union or a list of models would not."""
    try:
        return TaskSource.model_validate({"path": entry} if isinstance(entry, str) else entry)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        said = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            model = TaskFilter if "filter" in first["loc"] else TaskSource
            known = [entry.alias or name for name, entry in model.model_fields.items()]
            said = f"unknown key{nearest(str(first['loc'][-1]), known)} (known: {', '.join(known)})"
        raise ValueError(f"{prefix}{where}: {said}" if where else f"{prefix}{said}") from None


TaskSources = Annotated[tuple[TaskSource, ...], BeforeValidator(_as_sources)]
"""The type of an option that takes one source, several, or a path as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A row of a split. id: unique in the mixture. fields: the environment's names, and what `columns` adds.

    Example: `TaskRow(id="tasks/3", fields={"question": "2+2?", "answer": "4"}, where="tasks.jsonl, line 3")`.
    """

    id: str
    fields: Mapping[str, JSON] = field(default_factory=dict)
    prompt: str | None = None
    system: str | None = None
    where: str

    def messages(self, default: str) -> tuple[Message, ...]:
        """System message and prompt; `default` is the prompt of a source without a template."""
        user = Message(role="user", content=default if self.prompt is None else self.prompt)
        return (user,) if self.system is None else (Message(role="system", content=self.system), user)


def read_rows(
    sources: TaskSource | Sequence[TaskSource],
    split: str,
    fields: Sequence[str],
    *,
    optional: Sequence[str] = (),
    seed: int = 0,
) -> list[TaskRow]:
    """The rows of `split`, in the order of the sources.

    fields: what every row must have (not null); optional: what is taken where there is such a column. Of several
    sources with weights, as many rows are taken as keep the proportions without taking a row twice; which ones is
    drawn by `seed`. Raises DataError that names file, line and key.

    Example: `read_rows(TaskSource(path="tasks.jsonl"), "train", ("question", "answer"))[0].fields["answer"]`.
    """
    several = [sources] if isinstance(sources, TaskSource) else list(sources)
    names = _names(several)
    parts = [
        _of_one(source, name if len(several) > 1 else None, split, tuple(fields), tuple(optional))
        for source, name in zip(several, names, strict=True)
    ]
    rows = [row for part in _mixed(several, parts, names, split, seed) for row in part]
    seen: dict[str, str] = {}
    for row in rows:
        if row.id in seen:
            raise DataError(f"{row.where}: the id '{row.id}' stands in {seen[row.id]} too")
        seen[row.id] = row.where
    if not rows:
        raise DataError(f"{', '.join(map(_called, several))}: no row is left for the split '{split}'")
    return rows


def placeholders(template: str) -> list[str]:
    """The names in braces of a template, in their order. Raises ValueError for braces that do not close."""
    found = []
    for _, name, spec, conversion in string.Formatter().parse(template):
        if name is not None:
            found.append(name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else ""))
    return found


def _called(source: TaskSource) -> str:
    return str(source.path or source.dataset)


def _names(sources: Sequence[TaskSource]) -> list[str]:
    plain = [source.name for source in sources]
    return [name if plain.count(name) == 1 else f"{name}-{place}" for place, name in enumerate(plain, start=1)]


def _of_one(
    source: TaskSource, prefix: str | None, split: str, fields: tuple[str, ...], optional: tuple[str, ...]
) -> list[TaskRow]:
    records, share = _records(source, split)
    records = [record for record in records if all(_meets(record, condition) for condition in source.filter)]
    if share is not None:
        low, high = share
        records = [record for record in records if low <= _place(source, record) < high]
    if source.limit is not None:
        records = records[: source.limit]
    return [_row(source, record, prefix, fields, optional) for record in records]


def _records(source: TaskSource, split: str) -> tuple[list[Record], tuple[float, float] | None]:
    """The records that hold the split, and the share of them that it is."""
    path = None if source.path is None else Path(source.path).expanduser()
    folder = path is not None and path.is_dir()
    splits: Mapping[str, str | float] = source.splits
    if not splits and path is not None and not folder:
        splits = SHARES
    if splits and split not in splits:
        raise DataError(
            f"{_called(source)}: `splits` says nothing of '{split}'{nearest(split, splits)} (it has "
            f"{', '.join(splits)}); map it to a split or file of the source, or to a share"
        )
    wanted = splits.get(split, split)
    name = wanted if isinstance(wanted, str) else _WHOLE
    share = None if isinstance(wanted, str) else _interval(splits, split)
    if path is None:
        return read_dataset(str(source.dataset), source.config, source.revision, name), share
    if folder:
        return read_file(find_file(path, name)), share
    if isinstance(wanted, str):
        return read_file(find_file(path.parent, wanted)), None
    return read_file(path), share


def _interval(splits: Mapping[str, str | float], split: str) -> tuple[float, float]:
    low = 0.0
    for name, share in splits.items():
        if isinstance(share, str):
            continue
        if name == split:
            high = low + share
            return low, high if high < 1 - 1e-9 else math.inf
        low += share
    raise AssertionError(split)


def _place(source: TaskSource, record: Record) -> float:
    """Where a row stands between 0 and 1, by its id alone; rows without an id go by their contents."""
    name = _own_id(source, record)
    key = name if name is not None else json.dumps(record.values, sort_keys=True, default=str)
    return keyed_seed("split", key) / 2**63


def _own_id(source: TaskSource, record: Record) -> str | None:
    column = source.columns.get("id", "id")
    if "id" not in source.columns and "id" not in record.values:
        return None
    value = _column(record, column, "id")
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise DataError(f"{record.where}: the id in '{column}' must be text or a whole number, not {value!r:.60}")
    return str(value)


def _row(
    source: TaskSource, record: Record, prefix: str | None, fields: tuple[str, ...], optional: tuple[str, ...]
) -> TaskRow:
    values: dict[str, JSON] = {}
    for name in dict.fromkeys((*fields, *source.columns, *optional)):
        column = source.columns.get(name, name)
        if name in fields or name in source.columns:
            values[name] = _plain(record, column, _column(record, column, name))
        elif column in record.values:
            values[name] = _plain(record, column, record.values[column])
        if name in fields and values[name] is None:
            raise DataError(f"{record.where}: '{column}' is null, and the field '{name}' needs a value")
    own = _own_id(source, record)
    identity = own if own is not None else record.name
    named = prefix is None or (own is None and identity.startswith(f"{prefix}/"))
    return TaskRow(
        id=identity if named else f"{prefix}/{identity}",
        fields=values,
        prompt=None if source.prompt is None else _filled(source.prompt, record, values),
        system=source.system,
        where=record.where,
    )


def _column(record: Record, column: str, name: str) -> Any:
    """The value of a column: by its whole name, else by its dotted parts."""
    if column in record.values:
        return record.values[column]
    value: Any = record.values
    for part in column.split("."):
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            known = [str(key) for key in (value if isinstance(value, Mapping) else record.values)]
            of = "" if column == name else f" (of '{name}')"
            raise DataError(
                f"{record.where}: there is no column '{column}'{of}{nearest(part, known)} (it has {', '.join(known)}); "
                "`columns` maps fields to columns"
            )
    return value


def _plain(record: Record, column: str, value: Any) -> JSON:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"{record.where}: '{column}' holds what JSON cannot: {error}") from error
    return value


def _filled(template: str, record: Record, values: Mapping[str, JSON]) -> str:
    known = {**record.values, **values}
    texts = {}
    for name in placeholders(template):
        if name not in known:
            raise DataError(
                f"{record.where}: the prompt names '{{{name}}}', which is neither a field nor a column"
                f"{nearest(name, known)} (known: {', '.join(known)})"
            )
        if known[name] is None:
            raise DataError(f"{record.where}: '{name}' is null, and the prompt needs it")
        value = known[name]
        texts[name] = value if isinstance(value, str) else json.dumps(_plain(record, name, value), ensure_ascii=False)
    return template.format_map(texts)


def _meets(record: Record, condition: TaskFilter) -> bool:
    value, given = _column(record, condition.column, condition.column), condition.model_fields_set
    number, text = partial(_number, record, condition.column), isinstance(value, str | list)
    if given & {"contains", "max_length"} and value is not None and not text:
        raise DataError(f"{record.where}: '{condition.column}' is neither text nor a list, and a filter measures it")
    return all(
        (
            "equals" not in given or value == condition.equals,
            condition.one_of is None or value in condition.one_of,
            condition.min is None or (value is not None and number(value) >= condition.min),
            condition.max is None or (value is not None and number(value) <= condition.max),
            "contains" not in given or (value is not None and _holds(value, condition.contains)),
            condition.max_length is None or (value is not None and len(value) <= condition.max_length),
        )
    )


def _holds(value: str | list[Any], part: Any) -> bool:
    return str(part) in value if isinstance(value, str) else part in value


def _number(record: Record, column: str, value: object) -> float:
    try:
        if isinstance(value, bool):
            raise TypeError
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"{record.where}: '{column}' is no number, and a filter compares it: {value!r:.60}") from None


def _mixed(
    sources: Sequence[TaskSource], parts: list[list[TaskRow]], names: Iterable[str], split: str, seed: int
) -> list[list[TaskRow]]:
    """As many rows of each source as its weight says, none twice; kept in their order."""
    weights = [source.weight for source in sources]
    if all(weight is None for weight in weights) or len(sources) == 1:
        return parts
    if any(weight is None for weight in weights):
        missing = next(_called(source) for source in sources if source.weight is None)
        raise DataError(f"{missing}: some sources of the mixture have a weight and this one has none")
    scale = min(len(part) / float(weight or 1) for part, weight in zip(parts, weights, strict=True))
    chosen = []
    for part, weight, name in zip(parts, weights, names, strict=True):
        count = min(len(part), round(scale * float(weight or 1)))
        order = np.random.default_rng(keyed_seed(seed, "mixture", name, split)).permutation(len(part))
        chosen.append([part[i] for i in sorted(order[:count])])
    return chosen
