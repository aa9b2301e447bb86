"""Exercises: a template with words and constants chosen, its examples and its hidden cases."""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentrl.api import JSON, keyed_seed
from agentrl_envs.code_exec.evaluate import run_own
from agentrl_envs.code_exec.feedback import passes
from agentrl_envs.code_exec.flaws import EDGE, SUBTLE, flawed
from agentrl_envs.code_exec.templates import Template
from agentrl_envs.code_exec.words import KINDS, VARIABLES, Word

_HIDDEN, _VISIBLE, _POOL, _PROBES = 6, 2, 24, 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A function to write: what is said of it, and a right program.

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
    program = f"def f({VARIABLES[template.takes]}):{body}"
    return Exercise(template=template, request=", ".join(phrases), program=program)


def _result(word: Word, slots: Mapping[str, JSON], target: str | None) -> list[str]:
    """The line that hands the word's value on: none after a loop, whose `r` goes on being used."""
    value = word.expression.format(**slots)
    if target is None:
        return [f"return {value}"]
    return [] if word.loop else [f"{target} = {value}"]


def draw_arguments(takes: str, random_: random.Random) -> list[JSON]:
    """Arguments for one call: small numbers, short lists, short texts."""
    if takes == "pair":
        return [random_.randint(0, 9), random_.randint(0, 9)]
    if takes == "number":
        return [random_.randint(-5, 15)]
    if takes == "list":
        return [[random_.randint(-4, 9) for _ in range(random_.randint(0, 5))]]
    return ["".join(random_.choice("aeostAESTaeost") for _ in range(random_.randint(1, 6)))]


@functools.cache
def _probes(takes: str) -> tuple[Sequence[JSON], ...]:
    random_ = random.Random(keyed_seed("basic", "probes", takes))
    return tuple(draw_arguments(takes, random_) for _ in range(_PROBES))


def behaviour(exercise: Exercise) -> str:
    """What the function does on fixed arguments: equal for two programs of the same function."""
    takes = exercise.template.takes
    return takes + repr([result.value for result in run_own(exercise.program, "f", _probes(takes)).results])


def draw_cases(exercise: Exercise, random_: random.Random, count: int, other_than: Sequence[JSON] = ()) -> list[JSON]:
    """At most `count` cases with distinct arguments, none of which `other_than` has."""
    known = [case["args"] for case in other_than]
    arguments: list[Sequence[JSON]] = []
    for _ in range(2 * count):
        drawn = draw_arguments(exercise.template.takes, random_)
        if drawn not in known:
            known.append(drawn)
            arguments.append(drawn)
    results = run_own(exercise.program, "f", arguments[:count]).results
    return [{"args": args, "expected": result.value} for args, result in zip(arguments, results, strict=False)]


def draw_examples(exercise: Exercise, random_: random.Random) -> list[JSON] | None:
    """Two visible examples with different results, plain and short ones; None when the draw has no such pair.

    As in most exercises, the edges are left to the hidden cases.
    """
    drawn = draw_cases(exercise, random_, 3 * _VISIBLE)
    edges = [_failing(changed, drawn) for kind, changed in flawed(exercise.program) if kind in EDGE]
    order = sorted(range(len(drawn)), key=lambda case: (sum(case in cases for cases in edges), len(repr(drawn[case]))))
    for case in order[1:]:
        if drawn[case]["expected"] != drawn[order[0]]["expected"]:
            examples = [drawn[order[0]], drawn[case]]
            random_.shuffle(examples)
            return examples
    return None


def draw_hidden(exercise: Exercise, random_: random.Random, examples: Sequence[JSON]) -> list[JSON] | None:
    """Hidden cases that find every subtle flaw which any case of a larger pool finds; None when they are too few."""
    pool = draw_cases(exercise, random_, _POOL, examples)
    found = [_failing(changed, pool) for kind, changed in flawed(exercise.program) if kind in SUBTLE]
    missed = [cases for cases in found if cases]
    chosen: list[int] = []
    while missed and len(chosen) < _HIDDEN:
        chosen.append(max(range(len(pool)), key=lambda case: sum(case in cases for cases in missed)))
        missed = [cases for cases in missed if chosen[-1] not in cases]
    chosen += [case for case in range(len(pool)) if case not in chosen][: _HIDDEN - len(chosen)]
    hidden = [pool[case] for case in chosen]
    tells_apart = len({repr(case["expected"]) for case in hidden}) > 1
    return hidden if tells_apart and not missed else None


def _failing(program: str, cases: Sequence[JSON]) -> frozenset[int]:
    """The places of `cases` where `program` does not return what is expected."""
    results = run_own(program, "f", [case["args"] for case in cases]).results
    return frozenset(
        place
        for place, case in enumerate(cases)
        if place >= len(results) or not passes(results[place], case["expected"])
    )
