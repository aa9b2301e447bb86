"""`agentrl env new`: a complete plugin package, ready to be changed."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from agentrl.api import ConfigError
from agentrl.assets import PLUGIN_TEMPLATE
from agentrl.plugins import installed

FILES = {
    "pyproject.toml": "pyproject.toml.txt",
    "README.md": "README.md.txt",
    "agentrl_{name}/__init__.py": "init.py.txt",
    "agentrl_{name}/env.py": "env.py.txt",
    "agentrl_{name}/verifier.py": "verifier.py.txt",
    "tests/test_{name}.py": "test.py.txt",
}
"""Where each file of the template goes."""


def write_package(name: str, folder: str) -> list[Path]:
    """Write the package `name` into `folder/name`; returns the files. Raises ConfigError, and then nothing is written.

    Example: `write_package("shop", ".")[0] == Path("shop/pyproject.toml")`.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise ConfigError(f"env new {name}: a name is small letters, digits and '_', such as my_shop")
    taken = {plugin.name: plugin.package for plugin in installed("agentrl.envs")}
    if name in taken:
        raise ConfigError(f"env new {name}: the package {taken[name]} already has an environment of this name")
    target = Path(folder) / name
    if target.exists():
        raise ConfigError(f"env new {name}: {target} is already there; nothing was written")
    words = {"name": name, "Name": "".join(part.capitalize() for part in name.split("_"))}
    files = []
    for place, source in FILES.items():
        path = target / place.format(**words)
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (PLUGIN_TEMPLATE / source).read_text()
        for key, value in words.items():
            text = text.replace(f"{{{key}}}", value)
        path.write_text(text)
        files.append(path)
    return files
