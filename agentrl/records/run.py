"""The run directory: what a run writes, where, and how a resumed run cuts it back to its last checkpoint.

    config.yaml  metrics.jsonl  rollouts/step_000001.jsonl.gz  evals/before.json  checkpoints/step_50/  summary.json

Files are written to a temporary name and renamed, so that a killed run leaves whole files only.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from agentrl.api import DataError, Scored
from agentrl.records.serial import SCHEMA, json_text, scored_from_json, scored_to_json


def write_atomic(path: Path, data: bytes) -> None:
    """Write `data` so that `path` holds either the old or the whole new content, also after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically. NaN is written as null: it is no JSON."""
    write_atomic(path, (json_text(_finite(value), indent=2) + "\n").encode())


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


class RunDirectory:
    """One run's folder. `create` refuses a folder that holds another run; `open` reads one that exists."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.checkpoints = self.path / "checkpoints"

    @classmethod
    def create(cls, path: str | Path) -> RunDirectory:
        """Make the folder; one that holds anything else is refused."""
        folder = Path(path)
        if folder.exists() and not folder.is_dir():
            raise DataError(f"--output {folder}: a file of that name is in the way; name another")
        if folder.exists() and any(folder.iterdir()):
            raise DataError(f"--output {folder}: not empty; name another, or add --resume to go on with a training run")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(folder)

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """The run in `path`, which must exist."""
        if not (Path(path) / "config.yaml").is_file():
            raise DataError(f"{path}: no run here (config.yaml is missing)")
        return cls(path)

    def write_config(self, settings: Mapping[str, Any], about: Mapping[str, Any]) -> None:
        """Write the resolved configuration, with versions and the command under `about`."""
        text = yaml.safe_dump({"schema": SCHEMA, "about": dict(about), **settings}, sort_keys=False)
        write_atomic(self.path / "config.yaml", text.encode())

    def read_config(self) -> dict[str, Any]:
        """The configuration as it was resolved, without what `write_config` added."""
        settings: dict[str, Any] = yaml.safe_load((self.path / "config.yaml").read_text(encoding="utf-8"))
        schema = settings.pop("schema", SCHEMA)
        if schema > SCHEMA:
            raise DataError(f"{self.path}: written with schema {schema}; this version reads up to {SCHEMA}")
        settings.pop("about", None)
        return settings

    def append_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Append one step's metrics as one line."""
        line = json.dumps({"schema": SCHEMA, **_finite(metrics)})
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def read_metrics(self) -> list[dict[str, Any]]:
        """All steps' metrics; a last line that a crash cut short is left out."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
        return [json.loads(line) for line in lines[:-1]]

    def write_rollouts(self, name: str, scored: Iterable[Scored], **extra: Any) -> None:
        """Write `rollouts/NAME.jsonl.gz`, one scored rollout a line."""
        lines = "".join(json_text(scored_to_json(s, **extra)) + "\n" for s in scored)
        # mtime=0: the same rollouts give the same bytes, which the resume test compares
        write_atomic(self.path / "rollouts" / f"{name}.jsonl.gz", gzip.compress(lines.encode(), 4, mtime=0))

    def read_rollouts(self, name: str) -> Iterator[Scored]:
        """The scored rollouts of `rollouts/NAME.jsonl.gz`."""
        with gzip.open(self.path / "rollouts" / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
            for line in file:
                yield scored_from_json(json.loads(line))

    def write_evaluation(self, name: str, evaluation: Mapping[str, Any]) -> None:
        """Write `evals/NAME.json`."""
        write_json(self.path / "evals" / f"{name}.json", evaluation)

    def read_evaluation(self, name: str) -> dict[str, Any] | None:
        """`evals/NAME.json`, or None when it was not written."""
        path = self.path / "evals" / f"{name}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write `summary.json`."""
        write_json(self.path / "summary.json", {"schema": SCHEMA, **summary})

    def read_summary(self) -> dict[str, Any]:
        """`summary.json`, or an empty mapping."""
        path = self.path / "summary.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def checkpoint_steps(self) -> list[int]:
        """Steps of the whole checkpoints, ascending. Temporary ones do not count."""
        folders = self.checkpoints.glob("step_*") if self.checkpoints.is_dir() else ()
        numbers = (folder.name.removeprefix("step_") for folder in folders)
        return sorted(int(number) for number in numbers if number.isdecimal())  # `step_5.bak` is somebody's copy

    def checkpoint(self, step: int) -> Path:
        """Folder of the checkpoint of `step`."""
        return self.checkpoints / f"step_{step}"

    def remove_checkpoint(self, step: int) -> None:
        """Delete one checkpoint; the name goes first, so that a crash leaves no half of it."""
        doomed = self.checkpoints / f".removing_step_{step}"
        self.checkpoint(step).rename(doomed)
        shutil.rmtree(doomed)

    def cut_back(self, step: int) -> None:
        """Drop metrics, rollouts and evaluations of steps after `step`.

        The evaluation after training goes as well: it speaks of an end that the resumed run may move.
        """
        kept = [metrics for metrics in self.read_metrics() if metrics["step"] <= step]
        text = "".join(json.dumps(metrics) + "\n" for metrics in kept)
        write_atomic(self.path / "metrics.jsonl", text.encode())
        for file in (self.path / "rollouts").glob("step_*.jsonl.gz"):
            if int(file.name.removeprefix("step_").split(".")[0]) > step:
                file.unlink()
        for file in (self.path / "evals").glob("validation_*.json"):
            if int(file.stem.removeprefix("validation_")) > step:
                file.unlink()
        for name in ("evals/after.json", "rollouts/after.jsonl.gz"):
            (self.path / name).unlink(missing_ok=True)
