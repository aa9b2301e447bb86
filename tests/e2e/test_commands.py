"""The other commands, as a user calls them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Run, settings


def test_eval_prints_one_json_object(agentrl: Run, tmp_path: Path) -> None:
    done = agentrl(
        "eval",
        "--env",
        "code_exec",
        "--model",
        "tiny",
        "--split",
        "validation",
        "--samples",
        "3",
        "--k",
        "1,3",
        "--limit",
        "5",
        "--json",
        "--output",
        "evaluation",
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["tasks"], result["samples"], result["split"]) == (5, 3, "validation")
    assert set(result["pass_at_k"]) == {"1", "3"}
    assert result["pass_at_k"]["1"]["mean"] <= result["pass_at_k"]["3"]["mean"]
    assert sum(result["stops"].values()) == 15
    assert json.loads((tmp_path / "evaluation/evals/validation.json").read_text())["per_task"] == result["per_task"]
    again = agentrl(
        "eval",
        "--env",
        "code_exec",
        "--model",
        "tiny",
        "--split",
        "validation",
        "--samples",
        "3",
        "--k",
        "1,3",
        "--limit",
        "5",
        "--json",
    )
    assert json.loads(again.stdout)["per_task"] == result["per_task"]


def test_eval_refuses_k_above_samples_and_unknown_splits(agentrl: Run) -> None:
    done = agentrl("eval", "--env", "code_exec", "--samples", "2", "--k", "1,4")
    assert (done.returncode, "eval.k = 4 is above eval.samples = 2" in done.stderr) == (2, True)
    done = agentrl("eval", "--env", "code_exec", "--split", "tets", "--limit", "1")
    assert (done.returncode, "did you mean 'test'" in done.stderr) == (2, True)


GOOD = {
    "id": "a",
    "program": "def f(x):\n    return x + 1\n",
    "task": {"cases": [{"args": [1], "expected": 2}], "entry_point": "f"},
}


def test_verify_judges_in_input_order(agentrl: Run, tmp_path: Path) -> None:
    wrong = {**GOOD, "id": "b", "program": "def f(x):\n    return x\n"}
    response = {**GOOD, "id": "c", "response": f"Here:\n```python\n{GOOD['program']}```\n"}
    del response["program"]
    lines = [GOOD, wrong, response] * 10
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = agentrl("verify", "code_tests", "in.jsonl", "--workers", "2")
    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [v["id"] for v in verdicts] == ["a", "b", "c"] * 10
    assert [v["passed"] for v in verdicts] == [True, False, True] * 10
    assert verdicts[1]["reason"] == "wrong_answer"
    assert set(verdicts[0]) >= {"id", "passed", "score", "reason", "detail", "seconds", "tier"}
    assert "20 passed, 10 failed, 0 unjudged" in done.stderr


def test_verify_names_bad_lines_and_judges_the_rest(agentrl: Run, tmp_path: Path) -> None:
    bad = ["not json", json.dumps({"id": "x"}), json.dumps({**GOOD, "task": {"cases": []}})]
    (tmp_path / "in.jsonl").write_text("\n".join([json.dumps(GOOD), *bad, json.dumps(GOOD)]))
    done = agentrl("verify", "code_tests", "in.jsonl", "--json")
    assert done.returncode == 2
    assert [json.loads(line)["passed"] for line in done.stdout.splitlines()] == [True, True]
    for number in (2, 3, 4):
        assert f"in.jsonl, line {number}: " in done.stderr
    missing = agentrl("verify", "code_tests", "nowhere.jsonl")
    assert (missing.returncode, "nowhere.jsonl: no such file" in missing.stderr) == (2, True)
    unknown = agentrl("verify", "code_test", "in.jsonl")
    assert (unknown.returncode, "did you mean 'code_tests'" in unknown.stderr) == (2, True)


def test_env_list_doctor_and_config_show(agentrl: Run) -> None:
    listed = agentrl("env", "list")
    assert listed.returncode == 0
    assert "code_exec" in listed.stdout
    doctor = agentrl("doctor")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    assert "sandbox bwrap" in doctor.stdout
    shown = agentrl("config", "show", "--set", "train.steps=7")
    assert shown.returncode == 0, shown.stderr
    row = next(line for line in shown.stdout.splitlines() if line.startswith("train.steps "))
    assert "7" in row
    assert "--set" in row
    option = agentrl("env", "show", "code_exec")
    assert "env.options.max_turns" in option.stdout


def test_a_dry_run_writes_nothing(agentrl: Run, tmp_path: Path) -> None:
    done = agentrl("train", "--env", "code_exec", "--dry-run", *settings())
    assert done.returncode == 0, done.stderr
    assert "tasks_per_step: 4" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("base", ["scratch", "tiny"])
def test_sft_makes_a_policy_that_trains(agentrl: Run, tmp_path: Path, base: str) -> None:
    more = ["sft.steps=3", "sft.tokens_per_batch=512", "env.options.demonstration_count=60"]
    if base == "scratch":
        more += [f"sft.scratch.{size}" for size in ("vocabulary=300", "hidden_size=32", "heads=2", "layers=1")]
    words = [word for text in more for word in ("--set", text)]
    done = agentrl("sft", "--env", "code_exec", "--output", "sft", *words)
    assert done.returncode == 0, done.stderr
    assert "validation loss" in done.stdout
    short = settings("train.steps=1", "engine.max_new_tokens=40", "rollout.max_tokens=120")
    trained = agentrl("train", "--env", "code_exec", "--model", "sft/policy", "--output", "run", *short)
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "run/checkpoints/step_1/policy/config.json").exists()


def test_a_single_file_environment_trains_on_its_own_rewards(agentrl: Run, tmp_path: Path) -> None:
    """The example: no verifier, a process part from the environment's steps, which must reach the metrics."""
    example = Path(__file__).parents[2] / "examples" / "one_more.py"
    done = agentrl("train", "--env", f"{example}:OneMore", "--output", "run", *settings("train.steps=1"))
    assert done.returncode == 0, done.stderr
    (row,) = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert row["part/right/raw"] == row["reward"] == row["success"]
    assert json.loads((tmp_path / "run/summary.json").read_text())["sandbox"] is None
