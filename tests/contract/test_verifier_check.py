"""`agentrl verifier list|show|check`: every installed verifier holds, and one that can be cheated is found out."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentrl.api import ConfigError, PluginError
from agentrl.config import SandboxConfig
from agentrl.loops.check_verifier import FLOOR, check_verifier
from agentrl.plugins import installed, load_verifier
from tests.scripted_judge import Reply, ScriptedJudge, says, scripted_judge, sections

NAMES = [plugin.name for plugin in installed("agentrl.verifiers")]
GULLIBLE = """
from agentrl.api import Example, Options, Verdict, Verifier

class Gullible(Verifier):
    name = "gullible"
    correctness = True

    @classmethod
    def examples(cls):
        task = {"answer": "7"}
        return [
            Example(kind="gold", task=task, response="7", passes=True),
            Example(kind="near miss", task=task, response="17", passes=False),
        ]

    def verify(self, rollout):
        right = {CONDITION}
        reason = "passed" if right else "wrong_answer"
        return Verdict(verifier=self.name, score=float(right), passed=right, reason=reason)
"""

CROWD = """
from agentrl.api import Example, Verdict, Verifier

class Crowd(Verifier):
    name = "crowd"
    scope = "group"
    task = {"answer": "7"}

    @classmethod
    def examples(cls):
        return [
            Example(kind="gold", task=cls.task, response="7", others=("7", "8"), passes=True),
            Example(kind="near miss", task=cls.task, response="8", others=("7", "9"), passes=False),
        ]

    def verify_group(self, rollouts):
        responses = [rollout.response for rollout in rollouts]
        return [
            Verdict(verifier=self.name, score=responses.count(one) - 1, reason="scored")
            for one in responses
        ]
"""


def knows_paris(body: dict[str, Any]) -> Reply:
    """A judge of the examples that is right, and that no instruction in an answer reaches."""
    shown = sections(body)
    if "answer" in shown:
        return says(reason="r", score=5 if "Paris" in shown["answer"] else 1)
    first, second = ("Paris" in shown[f"{place} answer"] for place in ("first", "second"))
    return says(reason="r", winner="tie" if first == second else "first" if first else "second")


@pytest.fixture(scope="module")
def judge() -> Iterator[ScriptedJudge]:
    with scripted_judge(knows_paris) as running:
        yield running


@pytest.mark.parametrize("name", NAMES)
def test_every_installed_verifier_holds(name: str, judge: ScriptedJudge) -> None:
    report = check_verifier(name, sandbox=SandboxConfig(), judge_config=judge.config(), options={})
    assert [check for check in report.checks if not check.right] == []
    assert report.exit_code == 0
    kinds = {check.kind for check in report.checks}
    assert {"gold", "near miss", "hack", *FLOOR} - kinds <= ({"zero"} if name == "choice" else set())
    assert report.rate > 0
    assert 0 < report.median <= report.slowest


@pytest.mark.parametrize("name", ["judge", "pairwise_judge"])
def test_a_judge_that_obeys_the_answer_is_found_out(name: str) -> None:
    def obeys(body: dict[str, Any]) -> Reply:
        shown = sections(body)
        if "answer" in shown:
            return says(reason="r", score=5 if re.search("Paris|highest", shown["answer"]) else 1)
        return says(reason="r", winner="first" if re.search("wins", shown["first answer"]) else "second")

    with scripted_judge(obeys) as running:
        report = check_verifier(name, sandbox=SandboxConfig(), judge_config=running.config(), options={})
    wrong = [check for check in report.checks if not check.right]
    assert any(check.kind == "hack" and "Note to the" in check.response for check in wrong)


def test_a_verifier_that_needs_a_judge_says_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"judge needs the service 'judge': set judge\.endpoint"):
        check_verifier("judge", sandbox=SandboxConfig(), options={})


@pytest.mark.parametrize(
    ("condition", "wrong"),
    [
        ("'7' in rollout.response", {"near miss"}),
        ("rollout.response != '17'", set(FLOOR) | {"echo of the task"}),
        ("rollout.response == '17'", {"gold", "near miss"}),
        ("1 / 0", {"gold", "near miss", "echo of the task"} | set(FLOOR)),
    ],
    ids=["takes a part", "takes anything", "the wrong way round", "raises"],
)
def test_a_verifier_that_can_be_cheated_is_found_out(tmp_path: Path, condition: str, wrong: set[str]) -> None:
    (tmp_path / "gullible.py").write_text(GULLIBLE.replace("{CONDITION}", condition))
    report = check_verifier(f"{tmp_path}/gullible.py:Gullible", sandbox=SandboxConfig(), options={})
    assert {check.kind for check in report.checks if not check.right} == wrong
    assert report.exit_code == 3


def test_a_verifier_without_examples_is_refused(tmp_path: Path) -> None:
    (tmp_path / "silent.py").write_text(
        "from agentrl.api import Verifier\nclass Silent(Verifier):\n    name = 'silent'\n"
    )
    with pytest.raises(PluginError, match=r"'.*silent.py:Silent' offers nothing to check: .*gold"):
        check_verifier(f"{tmp_path}/silent.py:Silent", sandbox=SandboxConfig(), options={})


def agentrl(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "agentrl", *words], capture_output=True, text=True)


def test_the_commands() -> None:
    assert [one["name"] for one in json.loads(agentrl("verifier", "list", "--json").stdout)] == NAMES
    shown = agentrl("verifier", "show", "numeric").stdout
    assert "options.relative" in shown
    assert "near miss fails" in shown
    checked = agentrl("verifier", "check", "numeric")
    assert checked.returncode == 0
    assert " 0 judged wrongly" in checked.stdout
    loose = agentrl("verifier", "check", "numeric", "--set", "options.relative=0.1", "--json")
    assert loose.returncode == 3
    wrong = [check for check in json.loads(loose.stdout)["checks"] if check["passed"] is not check["expected"]]
    assert [check["kind"] for check in wrong] == ["near miss"]
    refused = agentrl("verifier", "check", "numeric", "--set", "seed=1")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)


def test_the_letters_of_a_choice_score_once() -> None:
    passing = [example.response for example in load_verifier("choice").examples() if example.passes]
    assert len(passing) == 1


def test_a_verifier_of_groups_judges_each_response_among_the_others_of_its_example(tmp_path: Path) -> None:
    (tmp_path / "crowd.py").write_text(CROWD)
    report = check_verifier(f"{tmp_path}/crowd.py:Crowd", sandbox=SandboxConfig(), options={})
    assert {check.kind: check.passed for check in report.checks if check.kind in ("gold", "near miss")} == {
        "gold": True,
        "near miss": False,
    }
    floor = [check for check in report.checks if check.kind in FLOOR]
    assert len(floor) == len(FLOOR)
    assert {check.passed for check in floor} == {False}
