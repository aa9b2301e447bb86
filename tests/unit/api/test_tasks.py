"""The user's own tasks: what is read, how it is split, filtered and mixed, and what is said of bad data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentrl.api import ConfigError, DataError, Message, Options, TaskSource, TaskSources, read_rows
from agentrl.config import parse_options

FIELDS = ("question", "answer")


class Own(Options):
    source: TaskSources = ()


def write(folder: Path, rows: list[dict[str, Any]], name: str = "tasks.jsonl") -> str:
    file = folder / name
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(file)


def numbered(count: int, **more: Any) -> list[dict[str, Any]]:
    return [
        {"id": f"q{i}", "question": f"{i} + 1?", "answer": str(i + 1), "level": i % 5, **more} for i in range(count)
    ]


def ids(source: TaskSource | list[TaskSource], split: str = "train", seed: int = 0) -> list[str]:
    return [row.id for row in read_rows(source, split, FIELDS, seed=seed)]


def whole(**settings: Any) -> TaskSource:
    return TaskSource.model_validate({"splits": {"train": 1.0}, **settings})


def test_every_row_is_in_one_split_and_the_shares_are_kept(tmp_path: Path) -> None:
    source = TaskSource(path=write(tmp_path, numbered(1000)))
    found = {split: ids(source, split) for split in ("train", "validation", "test")}
    assert sorted(name for names in found.values() for name in names) == sorted(f"q{i}" for i in range(1000))
    assert 760 < len(found["train"]) < 840
    assert 70 < len(found["validation"]) < 130


def test_the_split_of_a_row_depends_on_its_id_alone(tmp_path: Path) -> None:
    rows = numbered(100)
    before = set(ids(TaskSource(path=write(tmp_path, rows)), "test"))
    changed = [{**row, "question": "?"} for row in reversed(rows)] + [{**numbered(1)[0], "id": "new"}]
    after = set(ids(TaskSource(path=write(tmp_path, changed)), "test"))
    assert before == after - {"new"}


def test_equal_rows_without_an_id_share_a_split(tmp_path: Path) -> None:
    rows = [{"question": f"{i}?", "answer": str(i)} for i in range(60)] * 2
    source = TaskSource(path=write(tmp_path, rows))
    texts = {split: {row.fields["question"] for row in read_rows(source, split, FIELDS)} for split in ("train", "test")}
    assert not texts["train"] & texts["test"]
    assert all(len(ids(source, split)) == 2 * len(texts[split]) for split in texts)


def test_a_folder_gives_its_files_and_shares_of_train(tmp_path: Path) -> None:
    write(tmp_path, numbered(50), "train.jsonl")
    write(tmp_path, [{"question": "t", "answer": "1"}], "test.jsonl")
    assert len(ids(TaskSource(path=str(tmp_path)))) == 50
    assert ids(TaskSource(path=str(tmp_path)), "test") == ["test/1"]
    mixed = TaskSource(path=str(tmp_path), splits={"train": 0.9, "validation": 0.1, "test": "test"})
    assert sorted(ids(mixed) + ids(mixed, "validation")) == sorted(f"q{i}" for i in range(50))
    assert len(ids(mixed, "test")) == 1


def test_columns_are_mapped_also_nested_ones(tmp_path: Path) -> None:
    rows = [{"meta": {"text": ["a", "b"]}, "gold.value": 3, "extra": {"deep": 1}}]
    source = whole(
        path=write(tmp_path, rows),
        columns={"question": "meta.text.1", "answer": "gold.value", "depth": "extra.deep"},
        prompt="{depth}: {question} {{x}}",
        system="Be short.",
    )
    (row,) = read_rows(source, "train", FIELDS)
    assert row.fields == {"question": "b", "answer": 3, "depth": 1}
    assert row.messages("unused") == (
        Message(role="system", content="Be short."),
        Message(role="user", content="1: b {x}"),
    )


def test_braces_in_a_value_are_no_placeholders(tmp_path: Path) -> None:
    rows = [{"question": "{answer} \\frac{1}{2}", "answer": "7"}]
    (row,) = read_rows(whole(path=write(tmp_path, rows), prompt="Q: {question}"), "train", FIELDS)
    assert row.prompt == "Q: {answer} \\frac{1}{2}"


def test_optional_fields_are_taken_where_there_are_such_columns(tmp_path: Path) -> None:
    path = write(tmp_path, [{"question": "a", "answer": "1", "hint": "h"}, {"question": "b", "answer": "2"}])
    rows = read_rows(whole(path=path), "train", FIELDS, optional=("hint",))
    assert [row.fields.get("hint") for row in rows] == ["h", None]


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ({"column": "level", "equals": 3}, [3]),
        ({"column": "level", "in": [0, 4]}, [0, 4]),
        ({"column": "level", "min": 2, "max": 3}, [2, 3]),
        ({"column": "question", "contains": "4 "}, [4]),
        ({"column": "long", "max_length": 2}, [0, 1, 2]),
        ({"column": "long", "contains": "xxx"}, [3, 4]),
        ({"column": "meta.words", "contains": "w3"}, [3]),
    ],
)
def test_filters(tmp_path: Path, condition: dict[str, Any], kept: list[int]) -> None:
    rows = [{**row, "long": "x" * row["level"], "meta": {"words": [f"w{row['level']}"]}} for row in numbered(5)]
    assert ids(whole(path=write(tmp_path, rows), filter=[condition])) == [f"q{i}" for i in kept]


def test_limit_counts_after_filters(tmp_path: Path) -> None:
    source = whole(path=write(tmp_path, numbered(30)), filter=[{"column": "level", "equals": 1}], limit=2)
    assert ids(source) == ["q1", "q6"]


def test_a_mixture_keeps_its_proportions_and_takes_no_row_twice(tmp_path: Path) -> None:
    sources = [
        whole(path=write(tmp_path, numbered(100), "a.jsonl"), weight=3),
        whole(path=write(tmp_path, numbered(400), "b.jsonl"), weight=1),
    ]
    names = ids(sources)
    assert len(set(names)) == len(names) == 133
    assert sum(name.startswith("a/") for name in names) == 100
    assert ids(sources) == names != ids(sources, seed=1)


def test_sources_without_weights_are_joined(tmp_path: Path) -> None:
    paths = [write(tmp_path, numbered(3), f"{name}.jsonl") for name in "ab"]
    assert ids([whole(path=path) for path in paths]) == ["a/q0", "a/q1", "a/q2", "b/q0", "b/q1", "b/q2"]


def test_other_formats_give_the_same_rows(tmp_path: Path) -> None:
    import datasets

    rows = [{"question": "a, b", "answer": "007"}, {"question": "c\nd", "answer": "1.50"}]
    table = datasets.Dataset.from_list(rows)
    table.to_parquet(tmp_path / "t.parquet")
    table.to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "t.json").write_text(json.dumps(rows), encoding="utf-8")
    datasets.DatasetDict({"train": table}).save_to_disk(str(tmp_path / "saved"))
    write(tmp_path, rows)
    sources = [whole(path=str(tmp_path / f"t.{ending}")) for ending in ("parquet", "csv", "json")]
    sources += [whole(path=str(tmp_path / "tasks.jsonl")), TaskSource(dataset=str(tmp_path / "saved"))]
    for source in sources:
        assert [row.fields for row in read_rows(source, "train", FIELDS)] == rows


def test_a_dataset_without_the_split_names_the_nearest(tmp_path: Path) -> None:
    import datasets

    datasets.DatasetDict({"train": datasets.Dataset.from_list([{"a": 1}])}).save_to_disk(str(tmp_path / "saved"))
    source = TaskSource(dataset=str(tmp_path / "saved"), splits={"train": "trian"})
    with pytest.raises(DataError, match="has no split 'trian'; did you mean 'train'"):
        read_rows(source, "train", ())
    with pytest.raises(DataError, match="says nothing of 'test'"):
        read_rows(source, "test", ())


BAD: dict[str, tuple[bytes, str]] = {
    "mark": (b'\xef\xbb\xbf{"question": 1}\n', "line 1: the file begins with a byte order mark"),
    "empty line": (b'{"question": "a", "answer": 1}\n\n{"question": "b", "answer": 1}\n', "line 2: the line is empty"),
    "no object": (b'{"question": "a", "answer": 1}\n[1]\n', "line 2: an object of columns is expected, not a list"),
    "encoding": (b'{"question": "\xe9", "answer": 1}\n', "line 1: not UTF-8 .byte 0xe9 at 14"),
    "no JSON": (b'{"question": "a"\n', "line 1: not JSON"),
    "NaN": (b'{"question": "a", "answer": NaN}\n', "line 1: NaN"),
    "twice": (b'{"question": "a", "answer": 1, "answer": 2}\n', "line 1: "),
    "missing": (b'{"question": "a", "anser": 1}\n', "line 1: there is no column 'answer'; did you mean 'anser'"),
    "null": (b'{"question": "a", "answer": null}\n', "line 1: 'answer' is null"),
    "same id": (
        b'{"id": 1, "question": "a", "answer": 1}\n{"id": "1", "question": "a", "answer": 1}\n',
        "line 2: the id '1' stands in .*line 1 too",
    ),
    "strange id": (b'{"id": [1], "question": "a", "answer": 1}\n', "line 1: the id in 'id' must be text or a whole"),
    "nothing": (b"", "the file has no rows"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_data_is_named_with_file_and_line(tmp_path: Path, what: str) -> None:
    data, said = BAD[what]
    file = tmp_path / "bad.jsonl"
    file.write_bytes(data)
    with pytest.raises(DataError, match=f"bad.jsonl.*{said}"):
        read_rows(whole(path=str(file)), "train", FIELDS)


OTHER: dict[str, tuple[str, bytes, str]] = {
    "no list": ("bad.json", b'{"question": "a"}', "a list of objects is expected, not an object"),
    "no object": ("bad.json", b'[{"question": "a", "answer": 1}, 2]', "entry 2: an object of columns is expected"),
    "ragged": ("bad.csv", b"question,answer\na,1\nb\n", "line 3: 1 values for 2 columns"),
    "columns": ("bad.csv", b"question,question\na,1\n", "line 1: two columns are named 'question'"),
    "quote": ("bad.csv", b'question,answer\n"a"b,1\n', "line 2: not CSV"),
    "gzip": ("bad.jsonl.gz", b"{}", "not gzip"),
    "parquet": ("bad.parquet", b"{}", "not Parquet"),
}


@pytest.mark.parametrize("what", OTHER)
def test_bad_files_of_other_formats_are_named(tmp_path: Path, what: str) -> None:
    name, data, said = OTHER[what]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=f"{name}.*{said}"):
        read_rows(whole(path=str(tmp_path / name)), "train", FIELDS)


def test_a_compressed_file_gives_the_same_rows(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl.gz"
    file.write_bytes(gzip.compress(Path(write(tmp_path, numbered(3))).read_bytes()))
    assert ids(whole(path=str(file))) == ["q0", "q1", "q2"]


REFUSED: dict[str, tuple[Callable[[str], TaskSource], str]] = {
    "file": (lambda path: whole(path=path.replace("tasks", "taks")), "no such file; did you mean 'tasks.jsonl'"),
    "ending": (lambda path: whole(path=path[:-2]), "task files end in"),
    "placeholder": (lambda path: whole(path=path, prompt="{qestion}"), "did you mean 'question'"),
    "filter": (lambda path: whole(path=path, filter=[{"column": "levl", "min": 1}]), "did you mean 'level'"),
    "compare": (lambda path: whole(path=path, filter=[{"column": "question", "min": 1}]), "'question' is no number"),
    "all filtered": (
        lambda path: whole(path=path, filter=[{"column": "level", "min": 9}]), "no row is left for the split 'train'",
    ),
    "split": (lambda path: TaskSource(path=path, splits={"trian": 1.0}), "says nothing of 'train'; did you mean"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_the_data_is_refused(tmp_path: Path, what: str) -> None:
    make, said = REFUSED[what]
    path = write(tmp_path, numbered(20))
    with pytest.raises(DataError, match=said):
        ids(make(path))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"pathh": "a"}, "unknown key; did you mean 'path'"),
        ({"path": "a", "dataset": "b"}, "give either path or dataset"),
        ([{"path": "a"}, {"path": "b", "limit": 0}], "1.limit: input should be"),
        ({"path": "a", "config": "x"}, "config belongs to a dataset"),
        ({"path": "a", "splits": {"train": 0.9, "test": 0.2}}, "splits: shares must be above 0 and together at most 1"),
        ({"path": "a", "prompt": "{a.__class__}"}, r"prompt: \{a.__class__\} in the prompt must be a plain name"),
        ({"path": "a", "prompt": "{a!r}"}, "prompt: .a!r. in the prompt must be a plain name"),
        ({"path": "a", "prompt": "{a"}, "prompt: "),
        ({"path": "a", "filter": [{"column": "b"}]}, "filter.0: a filter needs equals, in, min"),
        ({"path": "a", "filter": [{"column": "b", "equal": 1}]}, "unknown key; did you mean 'equals'"),
    ],
)
def test_bad_options_are_refused_with_their_key(source: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=f"(?i)env.options.source = .*: {said}"):
        parse_options(Own, {"source": source}, "env.options")


def test_a_text_is_a_path() -> None:
    assert Own.model_validate({"source": "a.jsonl"}).source == (TaskSource(path="a.jsonl"),)
