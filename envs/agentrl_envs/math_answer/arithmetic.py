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
    """One operation carried out. work: the digits one by one, the last first, where that says more than the result.

    Example: `Line(left=37, operation="+", right=48, result=85, work=("7+8=15", "3+4+1=8"))`.
    """

    left: int
    operation: str
    right: int
    result: int
    work: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.left}{self.operation}{self.right}={self.result}"


def working(problem: Problem, slip: random.Random | None = None) -> list[Line]:
    """The operations in the order of arithmetic; `slip` draws one of them to go wrong, and the rest follows from it."""
    numbers, operations = list(problem.numbers), list(problem.operations)
    wrong = slip.randrange(len(operations)) if slip else -1
    lines: list[Line] = []
    while operations:
        place = operations.index("*") if "*" in operations else 0
        left, operation, right = numbers[place], operations.pop(place), numbers.pop(place + 1)
        line = carry_out(left, operation, right, slip if len(lines) == wrong else None)
        numbers[place] = line.result
        lines.append(line)
    return lines


def carry_out(left: int, operation: str, right: int, slip: random.Random | None = None) -> Line:
    """One operation as it is done on paper; with `slip`, one digit of it goes wrong."""
    if operation == "*" or min(left, right) < 0 or (left < right and operation == "-"):
        result = {"+": left + right, "-": left - right, "*": left * right}[operation]
        if slip:
            result = slip.choice([other for other in (result - 10, result - 1, result + 1, result + 10) if other >= 0])
        return Line(left=left, operation=operation, right=right, result=result)
    count = len(str(max(left, right)))
    wrong = slip.randrange(count) if slip else -1
    result, carry, work = 0, 0, []
    for place in range(count):
        a, b = left // 10**place % 10, right // 10**place % 10
        if operation == "+":
            value, text = a + b + carry, f"{a}+{b}" + (f"+{carry}" if carry else "")
        else:
            a = a - carry + (10 if a - carry < b else 0)
            carry = int(left // 10**place % 10 - carry < b)
            value, text = a - b, f"{a}-{b}"
        if slip and place == wrong:
            value = _slipped(value, slip)
        work.append(f"{text}={value}")
        result += value * 10**place
        if operation == "+" and place < count - 1:
            carry, result = value // 10, result - value // 10 * 10 ** (place + 1)
    return Line(left=left, operation=operation, right=right, result=result, work=tuple(work) if count > 1 else ())


def _slipped(value: int, slip: random.Random) -> int:
    """A wrong result of two digits: one off, or ten forgotten."""
    options = [value - 1, value + 1, value - 10]
    return slip.choice([option for option in options if option >= 0])


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
    return "\n".join([text for line in lines for text in (*line.work, str(line))] + [f"#### {lines[-1].result}"])
