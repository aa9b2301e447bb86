"""The shape of the code: short files, short functions, everything public documented."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("agentrl", "envs/agentrl_envs", "verifiers/agentrl_verifiers")
FILES = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
MOST_LINES = 400
MOST_FUNCTION_LINES = 60

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def long_functions(source: str) -> list[str]:
    """Functions, nested ones and methods too, over the limit, decorators counted."""
    faults = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            lines = (node.end_lineno or first) - first + 1
            if lines > MOST_FUNCTION_LINES:
                faults.append(f"{node.name}: {lines} lines")
    return faults


def undocumented(source: str) -> list[str]:
    """Public functions and classes of a module, and public classes in them, that have no docstring."""
    return [name for name, node in _public(ast.parse(source), "") if not ast.get_docstring(node)]


def _public(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Definition]]:
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.If | ast.Try):
            yield from _public(node, prefix)
        elif isinstance(node, Definition) and not node.name.startswith("_"):
            if isinstance(node, ast.ClassDef):
                yield from _public_classes(node, prefix)
            yield f"{prefix}{node.name}", node


def _public_classes(parent: ast.ClassDef, prefix: str) -> Iterator[tuple[str, Definition]]:
    for name, node in _public(parent, f"{prefix}{parent.name}."):
        if isinstance(node, ast.ClassDef):
            yield name, node


def test_there_is_code_in_every_package() -> None:
    assert all(any(file.is_relative_to(ROOT / folder) for file in FILES) for folder in FOLDERS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_shape(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    lines = source.count("\n")
    assert lines <= MOST_LINES, f"{lines} lines; at most {MOST_LINES}"
    assert long_functions(source) == []
    assert undocumented(source) == []
    assert not source.strip() or ast.get_docstring(ast.parse(source)), "the module has no docstring"


def test_a_long_function_is_caught() -> None:
    body = "    x = 1\n" * (MOST_FUNCTION_LINES - 1)
    assert long_functions(f"def short():\n{body}") == []
    assert long_functions(f"def long():\n{body}    x = 1\n") == [f"long: {MOST_FUNCTION_LINES + 1} lines"]
    assert long_functions(f"@decorated\nasync def long():\n{body}") == [f"long: {MOST_FUNCTION_LINES + 1} lines"]
    inner = "".join(f"    {line}\n" for line in f"def inner():\n{body}    x = 1\n".splitlines())
    assert long_functions(f"class Outer:\n{inner}") == [f"inner: {MOST_FUNCTION_LINES + 1} lines"]


def test_a_missing_docstring_is_caught() -> None:
    source = (
        'class Public:\n    """Doc."""\n    class Inner: ...\n\ndef f(): ...\nasync def g(): ...\ndef _private(): ...\n'
    )
    assert undocumented(source) == ["Public.Inner", "f", "g"]
