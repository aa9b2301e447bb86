"""The run directory: whole files or none, and a resumed run finds exactly what its checkpoint knows."""

from __future__ import annotations

import gzip
import json
import math
import os
import stat
from pathlib import Path

import pytest

from agentrl.api import DataError, Message, Reward, RewardPart, Rollout, Scored, Stop, Task
from agentrl.records.run import RunDirectory, write_atomic, write_json
from agentrl.records.serial import SCHEMA


def scored(index: int = 0) -> Scored:
    task = Task(id="t/1", messages=(Message(role="user", content="é"),))
    rollout = Rollout(task=task, index=index, seed=1, turns=(), segments=(), stop=Stop.FINISHED)
    part = RewardPart(name="tests", kind="outcome", raw=1.0, weight=0.5, value=0.5)
    return Scored(rollout=rollout, verdicts=(), reward=Reward(parts=(part,), success=True))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory.create(tmp_path / "run")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_create_makes_the_folder_and_takes_an_empty_one(tmp_path: Path) -> None:
    assert RunDirectory.create(tmp_path / "a" / "b").path.is_dir()
    assert RunDirectory.create(tmp_path / "a" / "b").path == tmp_path / "a" / "b"


def test_create_refuses_what_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(DataError, match=f"--output {tmp_path}: not empty; name another"):
        RunDirectory.create(tmp_path)
    with pytest.raises(DataError, match=r"note\.txt: a file of that name is in the way"):
        RunDirectory.create(tmp_path / "note.txt")
    assert files(tmp_path) == {"note.txt"}


def test_open_needs_a_run(tmp_path: Path, run: RunDirectory) -> None:
    for path in (tmp_path / "none", run.path):
        with pytest.raises(DataError, match=rf"{path}: no run here \(config.yaml is missing\)"):
            RunDirectory.open(path)
    run.write_config({"seed": 1}, {})
    assert RunDirectory.open(run.path).read_config() == {"seed": 1}


def test_the_configuration_reads_back_without_what_was_added(run: RunDirectory) -> None:
    settings = {"seed": 3, "train": {"learning_rate": 1e-5, "max_seconds": None}, "eval": {"k": [1, 4]}}
    run.write_config(settings, {"agentrl": "0.1.0"})
    text = (run.path / "config.yaml").read_text()
    assert f"schema: {SCHEMA}" in text
    assert "agentrl: 0.1.0" in text
    assert run.read_config() == settings
    (run.path / "config.yaml").write_text(text.replace(f"schema: {SCHEMA}", f"schema: {SCHEMA + 1}"))
    with pytest.raises(DataError, match=f"written with schema {SCHEMA + 1}"):
        run.read_config()


def test_metrics_are_lines_with_a_schema(run: RunDirectory) -> None:
    assert run.read_metrics() == []
    run.append_metrics({"step": 1, "reward": 0.5, "stops": {"finished": 2}})
    run.append_metrics({"step": 2, "reward": None})
    assert run.read_metrics() == [
        {"schema": SCHEMA, "step": 1, "reward": 0.5, "stops": {"finished": 2}},
        {"schema": SCHEMA, "step": 2, "reward": None},
    ]


def _strict(text: str) -> object:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def test_what_is_not_finite_is_written_as_null(run: RunDirectory) -> None:
    value = {"kl": math.nan, "nested": {"ratio": [math.inf, -math.inf, 1.5, (math.nan,)]}, "flag": True, 3: "key"}
    plain = {"kl": None, "nested": {"ratio": [None, None, 1.5, [None]]}, "flag": True, "3": "key"}
    run.append_metrics({"step": 1, "a": value})
    assert _strict((run.path / "metrics.jsonl").read_text()) == {"schema": SCHEMA, "step": 1, "a": plain}
    run.write_evaluation("before", {"a": value})
    assert _strict((run.path / "evals" / "before.json").read_text()) == {"a": plain}
    assert run.read_evaluation("before") == {"a": plain}
    run.write_summary({"a": value})
    assert _strict((run.path / "summary.json").read_text()) == {"schema": SCHEMA, "a": plain}


