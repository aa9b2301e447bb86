"""The main job, small: what it writes, that it goes on where it was, that Ctrl-C loses nothing."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from transformers import AutoModelForCausalLM

from agentrl.learning.outputs import token_outputs
from agentrl.records.run import RunDirectory
from tests.e2e.conftest import Run, command, settings

CLOCK = ("seconds", "tokens_per_second", "memory_mb")


def metrics(run: Path) -> list[dict[str, Any]]:
    """The metrics of a run without its clock and memory columns."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(CLOCK)} for row in rows]


def weights(run: Path, step: int) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = AutoModelForCausalLM.from_pretrained(
        run / "checkpoints" / f"step_{step}" / "policy", dtype=torch.float32
    ).state_dict()
    return state


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of four steps, and what it printed."""
    run = tmp_path_factory.mktemp("train") / "run"
    arguments = ["train", "--env", "code_exec", "--output", str(run), *settings("train.steps=4", "train.save_every=2")]
    done = subprocess.run(command(*arguments), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return run, done.stdout


def test_the_run_directory_is_as_documented(finished: tuple[Path, str]) -> None:
    run, _ = finished
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["schema"] == 1
    assert config["train"]["steps"] == 4
    assert config["seed"] == 0
    assert set(config["about"]) >= {"agentrl", "torch", "transformers", "python"}
    rows = metrics(run)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert all({"reward", "success", "part/tests/raw", "length", "zero_variance_groups"} <= set(row) for row in rows)
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["step_2", "step_4"]
    summary = json.loads((run / "summary.json").read_text())
    assert {"train", "total"} <= set(summary["seconds"])
    for name in ("before", "after"):
        assert set(summary[name]) >= {"tasks", "samples", "pass_at_k", "parts", "reasons", "stops", "seconds", "tokens"}
        assert set(summary[name]["pass_at_k"]["1"]) == {"mean", "low", "high"}
    assert summary["sandbox"].startswith("bwrap")


def test_the_terminal_shows_before_after_and_where_the_reward_came_from(finished: tuple[Path, str]) -> None:
    _, printed = finished
    for text in ("step 4/4", "pass@1", "before", "after", "part tests, raw", "verdict reason", "run directory:"):
        assert text in printed


def test_rollouts_hold_tokens_parts_and_verdicts(finished: tuple[Path, str]) -> None:
    run, _ = finished
    members = list(RunDirectory.open(run).read_rollouts("step_000001"))
    assert len(members) == 16
    for member in members:
        assert member.verdicts[0].verifier == "code_tests"
        assert member.reward.by_name["tests"].raw in (0.0, 1.0)
        assert member.rollout.evidence.keys() == {"program"}
        sampled = [segment.ids[segment.sampled] for segment in member.rollout.segments]
        spans = [member.rollout.segments[turn.segment].ids[slice(*turn.span)] for turn in member.rollout.turns]
        assert np.array_equal(np.concatenate(sampled), np.concatenate(spans))
    row = metrics(run)[0]
    assert row["success"] == pytest.approx(np.mean([bool(m.reward.success) for m in members]))
    assert row["length"] == pytest.approx(np.mean([m.rollout.sampled_tokens for m in members]))


def test_the_saved_policy_gives_the_log_probabilities_that_were_sampled(finished: tuple[Path, str]) -> None:
    """`after` was sampled from the last checkpoint: an ordinary load of its folder finds the same numbers."""
    run, _ = finished
    model = AutoModelForCausalLM.from_pretrained(run / "checkpoints" / "step_4" / "policy", dtype=torch.float32)
    members = list(RunDirectory.open(run).read_rollouts("after"))
    for member in members:
        row = member.rollout.segments
        recorded = np.concatenate([s.logprobs[s.sampled] for s in row])
        with torch.no_grad():
            found = token_outputs(model, [row], width=len(recorded), temperature=1.0).logprob[0].numpy()
        assert np.abs(found - recorded).max() < 1e-4


def test_training_moved_the_policy(finished: tuple[Path, str]) -> None:
    run, _ = finished
    before, after = weights(run, 2), weights(run, 4)
    assert any(not torch.equal(before[name], after[name]) for name in before)


def test_a_killed_run_goes_on_bit_for_bit(finished: tuple[Path, str], tmp_path: Path) -> None:
    """SIGKILL after the third step: resuming from the checkpoint of step 2 ends where the whole run ended."""
    whole, _ = finished
    run = tmp_path / "killed"
    arguments = ["train", "--env", "code_exec", "--output", str(run), *settings("train.steps=4", "train.save_every=2")]
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 3/4"):
            process.kill()
            break
    process.wait()
    assert len(metrics(run)) == 3
    resume = command("train", "--resume", "--output", str(run))
    done = subprocess.run(resume, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "resumed after step 2" in done.stdout
    assert metrics(run) == metrics(whole)
    for step in range(1, 5):
        name = f"rollouts/step_{step:06d}.jsonl.gz"
        ours, theirs = (_without_seconds(folder / name) for folder in (run, whole))
        assert ours == theirs
    a, b = weights(run, 4), weights(whole, 4)
    assert all(torch.equal(a[name], b[name]) for name in b)
    assert (
        json.loads((run / "summary.json").read_text())["after"]["per_task"]
        == (json.loads((whole / "summary.json").read_text())["after"]["per_task"])
    )


def _without_seconds(path: Path) -> list[Any]:
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    for row in rows:
        for verdict in row["verdicts"]:
            verdict.pop("seconds")
    return rows


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path, agentrl: Run) -> None:
    run = tmp_path / "run"
    long = settings("train.steps=500", "train.save_every=500")
    arguments = ["train", "--env", "code_exec", "--output", str(run), *long]
    process = subprocess.Popen(
        command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step 2/500"):
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the whole group, sandbox workers included
            break
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert f"continue with: agentrl train --resume --output {run}" in out
    saved = RunDirectory.open(run).checkpoint_steps()
    assert saved[-1] == len(metrics(run)) >= 2
    again = agentrl("train", "--resume", "--output", str(run), "--set", f"train.steps={saved[-1] + 1}")
    assert again.returncode == 0, again.stderr
    assert [row["step"] for row in metrics(run)] == list(range(1, saved[-1] + 2))


def test_ctrl_c_before_the_first_step(tmp_path: Path) -> None:
    run = tmp_path / "run"
    arguments = ["train", "--env", "code_exec", "--output", str(run), *settings("eval.limit=200", "eval.samples=8")]
    process = subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (run / "config.yaml").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted after step 0" in out


def test_resume_refuses_other_settings(finished: tuple[Path, str], agentrl: Run) -> None:
    run, _ = finished
    done = agentrl("train", "--resume", "--output", str(run), "--set", "train.learning_rate=0.5")
    assert done.returncode == 2
    assert "train.learning_rate = 0.5: the run in" in done.stderr


def test_an_output_that_holds_a_run_is_refused(finished: tuple[Path, str], agentrl: Run) -> None:
    run, _ = finished
    done = agentrl("train", "--env", "code_exec", "--output", str(run), *settings())
    assert done.returncode == 2
    assert "add --resume" in done.stderr
