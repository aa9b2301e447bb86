"""The `basic` tasks and their demonstrations: no function twice, and hidden cases that bite."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter

from agentrl_envs.code_exec import CodeExec, Options
from agentrl_envs.code_exec.basic import basic_tasks, held_out_functions
from agentrl_envs.code_exec.demonstrations import demonstrate
from agentrl_envs.code_exec.evaluate import run_own
from agentrl_envs.code_exec.exercises import draw_arguments
from agentrl_envs.code_exec.feedback import observe, passes
from agentrl_envs.code_exec.flaws import SUBTLE, draw_flaw, flawed

from agentrl.api import JSON, Demonstration, Services, Task, extract_program

SPLITS = ("train", "validation", "test")


def solves(program: str, cases: list[JSON]) -> bool:
    results = run_own(program, "f", [case["args"] for case in cases]).results
    return len(results) == len(cases) and all(
        passes(result, case["expected"]) for result, case in zip(results, cases, strict=True)
    )


def catalogue(**options: JSON) -> CodeExec:
    return CodeExec(Options(**options), Services())


def conversations(count: int, flaw_rate: float) -> list[Demonstration]:
    env = catalogue(demonstration_count=count, demonstration_flaw_rate=flaw_rate)
    return list(env.demonstrations("train"))


def test_another_process_draws_the_same_tasks() -> None:
    """Hash randomisation and what was drawn before must change nothing; here train is asked for first."""
    code = "from agentrl_envs.code_exec.basic import basic_tasks as b\n"
    code += "print([t.id for s in ('train', 'test') for t in b(s)])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.strip() == str([task.id for split in ("train", "test") for task in basic_tasks(split)])


def test_no_task_is_in_two_places() -> None:
    tasks = [task for split in SPLITS for task in basic_tasks(split)]
    for values in (
        [task.id for task in tasks],
        [task.messages[0].content.split("\n")[0] for task in tasks],
        [task.answer for task in tasks],
    ):
        assert len(set(values)) == len(tasks)


def test_no_two_splits_share_a_function() -> None:
    """On arguments that the generator itself did not compare by."""
    random_ = random.Random(7)
    probes = {kind: [draw_arguments(kind, random_) for _ in range(60)] for kind in ("pair", "number", "list", "text")}
    kinds = {"def f(a, b)": "pair", "def f(n)": "number", "def f(xs)": "list", "def f(s)": "text"}
    owner: dict[str, str] = {}
    for split in SPLITS:
        for task in basic_tasks(split):
            program = str(task.answer)
            kind = kinds[program.split(":")[0]]
            key = kind + repr([result.value for result in run_own(program, "f", probes[kind]).results])
            assert owner.setdefault(key, split) == split, task.id


def test_train_never_shows_an_unseen_template() -> None:
    unseen = {task.data["template"] for task in basic_tasks("test") if "template:unseen" in task.tags}
    assert len(unseen) >= 8
    assert unseen.isdisjoint(task.data["template"] for split in ("train", "validation") for task in basic_tasks(split))


def test_hidden_cases_find_flaws_that_the_examples_let_pass() -> None:
    """A flaw is one when fresh arguments, hundreds of them, tell it from the reference."""
    counts: Counter[str] = Counter()
    for task in basic_tasks("test")[::4]:
        for kind, program in flawed(str(task.answer)):
            counts[_fate(task, program)] += kind in SUBTLE
            if kind not in SUBTLE and _fate(task, program) != "right":
                assert not solves(program, task.data["cases"]), (task.id, kind)
    assert counts["found"] / (counts["found"] + counts["missed"]) > 0.97, counts
    assert counts["hidden only"] > 0.1 * counts["found"], counts


def _fate(task: Task, program: str) -> str:
    if not solves(program, task.data["cases"]):
        return "hidden only" if solves(program, task.data["examples"]) else "found"
    random_ = random.Random(5)
    takes = {"a, b": "pair", "n": "number", "xs": "list", "s": "text"}[str(task.answer)[6:].split(")")[0]]
    fresh = [draw_arguments(takes, random_) for _ in range(300)]
    right = [result.value for result in run_own(str(task.answer), "f", fresh).results]
    cases = [{"args": args, "expected": value} for args, value in zip(fresh, right, strict=True)]
    return "right" if solves(program, cases) else "missed"


def test_a_guess_that_copies_the_examples_fails() -> None:
    for task in basic_tasks("test"):
        table = {repr(tuple(example["args"])): example["expected"] for example in task.data["examples"]}
        program = f"def f(*args):\n    return {table!r}.get(repr(args))"
        assert solves(program, task.data["examples"])
        assert not solves(program, task.data["cases"]), task.id


def test_flaws_show_in_demonstrations_and_their_feedback_is_real() -> None:
    told = repaired = 0
    for demonstration in conversations(200, 0.6):
        prompt, *rest = demonstration.messages
        examples = _examples(prompt.content)
        for action, observation in zip(rest[::2], rest[1::2], strict=False):
            execution = run_own(extract_program(action.content) or "", "f", [e["args"] for e in examples])
            assert observation.content == observe("f", examples, execution)
            assert observation.content != "All examples pass."
            told += 1
        repaired += len(rest) > 1 and solves(extract_program(rest[-1].content) or "", examples)
    assert told > 60
    assert repaired > 30


def _examples(prompt: str) -> list[JSON]:
    scope: dict[str, JSON] = {"f": lambda *args: list(args)}
    return [
        {"args": eval(call, scope), "expected": eval(value)}
        for call, value in (line.split(" == ") for line in prompt.split("\n")[1:])
    ]


def test_demonstrations_hold_no_held_out_function() -> None:
    held_out = {str(task.answer) for split in ("validation", "test") for task in basic_tasks(split)}
    shown = {
        (extract_program(message.content) or "").rstrip("\n")
        for demonstration in conversations(2000, 0.0)
        for message in demonstration.messages
        if message.role == "assistant"
    }
    assert len(shown) > 1000
    assert shown.isdisjoint(held_out)
    assert len(held_out_functions()) == 300


def test_demonstrations_repeat_and_only_train_has_them() -> None:
    assert conversations(50, 0.6) == conversations(50, 0.6)
    assert list(catalogue().demonstrations("test")) == []


def test_attempts_of_a_demonstration_end_with_the_limit() -> None:
    task = basic_tasks("train")[0]
    for seed in range(30):
        talk = demonstrate(
            task.messages[0].content,
            str(task.answer),
            list(task.data["examples"]),
            random.Random(seed),
            flaw_rate=1.0,
            attempts=2,
        )
        assert len(talk.messages) in (2, 4)


def test_a_flaw_changes_the_program() -> None:
    random_ = random.Random(0)
    for task in basic_tasks("train")[::10]:
        program = str(task.answer)
        assert draw_flaw(program, random_) != program
        assert all(changed != program for _, changed in flawed(program))
