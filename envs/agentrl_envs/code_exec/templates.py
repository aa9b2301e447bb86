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


def _templates(skill: str, chains: str, *, seen: bool) -> list[Template]:
    return [Template(skill=skill, kinds=tuple(chain.split("+")), seen=seen) for chain in chains.split()]


TEMPLATES: tuple[Template, ...] = tuple(
    _templates("arithmetic", "arithmetic join+arithmetic arithmetic+arithmetic arithmetic+shape shape+arithmetic", seen=True)
    + _templates("arithmetic", "join+shape join+arithmetic+arithmetic", seen=True)
    + _templates("conditions", "branch arithmetic+branch branch+shape arithmetic+ask join+branch join+ask", seen=True)
    + _templates("lists", "keep+total each+total keep+each order+each each+order keep+each+total", seen=True)
    + _templates("lists", "order+total total+arithmetic keep+order", seen=True)
    + _templates("strings", "change+slice slice+change letter+change change+letter slice+letter slice+measure", seen=True)
    + _templates("strings", "letter+measure measure+arithmetic", seen=True)
    + _templates("loops", "climb arithmetic+climb climb+arithmetic fold fold+arithmetic keep+fold", seen=True)
    + _templates("arithmetic", "join+arithmetic+shape", seen=False)
    + _templates("conditions", "join+arithmetic+ask total+branch", seen=False)
    + _templates("lists", "each+keep keep+total+arithmetic", seen=False)
    + _templates("strings", "letter+slice change+measure", seen=False)
    + _templates("loops", "each+fold", seen=False)
)
