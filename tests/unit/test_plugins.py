"""Finding plugins: by entry point, by file and by module; every failure is one sentence that says what to do."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NamedTuple

import pytest

import agentrl.plugins as plugins
from agentrl.api import Env, PluginError, Verifier
from agentrl.plugins import Plugin, installed, load_env, load_verifier

SOURCE = """
from dataclasses import dataclass

from agentrl.api import Env, Verifier


@dataclass
class Shared:
    number: int = 1


class MyEnv(Env):
    shared = Shared


class MyVerifier(Verifier):
    shared = Shared


NOT_A_CLASS = 3
"""


class Distribution(NamedTuple):
    name: str


def point(name: str, target: str, package: str | None) -> EntryPoint:
    """An entry point as an installed distribution lists it."""
    entry = EntryPoint(name=name, value=target, group="agentrl.envs")
    vars(entry).update(dist=Distribution(package) if package else None)
    return entry


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """The entry points that both groups list; tests fill it."""
    entries: list[EntryPoint] = []

    def entry_points(*, group: str) -> list[EntryPoint]:
        assert group in ("agentrl.envs", "agentrl.verifiers")
        return entries

    monkeypatch.setattr(plugins, "entry_points", entry_points)
    return entries


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An importable module with an environment and a verifier."""
    (tmp_path / "good_plugin_module.py").write_text(SOURCE)
    (tmp_path / "broken_plugin_module.py").write_text("import agentrl.api\nraise RuntimeError('no\\nlicence')\n")
    (tmp_path / "unfinished_plugin_module.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("good_plugin_module", "broken_plugin_module", "unfinished_plugin_module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return "good_plugin_module"


def refusal(spec: str, load: type = Env) -> str:
    with pytest.raises(PluginError) as caught:
        (load_env if load is Env else load_verifier)(spec)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_entry_point_is_loaded_by_name(listed: list[EntryPoint], package: str) -> None:
    listed.append(point("mine", f"{package}:MyEnv", "my-envs"))
    listed.append(point("judge", f"{package}:MyVerifier", "my-envs"))
    assert load_env("mine").__name__ == "MyEnv"
    assert load_verifier("judge").__name__ == "MyVerifier"


def test_nothing_is_imported_until_a_name_asks_for_it(listed: list[EntryPoint], package: str) -> None:
    listed.append(point("broken", "broken_plugin_module:Env", "bad"))
    listed.append(point("another", f"{package}:MyEnv", None))
    assert installed("agentrl.envs") == [
        Plugin("another", f"{package}:MyEnv", "?"),
        Plugin("broken", "broken_plugin_module:Env", "bad"),
    ]
    assert package not in sys.modules
    assert load_env("another").__name__ == "MyEnv"


def test_an_unknown_name_gets_the_nearest(listed: list[EntryPoint]) -> None:
    listed += [point("code_exec", "a:B", "x"), point("math_answer", "a:C", "x")]
    assert refusal("code_exce").startswith("unknown environment 'code_exce'; did you mean 'code_exec'?")
    assert refusal("math", Verifier).startswith("unknown verifier 'math'; did you mean 'math_answer'?")
    assert refusal("zzz").startswith("unknown environment 'zzz' (known: code_exec, math_answer; after adding ")


def test_an_unknown_name_without_any_plugin(listed: list[EntryPoint]) -> None:
    assert refusal("code_exec").startswith(
        "unknown environment 'code_exec' (known: none; after adding an entry point, install the package again)"
    )


def test_a_name_that_two_packages_claim_names_both(listed: list[EntryPoint]) -> None:
    listed += [point("mine", "a:A", "first-package"), point("mine", "b:B", "second-package")]
    message = refusal("mine")
    assert "'mine' is claimed by first-package (a:A) and second-package (b:B)" in message


def test_one_distribution_listed_twice_is_one_plugin(listed: list[EntryPoint], package: str) -> None:
    listed += [point("mine", f"{package}:MyEnv", "my-envs"), point("mine", f"{package}:MyEnv", "my-envs")]
    assert len(installed("agentrl.envs")) == 1
    assert load_env("mine").__name__ == "MyEnv"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("no_such_plugin_module:A", "does not import: ModuleNotFoundError: No module named 'no_such_plugin_module'"),
        ("good_plugin_module:Gone", "does not import: AttributeError: module 'good_plugin_module' has no attribute"),
        ("broken_plugin_module:A", "does not import: RuntimeError: no licence"),
        ("unfinished_plugin_module:A", "does not import: SyntaxError: "),
        ("good_plugin_module:MyVerifier", "is not a subclass of agentrl.api.Env"),
        ("good_plugin_module:NOT_A_CLASS", "is not a subclass of agentrl.api.Env"),
    ],
)
@pytest.mark.usefixtures("package")
def test_an_entry_point_that_does_not_load(listed: list[EntryPoint], target: str, words: str) -> None:
    listed.append(point("mine", target, "my-envs"))
    message = refusal("mine")
    assert message.startswith("the environment 'mine' ")
    assert words in message


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("no_such_plugin_module:A", "does not import: ModuleNotFoundError: No module named"),
        ("broken_plugin_module:A", "does not import: RuntimeError: no licence"),
        ("unfinished_plugin_module:A", "does not import: SyntaxError: "),
        (":A", "does not import: ValueError: "),
        (".relative:A", "does not import: TypeError: "),
        ("good_plugin_module:MyEnf", "good_plugin_module has no class 'MyEnf'; did you mean 'MyEnv'?"),
        ("good_plugin_module:", "good_plugin_module has no class ''"),
        ("good_plugin_module:MyVerifier", "is not a subclass of agentrl.api.Env"),
        ("good_plugin_module:NOT_A_CLASS", "is not a subclass of agentrl.api.Env"),
    ],
)
@pytest.mark.usefixtures("package")
def test_a_module_that_does_not_load(spec: str, words: str) -> None:
    assert words in refusal(spec)


