"""`tool_calls`, `json_schema`, `format` and `length`: their rules, their options, and that no text makes them raise."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from agentrl_verifiers.format import Format, read_grammar
from agentrl_verifiers.json_schema import JSONSchema
from agentrl_verifiers.length import Length
from agentrl_verifiers.tool_calls import ToolCalls
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from agentrl.api import DataError, Message, Rollout, Segment, Services, Stop, Task, ToolCall, Turn, Verdict, Verifier
from tests.support_answers import judge_rollouts, reply_to, verdict

ADD = {
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]},
}


def call(value: str) -> str:
    return f'<tool_call>{{"name": "add", "arguments": {{"a": {value}}}}}</tool_call>'


def one(plugin: type[Verifier], data: dict[str, Any], *responses: str, **options: Any) -> Verdict:
    return judge_rollouts(plugin, [reply_to(data, *responses)], workers=1, **options)[0]


def expected(*values: Any) -> dict[str, Any]:
    return {"tools": [ADD], "expected": [{"name": "add", "arguments": {"a": value}} for value in values]}


@pytest.mark.parametrize(
    ("task", "responses", "reason"),
    [
        (expected(1), (call("1"),), "passed"),
        (expected(1), (call("1.0"),), "passed"),
        (expected(1), (call("2"),), "wrong_answer"),
        (expected(1), (call("1"), "Done: 1."), "passed"),
        (expected(1, 2), (call("2"), call("1")), "passed"),
        (expected(1, 1), (call("1"),), "wrong_answer"),
        (expected(1), (call("1") + call("1"),), "wrong_answer"),
        (expected(1), (call("1"), call("x")), "invalid_tool_call"),
        (expected(1), (call("true"),), "invalid_tool_call"),
        (expected(1), ("It is 1.",), "no_answer"),
        (expected(1), ("",), "no_answer"),
        (expected(), ("No tool is needed.",), "passed"),
        (expected(), ("",), "no_answer"),
        (expected(), ("<think>no</think>",), "no_answer"),
        (expected(), (call("1"),), "wrong_answer"),
        (expected(), (call("x"),), "invalid_tool_call"),
        (expected(), ('{"name": "add", "arguments": {}}',), "invalid_tool_call"),
        ({"tools": [ADD], "expected": None}, (call("7"),), "passed"),
        ({"tools": [ADD]}, (call('"7"'),), "invalid_tool_call"),
        ({"tools": [ADD]}, ("Seven.",), "no_answer"),
        ({"tools": [{"type": "function", "function": ADD}]}, (call("7"),), "passed"),
    ],
)
def test_tool_calls(task: dict[str, Any], responses: tuple[str, ...], reason: str) -> None:
    assert one(ToolCalls, task, *responses).reason == reason


def test_options_of_tool_calls() -> None:
    turned = call("2") + call("1")
    assert one(ToolCalls, expected(1, 2), turned).passed
    assert not one(ToolCalls, expected(1, 2), turned, ordered=True).passed
    assert one(ToolCalls, expected(1, 2), call("1") + call("2"), ordered=True).passed
    assert one(ToolCalls, expected(1), '{"name": "add", "parameters": {"a": 1}}', format="llama").passed


def test_calls_that_were_carried_out_are_judged() -> None:
    action = Message(role="assistant", content="", tool_calls=(ToolCall(id="x", name="add", arguments={"a": 1}),))
    turn = Turn(segment=0, span=(0, 0), completion=None, action=action)
    task = Task(id="t", messages=(), data=expected(1))
    rollout = Rollout(task=task, index=0, seed=0, turns=(turn,), segments=(), stop=Stop.FINISHED)
    assert judge_rollouts(ToolCalls, [rollout], workers=1)[0].passed


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"tools": "add"},
        {"tools": [{"name": 3}]},
        {"tools": [ADD, ADD]},
        {"tools": [{"name": "add", "parameters": {"type": "wrong"}}]},
        {"tools": [ADD], "format": "herms"},
        {"tools": [ADD], "expected": {}},
        {"tools": [ADD], "expected": [{"arguments": {}}]},
        {"tools": [ADD], "expected": [{"name": "add", "arguments": []}]},
        {"tools": [ADD], "expected": [{"name": "add", "arguments": {}}]},
        {"tools": [ADD], "expected": [{"name": "sub", "arguments": {"a": 1}}]},
    ],
)
def test_bad_tasks_of_tool_calls_are_errors_at_load(task: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        ToolCalls(ToolCalls.Options(), Services()).check_task(reply_to(task).task)


OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ('{"a": 1}', "passed"),
        ('<think>{"a": 2}</think>\n```\n{"a": 1.0}\n```', "passed"),
        ('{"a": 2}', "wrong_answer"),
        ('{"a": "1"}', "wrong_answer"),
        ('{"a": null}', "wrong_answer"),
        ('```json\n{"a": 1}\n```\n```json\n{"a": 1}\n```', "syntax_error"),
        ('{"a": 1}.', "syntax_error"),
        ("```json\n```", "syntax_error"),
        ("", "no_answer"),
        ('<think>{"a": 1}', "no_answer"),
        ("[" * 200 + "]" * 200, "too_complex"),
    ],
)
def test_json_schema(response: str, reason: str) -> None:
    assert one(JSONSchema, {"schema": OBJECT, "expected": {"a": 1}}, response).reason == reason


def test_json_schema_without_expected_takes_any_value_that_fits() -> None:
    assert one(JSONSchema, {"schema": OBJECT}, '{"a": 5}').passed
    assert one(JSONSchema, {"schema": {"type": ["null", "object"]}, "expected": None}, "null").passed
    assert not one(JSONSchema, {"schema": {"type": ["null", "object"]}, "expected": None}, "{}").passed


@pytest.mark.parametrize("task", [{}, {"schema": {"type": "x"}}, {"schema": OBJECT, "expected": {"a": "1"}}])
def test_bad_tasks_of_json_schema_are_errors_at_load(task: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        JSONSchema(JSONSchema.Options(), Services()).check_task(reply_to(task).task)


@pytest.mark.parametrize(
    ("grammar", "response", "passes"),
    [
        ("<think> <answer>", "<think>a</think><answer>b</answer>", True),
        ("<think> <answer>", "\n<think>\na\n</think>\n\n<answer>b</answer>\n", True),
        ("<think> <answer>", "<think>a</think><answer> </answer>", False),
        ("<think> <answer>", "<answer>b</answer><think>a</think>", False),
        ("<think> <answer>", "<think>a</think>", False),
        ("<think> <answer>", "<think>a<answer>b</answer></think>", False),
        ("<think> <answer>", "<think>a</think>so<answer>b</answer>", False),
        ("<think> <answer>", "<think>a</think><answer>b", False),
        ("<think> <answer>", "<think>a</think><answer>b</answer></answer>", False),
        ("<think>? <answer>", "<answer>b</answer>", True),
        ("<think> text? boxed text?", r"<think>a</think>It is $\boxed{\frac{1}{2}}$.", True),
        ("<think> text? boxed text?", r"<think>a</think>\boxed{1}", True),
        ("<think> text? boxed text?", r"<think>a</think>\boxed{1} or \boxed{2}", False),
        ("<think> text? boxed text?", r"<think>a</think>\boxed{}", False),
        ("<think> text? boxed text?", r"<think>a</think>\boxed{1", False),
        ("<think> text? boxed text?", r"<think>\boxed{2}</think>\boxed{1}", False),
        ("text? boxed text?", r"\boxed{\{1\}}", True),
        ("<answer>(json)", '<answer>{"a": "</answer>"}</answer>', True),
        ("<answer>(json)", "<answer>{'a': 1}</answer>", False),
        ("<answer>(json)", "<answer>1 2</answer>", False),
        ("json", '{"a": 1}', True),
        ("json", '{"a": 1} ok', False),
        ("text? code", "Here:\n```python\nx = 1\n```", True),
        ("text? code", "Here:\n```python\n```", False),
        ("text? code", "Here:\n```python\nx = 1", False),
        ("text? code", "```\na\n```\n```\nb\n```", False),
        ("<a>(<b> <c>?)", "<a><b>1</b></a>", True),
        ("<a>(<b> <c>?)", "<a>1<b>1</b></a>", False),
        ("text", " ", False),
    ],
)
def test_format(grammar: str, response: str, passes: bool) -> None:
    judged = one(Format, {}, response, grammar=grammar)
    assert judged.passed is passes, judged.detail
    assert judged.reason in (("passed",) if passes else ("wrong_format", "no_answer"))


def test_what_the_template_wrote_belongs_to_the_form() -> None:
    response = "a</think><answer>b</answer>"
    assert not one(Format, {}, response).passed
    assert one(Format, {}, response, opened="<think>\n").passed


@pytest.mark.parametrize(
    "grammar", ["", " ", "<a", "<a>(", "<a>(text", "text)", "box", "text text", "text(json)", "text? json", "<a>>", "?"]
)
def test_a_grammar_that_is_none_is_refused(grammar: str) -> None:
    with pytest.raises(ValueError, match="grammar"):
        read_grammar(grammar)
    with pytest.raises(ValidationError, match="grammar"):
        Format.Options(grammar=grammar)


@pytest.mark.parametrize(("words", "score"), [(0, 0.0), (10, 0.0), (15, -0.5), (20, -1.0), (90, -1.0)])
def test_length(words: int, score: float) -> None:
    judged = one(Length, {}, "a " * words, unit="words", free=10, limit=20)
    assert judged.score == pytest.approx(score)
    assert judged.passed is (words <= 10)


def test_length_counts_every_turn_and_sampled_tokens() -> None:
    assert one(Length, {}, "a b", "c", unit="words").detail == "3 words"
    ids = np.arange(6, dtype=np.int32)
    sampled = np.array([False, True, True, False, True, False])
    segment = Segment(ids=ids, sampled=sampled, logprobs=np.zeros(6, np.float32), turn=np.zeros(6, np.int16))
    turn = Turn(segment=0, span=(1, 3), completion=None, action=Message(role="assistant", content="x"))
    task = Task(id="t", messages=())
    rollout = Rollout(task=task, index=0, seed=0, turns=(turn,), segments=(segment,), stop=Stop.FINISHED)
    verifier = Length(Length.Options(unit="tokens", free=1, limit=5), Services())
    assert verifier.verify(rollout).score == -0.5
    with pytest.raises(DataError, match="unit"):
        verifier.verify(reply_to({}, "x"))
    with pytest.raises(ValidationError, match="limit"):
        Length.Options(free=5, limit=5)


PIECES = ["<think>", "</think>", "<answer>", "</answer>", "```", "json", "\n", "{", "}", "[", "]", '"a"', ":", "1", ",",
          "\\boxed{", "\ud800", "\0", " ", "x", "<tool_call>", "</tool_call>"]  # fmt: skip


@settings(deadline=None, max_examples=400)
@given(st.lists(st.sampled_from(PIECES), max_size=15).map("".join) | st.text(max_size=50))
def test_no_text_makes_them_raise(text: str) -> None:
    cases: list[tuple[Verifier, dict[str, Any]]] = [
        (ToolCalls(ToolCalls.Options(), Services(available={"workers": None})), expected(1)),
        (JSONSchema(JSONSchema.Options(), Services(available={"workers": None})), {"schema": {"type": "integer"}}),
        (Format(Format.Options(grammar="<think>? text? boxed? text?"), Services()), {}),
        (Format(Format.Options(grammar="<answer>(json)"), Services()), {}),
        (Length(Length.Options(), Services()), {}),
    ]
    for verifier, data in cases:
        assert asyncio.run(verdict(verifier, reply_to(data, text))).score is not None
