"""The `basic` tasks: drawn from the templates by keyed seeds, always the same, and no function in two splits."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentrl.api import JSON, Message, Task, keyed_seed
from agentrl_envs.code_exec.evaluate import run_own
from agentrl_envs.code_exec.feedback import call_text, passes
from agentrl_envs.code_exec.flaws import flawed
from agentrl_envs.code_exec.templates import TEMPLATES, Template
from agentrl_envs.code_exec.words import KINDS, VARIABLES, Word

SIZES: Mapping[str, int] = {"train": 600, "validation": 100, "test": 200}
UNSEEN_IN_TEST = 40
_HIDDEN, _VISIBLE, _POOL, _SHORTEST = 6, 2, 20, 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A template with its words and constants chosen.

    Example: `Exercise(template=..., request="keep items above 3, take the sum", program="def f(xs): ...")`.
    """

    template: Template
    request: str
    program: str


def draw_exercise(template: Template, random_: random.Random) -> Exercise:
    """Choose words and constants for `template`."""
    phrases, lines = [], []
    variable = VARIABLES[template.takes]
    for position, name in enumerate(template.kinds):
        word = random_.choice(KINDS[name].words)
        j, k = random_.sample(range(2, 10), 2)
        c, d = random_.sample("aeost", 2)
        slots = {"v": variable, "j": j, "k": k, "m": random_.choice((2, 3)), "c": c, "d": d}
        phrases.append(word.phrase.format(**slots))
        lines += [line.format(**slots) for line in word.loop]
        last = position == len(template.kinds) - 1
        lines += _result(word, slots, None if last else VARIABLES[KINDS[name].gives])
        variable = "r" if word.loop else VARIABLES.get(KINDS[name].gives, "")
    body = "".join(f"\n    {line}" for line in lines)
    return Exercise(
        template=template, request=", ".join(phrases), program=f"def f({VARIABLES[template.takes]}):{body}"
    )


def _result(word: Word, slots: Mapping[str, JSON], target: str | None) -> list[str]:
    """The line that hands the word's value on: none after a loop, whose `r` goes on being used."""
    value = word.expression.format(**slots)
    if target is None:
        return [f"return {value}"]
    return [] if word.loop else [f"{target} = {value}"]


def draw_arguments(template: Template, random_: random.Random) -> list[JSON]:
    """Arguments for one call: small numbers, short lists, short texts."""
    if template.takes == "pair":
        return [random_.randint(0, 9), random_.randint(0, 9)]
    if template.takes == "number":
        return [random_.randint(0, 14) if "climb" in template.kinds else random_.randint(-9, 19)]
    if template.takes == "list":
        return [[random_.randint(-4, 9) for _ in range(random_.randint(0, 5))]]
    return ["".join(random_.choice("aeostAESTaeost") for _ in range(random_.randint(1, 6)))]


@functools.cache
def _probes(takes: str) -> tuple[Sequence[JSON], ...]:
    template = next(template for template in TEMPLATES if template.takes == takes)
    random_ = random.Random(keyed_seed("basic", "probes", takes))
    return tuple(draw_arguments(template, random_) for _ in range(16))


def behaviour(exercise: Exercise) -> str:
    """What the function does on fixed arguments: equal for two programs of the same function."""
    execution = run_own(exercise.program, "f", _probes(exercise.template.takes))
    return exercise.template.takes + repr([result.value for result in execution.results])


