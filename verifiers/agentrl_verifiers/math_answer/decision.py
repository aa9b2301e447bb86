"""From a gold and an extracted answer to a reason; the same in both processes."""

from __future__ import annotations

import functools

from agentrl_verifiers.math_answer.comparison import Oracle, same
from agentrl_verifiers.math_answer.nodes import TooComplex
from agentrl_verifiers.math_answer.reading import Reading, read

_SHOWN = 120


@functools.lru_cache(maxsize=4096)
def read_gold(text: str) -> Reading:
    """The reading of a gold; rollouts of one task share it. Raises TooComplex."""
    return read(text)


def decide_with(gold: str, texts: list[str], prose: bool, oracle: Oracle) -> tuple[str, str]:
    """The reason (`passed`, `wrong_answer`, `too_complex`) and a detail. Raises Undecided when the oracle cannot tell.

    `texts` are cuts of one statement, the whole first; any of them may be the answer.
    """
    if texts[0].strip() == gold.strip() and not prose:
        wanted = read_gold(gold)
        return ("passed", "") if same(wanted, wanted, oracle) else ("wrong_answer", "the gold has no value")
    refused = ""
    for text in texts:
        try:
            if same(read_gold(gold), read(text, prose=prose), oracle):
                return "passed", ""
        except TooComplex as error:
            refused = refused or str(error)
        except RecursionError:
            refused = refused or "nested too deeply"
    if refused:
        return "too_complex", refused
    return "wrong_answer", f"expected {_show(gold)}, got {_show(texts[0])}"


def _show(text: str) -> str:
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
