"""Rows of task data as they lie in files and datasets, each with the place that an error can name."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentrl.api.errors import DataError, nearest
from agentrl.api.json_text import JSONTextError, read_json

ENDINGS = (".jsonl", ".json", ".csv", ".parquet", ".jsonl.gz")
_BYTE_ORDER_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One row as the source has it. name: the file's or the dataset's, and its place from 1. where: for people.

    Example: `Record(values={"question": "2+2?", "answer": "4"}, name="tasks/3", where="tasks.jsonl, line 3")`.
    """

    values: Mapping[str, Any]
    name: str
    where: str


def read_file(path: Path) -> list[Record]:
    """The rows of a file: .jsonl(.gz), .json (a list), .csv (all values are text), .parquet. Raises DataError."""
    ending = _ending(path.name)
    if ending is None:
        raise DataError(f"{path}: task files end in {', '.join(ENDINGS)}{nearest(path.suffix, ENDINGS)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file{_beside(path)}")
    if ending == ".parquet":
        rows: Iterable[Record] = _parquet(path)
    else:
        data = _unzipped(path) if ending == ".jsonl.gz" else path.read_bytes()
        if data.startswith(_BYTE_ORDER_MARKS):
            raise DataError(f"{path}, line 1: the file begins with a byte order mark; save it as UTF-8 without one")
        rows = {".json": _json_list, ".csv": _csv}.get(ending, _json_lines)(path, data)
    found = list(rows)
    if not found:
        raise DataError(f"{path}: the file has no rows")
    return found


def find_file(folder: Path, name: str) -> Path:
    """The file that `name` means in a folder: the file itself, or `name` with one of the known endings."""
    tried = [folder / name] if _ending(name) else [folder / f"{name}{ending}" for ending in ENDINGS]
    found = [path for path in tried if path.is_file()]
    if len(found) == 1:
        return found[0]
    if found:
        raise DataError(f"{folder} holds {' and '.join(path.name for path in found)}: name the file in `splits`")
    raise DataError(f"{folder} holds no file {' or '.join(path.name for path in tried)}{_beside(folder / name)}")


def read_dataset(name: str, config: str | None, revision: str | None, split: str) -> list[Record]:
    """The rows of one split of a Hugging Face dataset: a name, or a folder (`save_to_disk` or data files)."""
    import datasets

    folder = Path(name).expanduser()
    try:
        if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
            loaded = datasets.load_from_disk(str(folder))
            loaded = loaded[split] if isinstance(loaded, datasets.DatasetDict) else loaded
        else:
            found = str(folder) if folder.is_dir() else name
            loaded = datasets.load_dataset(found, config, split=split, revision=revision)
    except KeyError as error:
        raise DataError(f"dataset = '{name}': it has no split '{split}'{nearest(split, loaded)}") from error
    except Exception as error:  # the library raises what its network, its parsers and its caches raise
        said = " ".join(str(error).split())
        raise DataError(
            f"dataset = '{name}': the split '{split}' cannot be read: {type(error).__name__}: {said:.300}"
        ) from error
    return [
        Record(values=row, name=f"{folder.stem}/{split}/{number}", where=f"{name}, {split}, row {number}")
        for number, row in enumerate(loaded, start=1)
    ]


def _ending(name: str) -> str | None:
    return next((ending for ending in ENDINGS if name.endswith(ending)), None)


def _unzipped(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: not gzip: {error}") from error


def _beside(path: Path) -> str:
    """What lies where a file was looked for."""
    if not path.parent.is_dir():
        return f" (and no folder {path.parent})"
    return nearest(path.name, [other.name for other in path.parent.iterdir()])


def _decode(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: not UTF-8 (byte 0x{data[error.start]:02x} at {error.start}); save the file as UTF-8"
        ) from error


def _json_lines(path: Path, data: bytes) -> Iterator[Record]:
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, start=1):
        where = f"{path}, line {number}"
        text = _decode(line, where)
        if not text.strip():
            raise DataError(f"{where}: the line is empty; remove it")
        yield Record(values=_object(_parsed(text, where), where), name=f"{path.stem}/{number}", where=where)


def _json_list(path: Path, data: bytes) -> Iterator[Record]:
    value = _parsed(_decode(data, str(path)), str(path))
    if not isinstance(value, list):
        raise DataError(f"{path}: a list of objects is expected, not {_kind(value)}; one object per line is a .jsonl")
    for number, entry in enumerate(value, start=1):
        where = f"{path}, entry {number}"
        yield Record(values=_object(entry, where), name=f"{path.stem}/{number}", where=where)


def _parsed(text: str, where: str) -> object:
    try:
        return read_json(text)
    except JSONTextError as error:
        raise DataError(f"{where}: {error}") from error


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: an object of columns is expected, not {_kind(value)}")
    return value


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def _csv(path: Path, data: bytes) -> Iterator[Record]:
    reader = csv.reader(io.StringIO(_decode(data, str(path)), newline=""), strict=True)
    try:
        header = next(reader, [])
        twice = [name for name in header if header.count(name) > 1]
        if twice:
            raise DataError(f"{path}, line 1: two columns are named '{twice[0]}'")
        for number, row in enumerate(reader, start=1):
            where = f"{path}, line {reader.line_num}"
            if len(row) != len(header):
                raise DataError(f"{where}: {len(row)} values for {len(header)} columns ({', '.join(header)})")
            yield Record(values=dict(zip(header, row, strict=True)), name=f"{path.stem}/{number}", where=where)
    except csv.Error as error:
        raise DataError(f"{path}, line {reader.line_num}: not CSV: {error}") from error


def _parquet(path: Path) -> Iterator[Record]:
    import pyarrow.parquet  # comes with `datasets`

    try:
        rows: Sequence[Mapping[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(f"{path}: not Parquet: {error}") from error
    for number, row in enumerate(rows, start=1):
        yield Record(values=row, name=f"{path.stem}/{number}", where=f"{path}, row {number}")
