"""Finding and making control groups, on made-up hierarchies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentrl.sandbox import cgroup


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroup, "_TOP", tmp_path)
    return tmp_path


def say_own(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    read = cgroup._read
    monkeypatch.setattr(cgroup, "_read", lambda path: text if str(path) == "/proc/self/cgroup" else read(path))


def test_unified_takes_the_nearest_group_that_passes_both_controllers_on(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say_own(monkeypatch, "0::/user.slice/app.slice/own.scope\n")
    own = top / "user.slice/app.slice/own.scope"
    own.mkdir(parents=True)
    (top / "cgroup.controllers").write_text("cpu memory pids")
    for folder, passed in (
        (own, ""),
        (own.parent, "memory pids"),
        (own.parents[1], "memory pids"),
        (top, "cpu memory"),
    ):
        (folder / "cgroup.subtree_control").write_text(passed)
    assert cgroup._roots() == [(True, own.parent, own.parent), (True, own.parents[1], own.parents[1])]
    group = cgroup.make(3)
    assert group is not None
    assert group.folders == [str(own.parent / f"agentrl-{os.getpid()}-3")]
    assert (group.memory / "memory.max").read_text() == str((512 + 64) << 20)
    assert (group.memory / "pids.max").read_text() == "4096"


def test_separate_hierarchies_take_the_own_group_of_each(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say_own(monkeypatch, "9:name=systemd:/\n4:memory:/job/7\n3:cpu,pids:/\n0::/\n")
    (top / "memory/job/7").mkdir(parents=True)
    (top / "pids").mkdir()
    assert cgroup._roots() == [(False, top / "memory/job/7", top / "pids")]
    group = cgroup.make(0)
    assert group is not None
    assert len(group.folders) == 2
    assert group.prepare(100) == 0
    assert (group.memory / "memory.limit_in_bytes").read_text() == str(164 << 20)
    (group.memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    assert group.killed_for_memory() == 2
    for file in (*group.memory.iterdir(), *group.pids.iterdir()):
        file.unlink()
    group.remove()
    assert not group.memory.exists()
    assert group.killed_for_memory() == 2


def test_no_hierarchy_is_no_group(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say_own(monkeypatch, "0::/\n")
    assert cgroup.make(0) is None


def test_only_groups_of_processes_that_are_gone_are_swept(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say_own(monkeypatch, "0::/\n")
    (top / "cgroup.controllers").write_text("")
    (top / "cgroup.subtree_control").write_text("memory pids")
    names = [f"agentrl-{os.getpid()}-0", "agentrl-4194999-0", "agentrl-x", "other"]
    for name in names:
        (top / name).mkdir()
    cgroup.sweep()
    assert sorted(folder.name for folder in top.iterdir() if folder.is_dir()) == sorted(set(names) - {names[1]})
