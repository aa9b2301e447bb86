"""Embedded arithmetic: problems drawn by keyed seeds, their working, and the slips that people make in it.

The split of a problem follows from its numbers and operations, whatever their order: no split can hold what another
one holds, `2+7` and `7+2` included.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentrl.api import Message, Task, keyed_seed

OPERATIONS = ("+", "-", "*")
SIZES = {"train": 1000, "validation": 100, "test": 200}
_SHARES = {"train": range(80), "validation": range(80, 90), "test": range(90, 100)}
_IDLE = 500
"""Draws without a new problem after which a kind of problem counts as used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """An expression of whole numbers without brackets; no value on the way is negative.

    Example: `Problem(numbers=(12, 3, 4), operations=("+", "*"))` is 12+3*4.
    """

    numbers: tuple[int, ...]
    operations: tuple[str, ...]

    @property
    def text(self) -> str:
        """The expression, such as `12+3*4`."""
        return str(self.numbers[0]) + "".join(
            f"{operation}{number}" for operation, number in zip(self.operations, self.numbers[1:], strict=True)
        )

    @property
    def split(self) -> str:
        """The only split that may hold it."""
        place = keyed_seed("arithmetic", *sorted(self.numbers), *sorted(self.operations)) % 100
        return next(name for name, places in _SHARES.items() if place in places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One operation carried out. Example: `Line(left=3, operation="*", right=4, result=12)`."""

    left: int
    operation: str
    right: int
    result: int

    def __str__(self) -> str:
        return f"{self.left}{self.operation}{self.right}={self.result}"


def carry_out(left: int, operation: str, right: int) -> int:
    """The value of one operation."""
    return {"+": left + right, "-": left - right, "*": left * right}[operation]


def working(problem: Problem, slip: random.Random | None = None) -> list[Line]:
    """The operations in the order of arithmetic; `slip` draws one of them to go wrong, and the rest follows from it."""
    numbers, operations = list(problem.numbers), list(problem.operations)
    wrong = slip.randrange(len(operations)) if slip else -1
    lines: list[Line] = []
    while operations:
        place = operations.index("*") if "*" in operations else 0
        left, operation, right = numbers[place], operations.pop(place), numbers.pop(place + 1)
        result = carry_out(left, operation, right)
        if slip and len(lines) == wrong:
            result = _slipped(left, operation, right, slip)
        numbers[place] = result
        lines.append(Line(left=left, operation=operation, right=right, result=result))
    return lines


def _slipped(left: int, operation: str, right: int, slip: random.Random) -> int:
    """A wrong result: a carry forgotten, one off, another operation, two digits exchanged."""
    right_one = carry_out(left, operation, right)
    digits = str(right_one)
    options = {right_one + 10, right_one - 10, right_one + 1, right_one - 1, left + right, abs(left - right)}
    if len(digits) > 1:
        options.add(int(digits[:-2] + digits[-1] + digits[-2]))
    return slip.choice(sorted(value for value in options if value != right_one and value >= 0))


def draw_problem(random_: random.Random, *, digits: int, operations: Sequence[str], steps: int) -> Problem:
    """A problem of one to `steps` operations."""
    while True:
        count = random_.randint(1, steps)
        problem = Problem(
            numbers=tuple(random_.randrange(10**digits) for _ in range(count + 1)),
            operations=tuple(random_.choice(operations) for _ in range(count)),
        )
        if all(line.result >= 0 for line in working(problem)):
            return problem


def draw_problems(
    split: str, key: str, *, digits: int, operations: Sequence[str], steps: int
) -> Iterator[tuple[Problem, random.Random]]:
    """Problems of a split without end, repeated ones included, each with its own random stream."""
    number = 0
    while True:
        random_ = random.Random(keyed_seed("arithmetic", key, number))
        number += 1
        problem = draw_problem(random_, digits=digits, operations=operations, steps=steps)
        if problem.split == split:
            yield problem, random_


def arithmetic_tasks(split: str, *, digits: int, operations: Sequence[str], steps: int) -> list[Task]:
    """The tasks of a split, fewer than `SIZES` says where there are not so many problems."""
    found: dict[str, Task] = {}
    idle = 0
    for problem, _ in draw_problems(split, split, digits=digits, operations=operations, steps=steps):
        if len(found) == SIZES[split] or idle == _IDLE:
            break
        idle = idle + 1 if problem.text in found else 0
        found.setdefault(problem.text, make_task(problem))
    return list(found.values())


def make_task(problem: Problem) -> Task:
    """The task as the policy and the verifier get it."""
    return Task(
        id=f"arithmetic/{problem.text}",
        messages=(Message(role="user", content=request(problem)),),
        answer=str(working(problem)[-1].result),
        tags=(f"steps:{len(problem.operations)}", *(f"operation:{name}" for name in sorted(set(problem.operations)))),
    )


def request(problem: Problem) -> str:
    """The first message of the user. It is a question: repeating it states nothing."""
    return f"What is {problem.text}?"


def response(lines: Sequence[Line]) -> str:
    """The working as the policy writes it, and the answer."""
    return "\n".join([*map(str, lines), f"#### {lines[-1].result}"])
