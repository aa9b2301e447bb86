"""The one data type of a read answer: a tree of nodes, from a plain number to a union of intervals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction


class Unreadable(Exception):
    """The text is not mathematics that this grammar knows."""


class TooComplex(Exception):
    """Deciding would cost more than an answer may cost."""


class Undefined(Exception):
    """The expression has no value (a division by zero)."""


class Undecided(Exception):
    """Exact arithmetic cannot decide; a worker process has to."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node. Which fields count depends on `op`:

    - `num`: value; places: digits after the point when it was written with one, else None
    - `sym`: name (`x`, `a_1`, `pi`, `oo`); `text`: name, the normalised words; `dots`
    - `add` `mul` `div` `pow` `neg` `fact` `fact2` `deg` `pm` `mp` (one or two args) and `call` (name): expressions
    - `percent` (arg), `quantity` (arg; name: the unit), `based` (name: digits; value: base), `residue` (value, modulus)
    - `ratio` `dims` `clock` (hours, minutes, ...; name: am, pm or nothing), `cycle`
    - `group` (name: both brackets), `set`, `list` (name: `,` or `or`), `matrix` (args: rows, each a group)
    - `rel` (name: the relation signs, blank-separated, one fewer than args)
    - `union` `inter` `minus` (sets), `reals`, `empty`

    Example: `Node("add", (Node("sym", name="x"), Node("num", value=Fraction(1))))`.
    """

    op: str
    args: tuple[Node, ...] = ()
    name: str = ""
    value: Fraction = Fraction(0)
    places: int | None = None

    def walk(self) -> Iterator[Node]:
        """This node and all below it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.args)

    @property
    def symbols(self) -> frozenset[str]:
        """Names of the free symbols, the constants apart."""
        return frozenset(node.name for node in self.walk() if node.op == "sym" and node.name not in CONSTANTS)


CONSTANTS = frozenset({"pi", "e", "i", "oo"})
EXPRESSIONS = frozenset({"num", "sym", "add", "mul", "div", "pow", "neg", "call", "fact", "fact2", "deg", "pm", "mp"})
SETS = frozenset({"union", "inter", "minus", "reals", "empty", "set"})


def number(value: int | Fraction) -> Node:
    """A number node. Example: `number(3)`."""
    return Node("num", value=Fraction(value))


def is_expression(node: Node) -> bool:
    """Whether a node is an expression, such as `x + 1`, and no container, relation or quantity."""
    return node.op in EXPRESSIONS
