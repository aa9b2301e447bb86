"""An outsider's path: a package written by `env new`, one of our examples, a single file; checked, played, trained."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.e2e.conftest import Run, settings

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def in_environment(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), *arguments],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """An environment of its own that sees this one's packages."""
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    (packages,) = (home / "lib").glob("python3*/site-packages")
    # An editable install is known by a file that Python reads in its own site-packages only. The standard library must
    # not be named: pip takes what is named here out of the environments in which it builds.
    paths = [*site.getsitepackages(), *(str(ROOT / place) for place in ("", "envs", "verifiers"))]
    (packages / "outer.pth").write_text("\n".join(paths) + "\n")
    return home / "bin" / "python"


@pytest.mark.parametrize("name", ["shop", "treasure"])
def test_a_package_is_tested_installed_checked_and_trained(
    agentrl: Run, tmp_path: Path, python: Path, name: str
) -> None:
    if name == "treasure":
        shutil.copytree(EXAMPLES / "plugin_package", tmp_path / name)
    else:
        written = agentrl("env", "new", name)
        assert written.returncode == 0, written.stderr
    own = in_environment(python, tmp_path / name, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert own.returncode == 0, own.stdout
    installed = in_environment(
        Path(sys.executable), tmp_path, *("-m", "pip", "--python", str(python), "install", "-q", "-e", f"./{name}")
    )
    assert installed.returncode == 0, installed.stderr
    checked = in_environment(python, tmp_path, "-m", "agentrl", "env", "check", name)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    listed = in_environment(python, tmp_path, "-m", "agentrl", "env", "list", "--json")
    assert f"agentrl-{name}" in {plugin["package"] for plugin in json.loads(listed.stdout)}
    audited = in_environment(python, tmp_path, "-m", "agentrl", "audit", "--env", name, "--limit", "3")
    assert audited.returncode == 0, audited.stdout
    small = settings("train.steps=1", "train.tasks_per_step=2", "eval.limit=2", "rollout.max_turns=3")
    trained = in_environment(python, tmp_path, "-m", "agentrl", "train", "--env", name, "--output", "run", *small)
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "run/checkpoints/step_1/policy/config.json").exists()


def test_names_that_cannot_be_are_refused(agentrl: Run, tmp_path: Path) -> None:
    for name, said in {"My-Shop": "small letters", "class": "small letters", "code_exec": "already has"}.items():
        refused = agentrl("env", "new", name)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        assert said in refused.stderr
    (tmp_path / "shop").mkdir()
    assert "already there" in agentrl("env", "new", "shop").stderr
    assert list((tmp_path / "shop").iterdir()) == []


def test_an_environment_is_played(agentrl: Run, tmp_path: Path) -> None:
    spec = f"{EXAMPLES / 'one_more.py'}:OneMore"
    by_hand = subprocess.run(
        [sys.executable, "-m", "agentrl", "env", "play", spec],
        input="2\n\n",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert by_hand.returncode == 0, by_hand.stderr
    assert "1 lamps and one more make" in by_hand.stdout
    assert "reward 1.0, success True" in by_hand.stdout
    assert "success False" in agentrl("env", "play", spec, "--policy", "random").stdout
    assert "ended: finished" in agentrl("env", "play", spec, "--policy", "model").stdout
    gold = agentrl("env", "play", spec, "--policy", "gold")
    assert (gold.returncode, gold.stderr.count("\n")) == (2, 1)
    assert "gold() gave None" in gold.stderr
    assert "no such task" in agentrl("env", "play", spec, "--task", "x").stderr


def test_a_single_file_is_short_enough_to_be_read_at_a_glance() -> None:
    text = (EXAMPLES / "one_more.py").read_text()
    assert len(text.splitlines()) <= 25
    assert text.split('"""\n\n', 1)[1] in (EXAMPLES.parent / "docs" / "environments.md").read_text()


def test_check_and_audit_say_what_is_wrong_by_their_exit_codes(agentrl: Run) -> None:
    spec = f"{ROOT / 'tests/faulty_envs.py'}:Parrot"
    checked = agentrl("env", "check", spec)
    assert checked.returncode == 3
    assert "WRONG what is no attempt fails: an echo succeeds" in checked.stdout
    audited = agentrl("audit", "--env", spec, "--limit", "2", "--json")
    assert audited.returncode == 3
    report = json.loads(audited.stdout)
    assert report["flawed"] == sum(one["flaw"] is not None for one in report["earned"]) > 0
