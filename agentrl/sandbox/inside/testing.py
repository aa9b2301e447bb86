"""Assert-style tests against a program in another process.

The side of the program serves calls; the side of the tests runs the trusted text, in which the names that the program
defines stand for it. What the tests conclude is written to their own result pipe, with a token that the program's
process never holds.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import linecache
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from agentrl.sandbox.inside import peer, program

MODULE = "tests"
FILE = "<tests>"


class ProgramPeer(peer.Peer):
    """The program's side: finds its names and calls its functions."""

    module: types.ModuleType

    def __init__(self, link: Any) -> None:
        super().__init__(link, "program", peer.Guard())

    def look_up(self, names: list[str], entry_point: str | None) -> object:
        """The values of the names that the program defines, the bases of its error classes, and the entry point."""
        values = {name: getattr(self.module, name) for name in names if hasattr(self.module, name)}
        errors = {
            name: [kind.__name__ for kind in value.__mro__]
            for name, value in values.items()
            if isinstance(value, type) and issubclass(value, BaseException)
        }
        found = []
        if entry_point is not None:
            with contextlib.suppress(NameError):
                found = [program.find_function(self.module, entry_point)]
        return [values, errors, found]

    def call(self, function: Callable[..., object], args: list[Any], kwargs: dict[str, Any]) -> object:
        return program.await_if_needed(function(*args, **kwargs))


def serve_program(source: str, link: Any, results: program.Results, _: int) -> int:
    """Load the program and serve its tests until they are done; returns the exit status.

    They speak first, so that nothing of the program runs before they are where it cannot reach them.
    """
    side = ProgramPeer(link)
    first = side.receive()
    module = program.load_or_report(program.Program(source), results)
    if module is None:
        return 1
    results.send({"load": "ok"})
    side.module = module
    side.answer(first)
    side.serve()
    return 0


def run_tests(meta: dict[str, Any], link: Any, results: program.Results) -> bool:
    """Run the tests in this process; what they conclude goes to `results` as `{"end": reason, ...}`.

    Returns whether the link to the program broke before they were through.
    """
    side = peer.Peer(link, "tests", peer.TestsGuard(MODULE))
    verdict: dict[str, Any] = {}
    with contextlib.suppress(peer.LinkBroken):
        verdict = _conclude(meta["tests"], meta["entry_point"], side)
    if side.broken:
        # Whatever the tests made of it: a program that is gone has passed nothing.
        verdict = {"end": "vanished", "error": "" if side.broken == peer.GONE else side.broken}
    if verdict["end"] == "ok":
        verdict["token"] = meta["token"]
    results.send(verdict)
    return bool(side.broken)


