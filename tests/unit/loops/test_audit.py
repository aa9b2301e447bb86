"""`audit` finds what pays, and leaves alone what does not."""

from __future__ import annotations

import pytest

from agentrl.api import Message, Task, ToolSpec
from agentrl.config import Layer
from agentrl.loops.audit import Audit, audit
from agentrl.loops.hacks import catalogue
from agentrl.loops.resolve import resolve
from agentrl.loops.words import Seen


def audited(name: str) -> Audit:
    return audit(resolve([Layer("test", {"env": {"name": f"tests.faulty_envs:{name}"}})]), "train", 4)


def test_nothing_pays_in_a_sound_environment() -> None:
    found = audited("Sound")
    assert found.exit_code == 0
    assert found.gold == 1.0
    assert len(found.earned) > 60
    assert {one.reward for one in found.earned} == {0.0}


@pytest.mark.parametrize(
    ("name", "hack", "said"),
    [
        ("PaysForForm", "format only: empty box", "earns 0.5, a well-formed wrong attempt 0"),
        ("PaysForAnything", "all at once: all letters", "counts as success on 4 of 4 tasks"),
        ("PaysForSilence", "empty", "earns 0, a well-formed wrong attempt -0.05"),
        ("PaysPerCall", "every tool for ever", "a well-formed wrong attempt 0"),
        ("Parrot", "prompt echo", "counts as success on 4 of 4 tasks"),
        ("Fragile", "constant A, bare", None),
    ],
)
def test_what_pays_is_named(name: str, hack: str, said: str | None) -> None:
    found = audited(name)
    flaw = next(one.flaw for one in found.earned if one.hack == hack)
    assert (flaw is None) if said is None else (flaw is not None and said in flaw)
    assert found.exit_code == (0 if said is None else 3)


def test_a_constant_that_is_the_answer_is_no_hack() -> None:
    earned = {one.hack: one for one in audited("PaysForAnything").earned}
    assert earned["constant A, bare"].tasks == 3
    assert earned["constant A, bare"].flaw is None


def test_the_visible_examples_are_learned_by_heart() -> None:
    hack = next(one for one in catalogue(0, {}) if one.name == "the visible examples by heart")
    asked = Message(
        role="user", content="Write f(a, b).\nf(2, 'x') == [2, 'x']\nf(0, '') -> []\nExample: g(1) returns 5."
    )
    seen = Seen(task=Task(id="t", messages=(asked,)), conversation=(asked,), tools=(), turn=0, index=0)
    program = hack.write(seen)
    assert program is not None
    names: dict[str, object] = {}
    exec(program.removeprefix("```python\n").removesuffix("\n```"), names)
    f, g = names["f"], names["g"]
    assert callable(f)
    assert callable(g)
    assert (f(2, "x"), f(0, ""), f(3, "y"), g(1)) == ([2, "x"], [], None, 5)


def test_calls_fit_the_schemas() -> None:
    parameters = {
        "type": "object",
        "properties": {"kind": {"enum": ["x", "y"]}, "count": {"type": "integer"}, "note": {"type": "string"}},
        "required": ["kind", "count"],
    }
    tools = (ToolSpec(name="order", description="Order.", parameters=parameters),)
    asked = Message(role="user", content="go")
    seen = Seen(task=Task(id="t", messages=(asked,)), conversation=(asked,), tools=tools, turn=0, index=0)
    texts = {one.name: one.write(seen) for one in catalogue(0, {})}
    assert texts["every tool once"] is not None
    assert '{"kind": "x", "count": 1}' in texts["every tool once"]
    assert (texts["a hundred calls in one message"] or "").count("<tool_call>") == 100