def make_cases(exercise: Exercise, random_: random.Random) -> tuple[list[JSON], list[JSON]] | None:
    """(visible examples, hidden cases), or None when the function tells too little apart.

    The hidden cases are chosen so that they find every flaw that any argument of the pool finds.
    """
    drawn = [draw_arguments(exercise.template, random_) for _ in range(2 * _POOL)]
    pool = [arguments for place, arguments in enumerate(drawn) if arguments not in drawn[:place]][:_POOL]
    expected = [result.value for result in run_own(exercise.program, "f", pool).results]
    found = [_differs(changed, pool, expected) for _, changed in flawed(exercise.program)]
    hidden: list[int] = []
    missed = [finders for finders in found if finders]
    while missed and len(hidden) < _HIDDEN:
        best = max(range(len(pool)), key=lambda case: sum(case in finders for finders in missed))
        hidden.append(best)
        missed = [finders for finders in missed if best not in finders]
    rest = [case for case in range(len(pool)) if case not in hidden]
    hidden, rest = hidden + rest[: _HIDDEN - len(hidden)], rest[_HIDDEN - len(hidden) :]
    visible = sorted(rest, key=lambda case: len(repr((pool[case], expected[case]))))[:_SHORTEST]
    random_.shuffle(visible)
    if missed or len({repr(expected[case]) for case in hidden}) < 2 or expected[visible[0]] == expected[visible[1]]:
        return None
    cases = [{"args": list(pool[case]), "expected": expected[case]} for case in range(len(pool))]
    return [cases[case] for case in visible[:_VISIBLE]], [cases[case] for case in hidden]


def _differs(program: str, pool: Sequence[Sequence[JSON]], expected: Sequence[JSON]) -> frozenset[int]:
    """The places of the pool where `program` does not return what is expected."""
    results = run_own(program, "f", pool).results
    if not results:
        return frozenset(range(len(pool)))
    return frozenset(
        case
        for case, (result, value) in enumerate(zip(results, expected, strict=True))
        if not passes(result, value)
    )


def make_task(name: str, exercise: Exercise, examples: Sequence[JSON], cases: Sequence[JSON]) -> Task:
    """The task as the policy and the verifier get it; `answer` is the reference program."""
    template = exercise.template
    lines = [f"Write f({VARIABLES[template.takes]}): {exercise.request}."]
    lines += [f"{call_text('f', example['args'])} == {example['expected']!r}" for example in examples]
    return Task(
        id=name,
        messages=(Message(role="user", content="\n".join(lines)),),
        answer=exercise.program,
        data={"entry_point": "f", "examples": list(examples), "cases": list(cases), "template": template.name},
        tags=(
            f"skill:{template.skill}",
            f"template:{'seen' if template.seen else 'unseen'}",
            f"level:{template.level}",
        ),
    )


def draw_tasks(key: str, templates: Sequence[Template], taken: set[str]) -> Iterator[Task]:
    """Tasks without end, from one template after the other; each new function is added to `taken`."""
    for number in range(1 << 30):
        template = templates[number % len(templates)]
        random_ = random.Random(keyed_seed("basic", key, template.name, number))
        exercise = draw_exercise(template, random_)
        known = behaviour(exercise)
        made = None if known in taken else make_cases(exercise, random_)
        if made is not None:
            taken.add(known)
            yield make_task(f"basic/{key}/{number}", exercise, *made)


@functools.cache
def basic_tasks() -> Mapping[str, tuple[Task, ...]]:
    """The tasks of every split. Test is drawn first, so that nothing in the other splits can take from it."""
    seen = [template for template in TEMPLATES if template.seen]
    unseen = [template for template in TEMPLATES if not template.seen]
    taken: set[str] = set()
    held_back = _take(draw_tasks("test-unseen", unseen, taken), UNSEEN_IN_TEST)
    splits = {"test": _take(draw_tasks("test", seen, taken), SIZES["test"] - UNSEEN_IN_TEST) + held_back}
    for split in ("validation", "train"):
        splits[split] = _take(draw_tasks(split, seen, taken), SIZES[split])
    return splits


def _take(tasks: Iterator[Task], count: int) -> tuple[Task, ...]:
    return tuple(task for task, _ in zip(tasks, range(count), strict=False))


def held_out_functions() -> set[str]:
    """Behaviour of every validation and test task: what demonstrations must not show."""
    splits = basic_tasks()
    return {_behaviour_of(task) for split in ("validation", "test") for task in splits[split]}


def _behaviour_of(task: Task) -> str:
    takes = next(kind for kind, names in VARIABLES.items() if re.match(rf"def f\({names}\)", str(task.answer)))
    return takes + repr([result.value for result in run_own(str(task.answer), "f", _probes(takes)).results])