def _conclude(text: str, entry_point: str | None, side: peer.Peer) -> dict[str, Any]:
    try:
        code = compile(text, FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return {"end": "verifier_error", "error": f"the tests are no Python: {error}"}
    linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
    wanted, shadowed, called_check = _names_of(code)
    if entry_point is None and not wanted:
        # A task may ask for a function with a built-in name; only then does the program's definition win over it.
        wanted = shadowed
        if not wanted:
            return {"end": "verifier_error", "error": "the tests name nothing that a program could define"}
    values, errors, entry = side.ask("names", sorted(wanted), entry_point)
    if wanted is shadowed and not values:
        return {"end": "runtime_error", "error": f"NameError: the program defines none of {', '.join(sorted(wanted))}"}
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    space = module.__dict__
    space.update(values)
    for name, bases in errors.items():
        space[name] = side.mirror_error_class(name, bases)
    if entry_point is not None:
        if not entry:
            return {"end": "runtime_error", "error": f"NameError: the program defines no '{entry_point}'"}
        space["candidate"] = entry[0]
        space.setdefault(entry_point, entry[0])
    try:
        exec(code, space)
        _run_collected(space, called_check)
    except peer.CannotCross as error:
        return {"end": "verifier_error", "error": str(error)}
    except peer.LinkBroken:
        raise
    except BaseException as error:
        return _failure(error)
    return {"end": "ok"}


def _failure(error: BaseException) -> dict[str, Any]:
    """What an error that ended the tests says: of the program when it comes from there, else a wrong answer."""
    line, statement = None, ""
    walk = error.__traceback__
    while walk is not None:
        if walk.tb_frame.f_code.co_filename == FILE:
            line = walk.tb_lineno
            statement = linecache.getline(FILE, line).strip()[:300]
        walk = walk.tb_next
    place = f"line {line} of the tests: {statement}" if line is not None else "the tests"
    remote = getattr(error, "remote", None)
    if remote is not None:
        return {"end": remote[0], "error": f"{remote[1]} in {place}"}
    if isinstance(error, ModuleNotFoundError):
        # No program can cause this: what the tests import is up to their author and the configuration.
        return {"end": "verifier_error", "error": f"{error}, in {place}; name its package in sandbox.packages"}
    if isinstance(error, AssertionError):
        words = str(error)[:300]
        return {"end": "wrong_answer", "error": place + (f" ({words})" if words else "")}
    return {"end": "runtime_error", "error": f"{program.describe_error(error)[1]} in {place}"}


def _run_collected(space: dict[str, Any], called_check: bool) -> None:
    """Run what the tests define and never call: `check(candidate)`, pytest functions, unittest classes."""
    if callable(space.get("check")) and not called_check and not isinstance(space["check"], peer.Remote):
        space["check"](space["candidate"])
    for name, value in list(space.items()):
        if name.startswith("test") and isinstance(value, types.FunctionType) and not value.__code__.co_argcount:
            value()
    for value in list(space.values()):
        if (
            isinstance(value, type)
            and value.__module__ == MODULE
            and any(base.__name__ == "TestCase" for base in value.__mro__)
        ):
            _run_case(value)


def _run_case(case: Any) -> None:
    import unittest

    for suite in unittest.defaultTestLoader.loadTestsFromTestCase(case):
        outcome = unittest.TestResult()
        suite.run(outcome)
        for _, text in (*outcome.failures, *outcome.errors):
            raise AssertionError(text.strip().splitlines()[-1])
        if outcome.skipped:
            raise AssertionError("a skipped test is no passed test")


def _names_of(code: types.CodeType) -> tuple[set[str], set[str], bool]:
    """The names that the tests use and do not make: global ones, built-in ones; and whether they call `check`.

    Built-in names are apart, because a program must not replace the `abs` or `all` of the tests. Read from the bytes
    themselves: `dis` takes longer than all the rest of a verdict.
    """
    loaded: set[str] = set()
    stored: set[str] = set()
    top: set[str] = set()
    for inner in _code_objects(code):
        extended = 0
        for operation, argument in zip(inner.co_code[::2], inner.co_code[1::2], strict=True):
            argument |= extended
            extended = argument << 8 if operation == dis.EXTENDED_ARG else 0
            if operation in _LOADS_GLOBAL:
                # The lowest bit of this one says how it is called.
                loaded.add(inner.co_names[argument >> 1])
            elif operation in _LOADS_NAME:
                loaded.add(inner.co_names[argument])
                if inner is code:
                    top.add(inner.co_names[argument])
            elif operation in _STORES_GLOBAL or (operation in _STORES_NAME and inner is code):
                stored.add(inner.co_names[argument])
    free = loaded - stored
    shadowed = {name for name in free if hasattr(builtins, name)}
    return free - shadowed - {"candidate"}, shadowed, "check" in top


def _operations(*names: str) -> frozenset[int]:
    return frozenset(dis.opmap[name] for name in names if name in dis.opmap)


_LOADS_GLOBAL = _operations("LOAD_GLOBAL")
_LOADS_NAME = _operations("LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_STORES_GLOBAL, _STORES_NAME = _operations("STORE_GLOBAL"), _operations("STORE_NAME")


def _code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code_objects(constant)
