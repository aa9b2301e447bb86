"""Embedded policies: folders beside this file, each with the training settings that suit it (`recipe.yaml`)."""

from __future__ import annotations

from pathlib import Path


def embedded(name: str) -> Path | None:
    """Folder of the embedded policy `name`, or None when there is none of that name.

    >>> embedded("no-such-policy") is None
    True
    """
    folder = Path(__file__).parent / name
    return folder if name.isidentifier() and (folder / "config.json").is_file() else None


PLUGIN_TEMPLATE = Path(__file__).parent / "plugin"
"""The files of `agentrl env new`."""