def test_what_was_not_written_reads_as_nothing(run: RunDirectory) -> None:
    assert run.read_evaluation("before") is None
    assert run.read_summary() == {}
    assert run.checkpoint_steps() == []


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_last_line_that_a_crash_cut_is_left_out(run: RunDirectory, cut: int) -> None:
    for step in (1, 2, 3):
        run.append_metrics({"step": step, "reward": 0.25})
    whole = (run.path / "metrics.jsonl").read_bytes()
    (run.path / "metrics.jsonl").write_bytes(whole[:-cut])
    assert [m["step"] for m in run.read_metrics()] == [1, 2]
    run.cut_back(2)
    run.append_metrics({"step": 3, "reward": 0.25})
    assert (run.path / "metrics.jsonl").read_bytes() == whole


def test_rollouts_read_back_and_repeat_byte_for_byte(run: RunDirectory) -> None:
    run.write_rollouts("step_000003", [scored(0), scored(1)], step=3)
    path = run.path / "rollouts" / "step_000003.jsonl.gz"
    first = path.read_bytes()
    assert first[4:8] == bytes(4), "the time of writing stands in the header"
    assert [s.rollout.index for s in run.read_rollouts("step_000003")] == [0, 1]
    assert next(run.read_rollouts("step_000003")).reward == scored().reward
    lines = gzip.decompress(first).decode().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [3, 3]
    run.write_rollouts("step_000003", [scored(0), scored(1)], step=3)
    assert path.read_bytes() == first


def _finished_run(run: RunDirectory) -> None:
    run.write_config({"seed": 1}, {})
    for step in (1, 2, 9, 10, 11):
        run.append_metrics({"step": step})
        run.write_rollouts(f"step_{step:06d}", [scored()], step=step)
    for name in ("before", "validation_000009", "validation_000010", "after"):
        run.write_evaluation(name, {"name": name})
    for name in ("before", "after"):
        run.write_rollouts(name, [scored()])


def test_cut_back_drops_what_came_after_the_checkpoint(run: RunDirectory) -> None:
    _finished_run(run)
    run.cut_back(9)
    assert [m["step"] for m in run.read_metrics()] == [1, 2, 9]
    assert files(run.path) == {
        "config.yaml",
        "metrics.jsonl",
        "evals/before.json",
        "evals/validation_000009.json",
        "rollouts/before.jsonl.gz",
        "rollouts/step_000001.jsonl.gz",
        "rollouts/step_000002.jsonl.gz",
        "rollouts/step_000009.jsonl.gz",
    }


def test_a_finished_run_that_goes_on_measures_its_end_anew(run: RunDirectory) -> None:
    _finished_run(run)
    run.cut_back(11)
    assert [m["step"] for m in run.read_metrics()] == [1, 2, 9, 10, 11]
    assert run.read_evaluation("after") is None
    assert run.read_evaluation("before") == {"name": "before"}
    assert run.read_evaluation("validation_000010") == {"name": "validation_000010"}
    assert not (run.path / "rollouts" / "after.jsonl.gz").exists()


def test_cut_back_to_the_start_and_of_an_empty_run(run: RunDirectory) -> None:
    run.cut_back(0)
    assert run.read_metrics() == []
    _finished_run(run)
    run.cut_back(0)
    assert run.read_metrics() == []
    assert files(run.path) == {"config.yaml", "metrics.jsonl", "evals/before.json", "rollouts/before.jsonl.gz"}


def test_checkpoints_are_whole_and_sorted_by_number(run: RunDirectory) -> None:
    for name in ("step_100", "step_20", ".writing_step_120", ".removing_step_10", "step_20.bak", "step_x"):
        (run.checkpoints / name).mkdir(parents=True)
    assert run.checkpoint_steps() == [20, 100]
    (run.checkpoint(20) / "state.pt").write_bytes(b"x")
    run.remove_checkpoint(20)
    assert run.checkpoint_steps() == [100]
    assert not list(run.checkpoints.glob("*step_20"))


def test_an_atomic_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.json"
    write_atomic(path, b"a longer first content")
    write_atomic(path, b"short")
    assert path.read_bytes() == b"short"
    assert files(tmp_path) == {"deep/file.json"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize("failing", ["fsync", "replace", "chmod"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "file.json"
    write_atomic(path, b"old")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, failing, fail)
    with pytest.raises(OSError, match="No space left"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert files(tmp_path) == {"file.json"}


def test_an_interrupt_while_writing_leaves_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_json(tmp_path / "file.json", {"a": 1})
    assert files(tmp_path) == set()


def test_what_is_no_json_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write_json(tmp_path / "file.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "file.json", {"a": {1, 2}})
    assert json.loads((tmp_path / "file.json").read_text()) == {"a": 1}
    assert files(tmp_path) == {"file.json"}
