"""The `basic` tasks: drawn from the templates by keyed seeds, always the same, and no function in two splits."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence

from agentrl.api import JSON, Message, Task, keyed_seed
from agentrl_envs.code_exec.exercises import Exercise, behaviour, draw_examples, draw_exercise, draw_hidden
from agentrl_envs.code_exec.feedback import call_text
from agentrl_envs.code_exec.templates import TEMPLATES
from agentrl_envs.code_exec.words import VARIABLES

SIZES = {"train": 600, "validation": 100, "test": 200}
UNSEEN_IN_TEST = 40


def request_text(exercise: Exercise, examples: Sequence[JSON]) -> str:
    """The first message of the user."""
    lines = [f"Write f({VARIABLES[exercise.template.takes]}): {exercise.request}."]
    lines += [f"{call_text('f', example['args'])} == {example['expected']!r}" for example in examples]
    return "\n".join(lines)


def make_task(name: str, exercise: Exercise, examples: Sequence[JSON], cases: Sequence[JSON]) -> Task:
    """The task as the policy and the verifier get it; `answer` is the reference program."""
    template = exercise.template
    return Task(
        id=name,
        messages=(Message(role="user", content=request_text(exercise, examples)),),
        answer=exercise.program,
        data={"entry_point": "f", "examples": list(examples), "cases": list(cases), "template": template.name},
        tags=(
            f"skill:{template.skill}",
            f"template:{'seen' if template.seen else 'unseen'}",
            f"level:{template.level}",
        ),
    )


def draw_exercises(key: str, *, seen: bool) -> Iterator[tuple[int, Exercise, random.Random]]:
    """Exercises without end, from one template after the other, each with its number and its own random stream."""
    templates = [template for template in TEMPLATES if template.seen is seen]
    for number in itertools.count():
        template = templates[number % len(templates)]
        random_ = random.Random(keyed_seed("basic", key, template.name, number))
        yield number, draw_exercise(template, random_), random_


def _draw_tasks(key: str, count: int, taken: set[str], *, seen: bool = True) -> list[Task]:
    """`count` tasks whose functions are not among `taken`, which grows by them."""
    tasks: list[Task] = []
    for number, exercise, random_ in draw_exercises(key, seen=seen):
        if len(tasks) == count:
            break
        known = behaviour(exercise)
        examples = None if known in taken else draw_examples(exercise, random_)
        cases = None if examples is None else draw_hidden(exercise, random_, examples)
        if examples is not None and cases is not None:
            taken.add(known)
            tasks.append(make_task(f"basic/{key}/{number}", exercise, examples, cases))
    return tasks


@functools.cache
def _split(name: str) -> tuple[tuple[Task, ...], frozenset[str]]:
    """The tasks of a split, and the functions of it and of all splits that were drawn before it."""
    if name == "test":
        taken: set[str] = set()
        unseen = _draw_tasks("test-unseen", UNSEEN_IN_TEST, taken, seen=False)
        return (*_draw_tasks("test", SIZES["test"] - UNSEEN_IN_TEST, taken), *unseen), frozenset(taken)
    taken = set(_split({"validation": "test", "train": "validation"}[name])[1])
    return tuple(_draw_tasks(name, SIZES[name], taken)), frozenset(taken)


def basic_tasks(split: str) -> tuple[Task, ...]:
    """The tasks of `train`, `validation` or `test`. Test is drawn first: what it holds, no other split has."""
    return _split(split)[0]


def held_out_functions() -> frozenset[str]:
    """Behaviour of every validation and test function: what demonstrations must not show."""
    return _split("validation")[1]
