"""The shapes of the `basic` tasks: chains of kinds, each under one skill and a level, seen by train or held back."""

from __future__ import annotations

from dataclasses import dataclass

from agentrl_envs.code_exec.words import KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A chain of kinds of words. `seen` is False when only the test split uses it.

    Example: `Template(skill="lists", kinds=("keep", "total"), seen=True)`.
    """

    skill: str
    kinds: tuple[str, ...]
    seen: bool = True

    @property
    def name(self) -> str:
        """The chain as one text, such as `keep+total`."""
        return "+".join(self.kinds)

    @property
    def level(self) -> int:
        """1 to 3: one for every clause."""
        return len(self.kinds)

    @property
    def takes(self) -> str:
        """Type of the argument: `number`, `list`, `text` or `pair`."""
        return KINDS[self.kinds[0]].takes


_SEEN = {
    "arithmetic": """arithmetic join+arithmetic arithmetic+arithmetic arithmetic+shape shape+arithmetic join+shape
        join+arithmetic+arithmetic arithmetic+shape+arithmetic join+shape+arithmetic""",
    "conditions": """branch arithmetic+branch branch+shape branch+arithmetic arithmetic+ask join+branch join+ask
        join+arithmetic+branch shape+branch""",
    "lists": """keep+total each+total order+total keep+each each+keep order+each each+order keep+order order+keep
        total+arithmetic keep+each+total each+order+total keep+total+shape order+each+keep""",
    "strings": """change+slice slice+change letter+change change+letter slice+letter slice+measure letter+measure
        measure+arithmetic change+letter+change slice+change+letter letter+measure+arithmetic""",
    "loops": """climb arithmetic+climb climb+arithmetic climb+shape join+climb fold fold+arithmetic keep+fold
        order+fold keep+fold+arithmetic""",
}
_UNSEEN = {
    "arithmetic": "join+arithmetic+shape",
    "conditions": "total+branch join+arithmetic+ask",
    "lists": "each+keep+total keep+total+arithmetic",
    "strings": "letter+slice change+measure",
    "loops": "each+fold",
}
TEMPLATES: tuple[Template, ...] = tuple(
    Template(skill=skill, kinds=tuple(chain.split("+")), seen=seen)
    for seen, chains in ((True, _SEEN), (False, _UNSEEN))
    for skill, names in chains.items()
    for chain in names.split()
)