def test_module_and_class(package: str) -> None:
    assert load_env(f"{package}:MyEnv").__module__ == package
    assert load_verifier(f"{package}:MyVerifier").__module__ == package
    assert refusal(f"{package}:MyEnv", Verifier).endswith("is not a subclass of agentrl.api.Verifier")


def test_file_and_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_env.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    env = load_env("./my_env.py:MyEnv")
    assert issubclass(env, Env)
    assert env is load_env(f"{tmp_path}/my_env.py:MyEnv")


def test_classes_of_one_file_are_shared_by_all_who_name_them(tmp_path: Path) -> None:
    file = tmp_path / "my_env.py"
    file.write_text(SOURCE)
    env, verifier = load_env(f"{file}:MyEnv"), load_verifier(f"{file}:MyVerifier")
    assert vars(env)["shared"] is vars(verifier)["shared"]


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "my_env.py"
    file.write_text(SOURCE)
    os.utime(file, (1, 1))
    before = load_env(f"{file}:MyEnv")
    file.write_text(SOURCE.replace("shared = Shared", "shared = None"))
    os.utime(file, (2, 2))
    assert vars(before)["shared"] is not None
    assert vars(load_env(f"{file}:MyEnv"))["shared"] is None


def test_two_files_of_one_name_are_two_modules(tmp_path: Path) -> None:
    specs = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "env.py").write_text(SOURCE)
        specs.append(f"{tmp_path / folder / 'env.py'}:MyEnv")
    first, second = map(load_env, specs)
    assert first.__module__ != second.__module__
    assert vars(sys.modules[first.__module__])["MyEnv"] is first


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        (None, "MyEnv", "the environment file '{file}' does not exist"),
        (SOURCE, "MyEnf", "{file} has no class 'MyEnf'; did you mean 'MyEnv'?"),
        (SOURCE, "MyVerifier", "the environment '{file}:MyVerifier' is not a subclass of agentrl.api.Env"),
        ("import nothing_of_that_name\n", "MyEnv", "does not import: ModuleNotFoundError: "),
        ("def f(:\n", "MyEnv", "does not import: SyntaxError: "),
        ("1 / 0\n", "MyEnv", "does not import: ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_that_does_not_load(tmp_path: Path, content: str | None, name: str, words: str) -> None:
    file = tmp_path / "my_env.py"
    if content is not None:
        file.write_text(content)
    before = set(sys.modules)
    message = refusal(f"{file}:{name}")
    assert words.format(file=file) in message
    if content != SOURCE:
        assert not {module for module in set(sys.modules) - before if "my_env" in module}


@pytest.mark.parametrize(
    ("scope", "words"),
    [("pair", "has scope = 'pair'; it is 'rollout' or 'group'"), ("group", "must define verify_group()")],
)
def test_a_verifier_s_scope_is_checked(tmp_path: Path, scope: str, words: str) -> None:
    (tmp_path / "scoped.py").write_text(
        f"from agentrl.api import Verifier\nclass V(Verifier):\n    scope = '{scope}'\n"
    )
    with pytest.raises(PluginError, match=r"scoped.py:V' has scope = ") as error:
        load_verifier(f"{tmp_path}/scoped.py:V")
    assert words in str(error.value)
