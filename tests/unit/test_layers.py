"""Imports go down only, rooms on one floor do not see each other, plugins see `agentrl.api` alone."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "agentrl": ROOT / "agentrl",
    "agentrl_envs": ROOT / "envs" / "agentrl_envs",
    "agentrl_verifiers": ROOT / "verifiers" / "agentrl_verifiers",
}
PLUGINS = ("agentrl_envs", "agentrl_verifiers")

FLOORS = {
    "assets": 1,  # data and where it lies
    "api": 1,
    "config": 2,
    "plugins": 2,
    "endpoint": 2,
    "sandbox": 2,
    "records": 2,
    "report": 3,
    "rollouts": 3,
    "learning": 3,
    "loops": 4,
    "cli": 5,
    "__main__": 6,
}
"""Floor of every room of `agentrl`: a package or a module directly inside it."""
HIGHEST = 6
"""Floor of what `agentrl` itself offers, such as `agentrl.train`; its version may be read everywhere."""


def modules(package: str) -> list[tuple[str, Path]]:
    """Every module of a package as (dotted name, file)."""
    base = PACKAGES[package]
    found = []
    for file in sorted(base.rglob("*.py")):
        parts = file.relative_to(base.parent).with_suffix("").parts
        found.append((".".join(part for part in parts if part != "__init__"), file))
    return found


def imported(module: str, source: str, *, is_package: bool = False) -> Iterator[str]:
    """Dotted names that a module imports anywhere, inside functions and by `import_module("...")` too.

    `from a import b` gives `a.b`: b may be a module.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parents = parts[: len(parts) - (node.level - is_package)]  # a package's own level is itself
                base = ".".join([*parents, *([base] if base else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (str(a.value) for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str))


def outside_functions(source: str) -> str:
    """What of a module runs when it is imported: `agentrl.train` may import the loops once it is called."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return ast.unparse(tree)


def core_faults(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """What a module of `agentrl` imports against the rules."""
    room = [*module.split("."), ""][1]
    names = list(imported(module, source, is_package=is_package))
    faults = [f"{module} imports {name}" for name in names if name.split(".")[0] in PLUGINS]
    if not room:
        names = list(imported(module, outside_functions(source), is_package=is_package))
    for name in names:
        top, _, rest = name.partition(".")
        target = rest.split(".")[0]
        if top != "agentrl" or target in ("", "__version__", room):
            continue
        if not room:
            faults.append(f"{module} imports {name}: `import agentrl` must stay light")
        elif FLOORS.get(target, HIGHEST) >= FLOORS[room]:
            faults.append(f"{module} (floor {FLOORS[room]}) imports {name} (floor {FLOORS.get(target, HIGHEST)})")
    return faults


def plugin_faults(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """What a built-in plugin imports that an outsider's plugin could not rely on."""
    own = module.split(".")[0]
    faults = []
    for name in imported(module, source, is_package=is_package):
        top = name.split(".")[0]
        ours = top == "agentrl" and name.split(".")[:2] != ["agentrl", "api"]
        if ours or top in {"tests", "benchmarks", *PLUGINS} - {own}:
            faults.append(f"{module} imports {name}")
    return faults


def test_every_room_has_a_floor() -> None:
    rooms = {name.split(".")[1] for name, _ in modules("agentrl") if "." in name}
    assert rooms == set(FLOORS)


def test_core_imports_go_down_only() -> None:
    faults = [
        fault
        for name, file in modules("agentrl")
        for fault in core_faults(name, file.read_text(encoding="utf-8"), is_package=file.name == "__init__.py")
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("package", PLUGINS)
def test_built_in_plugins_import_only_the_api(package: str) -> None:
    faults = [
        fault
        for name, file in modules(package)
        for fault in plugin_faults(name, file.read_text(encoding="utf-8"), is_package=file.name == "__init__.py")
    ]
    assert not faults, "\n".join(faults)


def test_what_runs_inside_the_sandbox_needs_the_standard_library_only() -> None:
    """The checkout's dependencies are not visible there."""
    inside = [(name, file) for name, file in modules("agentrl") if name.startswith("agentrl.sandbox.inside")]
    assert inside
    faults = [
        f"{name} imports {target}"
        for name, file in inside
        for target in imported(name, file.read_text(encoding="utf-8"), is_package=file.name == "__init__.py")
        if target.split(".")[0] not in sys.stdlib_module_names and not target.startswith("agentrl.sandbox.inside")
    ]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("agentrl.api.types", "from agentrl.config import Config"),
        ("agentrl.learning.learner", "from agentrl import train"),
        ("agentrl.config.models", "import agentrl.plugins"),
        ("agentrl.rollouts.runner", "from agentrl.learning.batch import Batch"),
        ("agentrl.rollouts.runner", "from agentrl import learning"),
        ("agentrl.rollouts.runner", "from ..loops import train"),
        ("agentrl.rollouts.runner", "def later():\n    import agentrl.loops.train"),
        ("agentrl.learning.batch", "from importlib import import_module\nimport_module('agentrl.loops.train')"),
        ("agentrl.records.run", "if TYPE_CHECKING:\n    from agentrl.cli.app import main"),
        ("agentrl.loops.wiring", "from agentrl_envs.code_exec import CodeExec"),
        ("agentrl.cli.app", "import importlib\nimportlib.import_module('agentrl_verifiers.code_tests')"),
        ("agentrl", "from agentrl.loops.train import train"),
        ("agentrl", "import agentrl.config"),
        ("agentrl", "def train():\n    from agentrl_envs.code_exec import CodeExec"),
    ],
)
def test_a_planted_import_is_caught(module: str, source: str) -> None:
    assert len(core_faults(module, source, is_package=module == "agentrl")) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("agentrl.loops.train", "import agentrl\nfrom agentrl import __version__"),
        ("agentrl.rollouts.runner", "from agentrl.api import Env\nfrom agentrl.rollouts.chat import ChatFormat"),
        ("agentrl.rollouts.runner", "from . import chat\nfrom ..config import Config"),
        ("agentrl.cli.run", "def train():\n    from agentrl.loops.train import train"),
        ("agentrl", "def train():\n    from agentrl.loops.train import train"),
    ],
)
def test_a_proper_import_passes(module: str, source: str) -> None:
    assert core_faults(module, source, is_package=module == "agentrl") == []


@pytest.mark.parametrize(
    "source",
    [
        "from agentrl.config import Config",
        "from agentrl import plugins",
        "import agentrl.sandbox.pool",
        "from agentrl_verifiers.code_tests import CodeTests",
        "import agentrl",
    ],
)
def test_a_planted_import_in_a_plugin_is_caught(source: str) -> None:
    assert len(plugin_faults("agentrl_envs.code_exec.env", source)) == 1
    good = "import agentrl.api\nfrom agentrl.api.values import same_text\nfrom .basic import tasks\nimport numpy"
    assert plugin_faults("agentrl_envs.code_exec.env", good) == []


def test_plugin_folders_are_no_packages_and_all_packages_are_typed() -> None:
    for folder in ("envs", "verifiers"):
        assert not (ROOT / folder / "__init__.py").exists(), f"{folder}/ would shadow the installed package"
    for base in PACKAGES.values():
        assert (base / "__init__.py").is_file()
        assert (base / "py.typed").is_file(), f"{base.name} has no py.typed"
