"""Finding environments, verifiers, histories and presets: by entry point, `path/to/file.py:Class` or `module:Class`.

Nothing is imported until a name asks for it. A name that two packages claim is an error that names both.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from agentrl.api import Env, History, PluginError, Verifier, nearest

PluginType = TypeVar("PluginType")


@dataclass(frozen=True, slots=True)
class Plugin:
    """An installed plugin. Example: `Plugin("code_exec", "agentrl_envs.code_exec:CodeExec", "agentrl-framework")`."""

    name: str
    target: str
    package: str


def installed(group: str) -> list[Plugin]:
    """The plugins of an entry-point group (`agentrl.envs`, `agentrl.verifiers` or `agentrl.histories`), by name."""
    plugins = [Plugin(e.name, e.value, e.dist.name if e.dist else "?") for e in _entry_points(group)]
    return sorted(plugins, key=lambda plugin: plugin.name)


def load_env(spec: str) -> type[Env]:
    """The environment class that `spec` names."""
    return _load(spec, "agentrl.envs", Env, "environment")


def load_verifier(spec: str) -> type[Verifier]:
    """The verifier class that `spec` names."""
    verifier = _load(spec, "agentrl.verifiers", Verifier, "verifier")
    if verifier.scope not in ("rollout", "group"):
        raise PluginError(f"the verifier '{spec}' has scope = {verifier.scope!r}; it is 'rollout' or 'group'")
    if verifier.scope == "group" and verifier.verify_group is Verifier.verify_group:
        raise PluginError(f"the verifier '{spec}' has scope = 'group' and must define verify_group()")
    return verifier


def load_history(spec: str) -> type[History]:
    """The history class that `spec` names."""
    return _load(spec, "agentrl.histories", History, "history")


def load_preset(spec: str) -> Any:
    """What `file.py:NAME` or `module:NAME` holds; the learner says whether it is a preset."""
    return _from_path(spec, "preset")


def _entry_points(group: str) -> list[EntryPoint]:
    # An editable install and a checkout on the path can both list the same distribution.
    unique = {(e.name, e.value, e.dist.name if e.dist else ""): e for e in entry_points(group=group)}
    return list(unique.values())


def _load(spec: str, group: str, base: type[PluginType], what: str) -> type[PluginType]:
    if ":" in spec:
        return _check(_from_path(spec, what), base, spec, what)
    found = [e for e in _entry_points(group) if e.name == spec]
    if not found:
        known = [plugin.name for plugin in installed(group)]
        raise PluginError(
            f"unknown {what} '{spec}'{nearest(spec, known)} (known: {', '.join(known) or 'none'}; "
            "after adding an entry point, install the package again)"
        )
    if len(found) > 1:
        owners = " and ".join(f"{e.dist.name if e.dist else '?'} ({e.value})" for e in found)
        raise PluginError(f"the {what} name '{spec}' is claimed by {owners}; uninstall one or use 'module:Class'")
    try:
        loaded = found[0].load()
    except Exception as error:  # its author's code runs here, and may raise anything
        raise PluginError(f"the {what} '{spec}' ({found[0].value}) does not import: {_said(error)}") from error
    return _check(loaded, base, spec, what)


def _from_path(spec: str, what: str) -> Any:
    location, _, name = spec.rpartition(":")
    try:
        from_file = location.endswith(".py")
        module = _import_file(Path(location), what) if from_file else importlib.import_module(location)
    except PluginError:
        raise
    except Exception as error:
        raise PluginError(f"the {what} '{spec}' does not import: {_said(error)}") from error
    if not hasattr(module, name):
        is_class = what != "preset"
        known = [key for key, value in vars(module).items() if isinstance(value, type) or not is_class]
        raise PluginError(f"{location} has no {'class' if is_class else 'preset'} '{name}'{nearest(name, known)}")
    return getattr(module, name)


def _import_file(path: Path, what: str) -> ModuleType:
    if not path.is_file():
        raise PluginError(f"the {what} file '{path}' does not exist")
    return _module_of(path.resolve(), path.stat().st_mtime_ns)


@functools.cache
def _module_of(path: Path, changed: int) -> ModuleType:
    """The module in a file, run once (until the file has `changed`): its classes are the same for all who name them."""
    place = hashlib.blake2b(str(path).encode(), digest_size=4).hexdigest()
    name = f"agentrl_plugin_{path.stem}_{place}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"no loader for {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _said(error: Exception) -> str:
    """An exception as a clause of one sentence; `--debug` shows its traceback."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _check(loaded: Any, base: type[PluginType], spec: str, what: str) -> type[PluginType]:
    if not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise PluginError(f"the {what} '{spec}' is not a subclass of agentrl.api.{base.__name__}")
    return loaded
