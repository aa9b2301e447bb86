"""A function becomes a tool: its schema, its checked arguments, its text; what goes wrong is told to the policy."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from agentrl.api import Env, Message, Options, PluginError, Services, ToolCall, WorkersUnavailable, tool
from agentrl.api.tools import carry_out, tools_of


class Line(BaseModel):
    item: str
    count: int = Field(default=1, ge=1)


class Shop(Env):
    """Tools of every kind."""

    def __init__(self) -> None:
        super().__init__(Options(), Services())
        self.sold: list[str] = []

    @tool
    def price(self, item: str, currency: Literal["EUR", "USD"] = "EUR") -> float:
        """Price of an item,
        in one currency.

        item: its name in the catalogue
        currency (str): of the answer
        """
        return 2.5 if currency == "EUR" else 3.0

    @tool(name="order", timeout=0.2, max_characters=30)
    async def place_order(self, lines: list[Line], note: str | None = None) -> Any:
        """Order something."""
        self.sold += [line.item for line in lines for _ in range(line.count)]
        fault = note or ""
        if fault == "raise":
            raise KeyError("no such item")
        if fault == "hang":
            await asyncio.sleep(60)
        if fault == "long":
            return "x" * 10_000_000
        if fault == "bytes":
            return b"caf\xe9"
        if fault == "surrogate":
            return "\ud800 half"
        if fault == "exit":
            raise SystemExit(3)
        if fault == "ours":
            raise WorkersUnavailable("no worker")
        if fault == "stop":
            asyncio.get_running_loop().stop()
        return {"sold": self.sold, "kind": Line(item="é")}

    @staticmethod
    @tool(timeout=0.2)
    def sleep(seconds: float) -> str:
        """Sleep in a thread."""
        time.sleep(seconds)
        return "awake"

    def helper(self) -> None:
        """Is no tool."""


def run(name: str, **arguments: Any) -> tuple[str, bool, Shop]:
    shop = Shop()
    called = ToolCall(id="1", name=name, arguments=arguments)
    message, fine = asyncio.run(carry_out(shop, tools_of(Shop), called))
    assert (message.role, message.tool_call_id) == ("tool", "1")
    return message.content, fine, shop


def test_the_signature_and_the_docstring_become_the_schema() -> None:
    assert [spec.name for spec in Shop.tools] == ["price", "order", "sleep"]
    price = Shop.tools[0]
    assert price.description == "Price of an item, in one currency."
    assert price.parameters == {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "item": {"type": "string", "description": "its name in the catalogue"},
            "currency": {
                "type": "string",
                "enum": ["EUR", "USD"],
                "default": "EUR",
                "description": "of the answer",
            },
        },
        "required": ["item"],
    }
    assert "Line" in Shop.tools[1].parameters["$defs"]  # nested models keep their schema


def test_arguments_are_converted_and_results_become_text() -> None:
    assert run("price", item="tea")[:2] == ("2.5", True)
    text, fine, shop = run("order", lines=[{"item": "tea", "count": 2}])
    assert fine
    assert shop.sold == ["tea", "tea"]
    assert text.startswith('{"sold": ["tea", "tea"], "kind')
    assert run("sleep", seconds=0)[:2] == ("awake", True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "error: item: Field required"),
        ({"item": "tea", "color": "red"}, "error: color: Extra inputs are not permitted"),
        ({"item": ["tea"]}, "error: item: Input should be a valid string"),
        ({"item": "tea", "currency": "GBP"}, "error: currency: Input should be 'EUR' or 'USD'"),
    ],
)
def test_strange_arguments_are_told(arguments: dict[str, Any], said: str) -> None:
    assert run("price", **arguments)[:2] == (said, False)


def test_a_nested_argument_is_named_by_its_place() -> None:
    text, fine, shop = run("order", lines=[{"item": "tea"}, {"item": "milk", "count": 0}])
    assert (text, fine) == ("error: lines.1.count: Input should be greater than or equal to 1", False)
    assert shop.sold == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", "error: KeyError: 'no such item'"),
        ("hang", "error: order was given up after 0.2 s"),
        ("exit", "error: SystemExit: 3"),
    ],
)
def test_what_a_tool_raises_is_told(fault: str, said: str) -> None:
    assert run("order", lines=[], note=fault)[:2] == (said, False)


def test_a_thread_that_hangs_is_given_up() -> None:
    start = time.monotonic()
    assert run("sleep", seconds=3)[:2] == ("error: sleep was given up after 0.2 s", False)
    assert time.monotonic() - start < 2.5


def test_long_and_undecodable_results() -> None:
    assert run("order", lines=[], note="long")[:2] == ("x" * 30 + "\n[cut: 30 of 10000000 characters]", True)
    assert run("order", lines=[], note="bytes")[:2] == ("caf\N{REPLACEMENT CHARACTER}", True)
    assert run("order", lines=[], note="surrogate")[:2] == ("? half", True)


def test_our_own_failure_is_not_told_to_the_policy() -> None:
    with pytest.raises(WorkersUnavailable):
        run("order", lines=[], note="ours")


def test_an_unknown_tool_is_told() -> None:
    assert run("helper")[:2] == ("error: there is no tool 'helper'", False)


def test_calls_of_a_message_are_answered_in_order_and_a_failed_one_is_rolled_back() -> None:
    class Ledger(Shop):
        def snapshot(self) -> list[str]:
            return list(self.sold)

        def restore(self, state: object) -> None:
            assert isinstance(state, list)
            self.sold = state

    ledger = Ledger()
    notes = (None, "raise", None)
    calls = tuple(
        ToolCall(id=str(i), name="order", arguments={"lines": [{"item": str(i)}], "note": note})
        for i, note in enumerate(notes)
    )
    result = asyncio.run(ledger._tool_step(Message(role="assistant", content="", tool_calls=calls)))
    assert [message.tool_call_id for message in result.observation] == ["0", "1", "2"]
    assert ledger.sold == ["0", "2"]
    assert result.info == {"tool_calls": 3, "tool_errors": 1}
    assert not result.terminated
    assert asyncio.run(ledger._tool_step(Message(role="assistant", content="done"))).terminated


def test_signatures_that_cannot_be_a_schema_are_refused_when_the_class_is_made() -> None:
    with pytest.raises(PluginError, match=r"Bare\.look.*annotate the parameter 'item'"):

        class Bare(Env):
            @tool
            def look(self, item) -> str:  # type: ignore[no-untyped-def]
                return str(item)

    with pytest.raises(PluginError, match=r"Stars\.look.*'\*items' must be an ordinary named parameter"):

        class Stars(Env):
            @tool
            def look(self, *items: str) -> str:
                return str(items)

    with pytest.raises(PluginError, match=r"Odd\.look"):

        class Odd(Env):
            @tool
            def look(self, item: threading_lock) -> str:  # type: ignore[name-defined]  # noqa: F821
                return str(item)

    with pytest.raises(PluginError, match="two tools named 'look'"):

        class Twice(Env):
            @tool
            def look(self) -> str:
                return ""

            @tool(name="look")
            def see(self) -> str:
                return ""
