"""`agentrl verify judge` and `pairwise_judge`, as a user calls them, against a scripted local server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentrl.records.run import RunDirectory
from tests.e2e.conftest import Run, settings
from tests.scripted_judge import Reply, says, scripted_judge, sections

TASK = {"prompt": "Name a prime.", "answer": "7"}


def write(path: Path, responses: list[str], **more: Any) -> str:
    lines = [{"id": number, "response": text, "task": TASK, **more} for number, text in enumerate(responses)]
    (path / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return "lines.jsonl"


def test_verify_judge(agentrl: Run, tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Reply:
        shown = sections(body)
        if "broken" in shown["answer"]:
            return Reply(status=500, raw="boom")
        return says(reason=f"reference {shown['reference']}", score=2 if "7" in shown["answer"] else 0)

    file = write(tmp_path, ["It is 7.", "It is 8.", "broken", ""])
    options = ["options.lowest=0", "options.highest=2", "options.reference=true", "options.rubric=Only 7 is right."]
    with scripted_judge(script) as server:
        service = [f"judge.endpoint={server.url}", "judge.model=m", "judge.retries=1", "judge.backoff_seconds=0.01"]
        done = agentrl("verify", "judge", file, *(word for one in (*service, *options) for word in ("--set", one)))
    verdicts = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(one["id"], one["passed"], one["score"], one["reason"]) for one in verdicts] == [
        (0, True, 1.0, "scored"),
        (1, False, 0.0, "scored"),
        (2, None, None, "judge_unavailable"),
        (3, False, 0.0, "no_answer"),
    ]
    assert verdicts[0]["detail"] == "2 from 0 to 2: reference 7"
    assert done.returncode == 3
    assert "1 passed, 2 failed, 1 unjudged" in done.stderr
    assert all("Only 7 is right." in body["messages"][0]["content"] for body in server.asked)


def test_verify_in_groups(agentrl: Run, tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Reply:
        return says(reason="r", winner="first" if "7" in sections(body)["first answer"] else "second")

    file = write(tmp_path, ["It is 7.", "It is 8.", "It is 9."], group="g")
    with scripted_judge(script) as server:
        service = (f"judge.endpoint={server.url}", "judge.model=m")
        done = agentrl("verify", "pairwise_judge", file, *(word for one in service for word in ("--set", one)))
    assert done.returncode == 0, done.stderr
    assert [json.loads(line)["score"] for line in done.stdout.splitlines()] == [1.0, 0.25, 0.25]
    assert len(server.asked) == 6


def test_what_is_missing_is_one_sentence(agentrl: Run, tmp_path: Path) -> None:
    file = write(tmp_path, ["It is 7."])
    for given, words in [
        ([], "judge needs the service 'judge': set judge.endpoint"),
        (["judge.endpoint=http://localhost:1/v1"], "judge.model is missing"),
        (["judge.endpiont=http://localhost:1/v1"], "judge.endpoint"),
        (["judge.endpoint=localhost:1"], "judge.endpoint"),
    ]:
        done = agentrl("verify", "judge", file, *(word for one in given for word in ("--set", one)))
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert words in done.stderr
    done = agentrl(
        "verify", "pairwise_judge", file, "--set", "judge.endpoint=http://localhost:1/v1", "--set", "judge.model=m"
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "lines.jsonl, line 1: this verifier judges groups: 'group' must be" in done.stderr


def test_training_on_a_judge_and_going_on_with_another_endpoint(agentrl: Run, tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Reply:
        shown = sections(body)
        if "answer" in shown:
            return says(reason="r", score=1 + len(shown["answer"]) % 5)
        first, second = (len(shown[f"{place} answer"]) for place in ("first", "second"))
        return says(reason="r", winner="first" if first > second else "second" if second > first else "tie")

    parts = (
        "reward.parts=[{name: style, verifier: judge, weight: 0.1}, {name: vote, verifier: majority, weight: 0},"
        " {name: best, verifier: pairwise_judge, weight: 0.2}]"
    )
    small = (parts, "train.steps=1", "train.tasks_per_step=2", "train.group_size=3", "eval.limit=1")
    train = ("train", "--env", "code_exec", "--output", "run")
    refused = agentrl(*train, *settings(*small))
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "reward.parts.style needs the service 'judge': set judge.endpoint" in refused.stderr
    assert not (tmp_path / "run").exists()
    with scripted_judge(script) as first:
        one = agentrl(*train, *settings(*small, f"judge.endpoint={first.url}", "judge.model=m"))
        assert one.returncode == 0, one.stderr
    with scripted_judge(script) as second:
        more = ("--resume", "--set", "train.steps=2", "--set", f"judge.endpoint={second.url}")
        two = agentrl("train", "--output", "run", *more)
        assert two.returncode == 0, two.stderr
    assert first.asked
    assert second.asked
    assert max(first.most, second.most) <= 16
    run = RunDirectory.open(tmp_path / "run")
    members = [member for step in (1, 2) for member in run.read_rollouts(f"step_{step:06d}")]
    assert len(members) == 2 * 2 * 3
    for member in members:
        found = member.reward.by_name
        assert set(found) == {"tests", "style", "vote", "best"}
        assert all(part.raw is not None for part in found.values())
        assert member.reward.total == pytest.approx(
            sum((found[name].raw or 0.0) * weight for name, weight in {"tests": 1, "style": 0.1, "best": 0.2}.items())
        )
