"""Calls, JSON and forms made to hang, crash or fill a parser: judged soon, and the next one is judged."""

from __future__ import annotations

from typing import Any

import pytest
from agentrl_verifiers.format import Format
from agentrl_verifiers.json_schema import JSONSchema
from agentrl_verifiers.length import Length
from agentrl_verifiers.tool_calls import ToolCalls

from agentrl.api import FORMATS, Verdict
from tests.support_answers import judge_rollouts, reply_to

DEEP = 50_000
TEXTS = {
    "arrays": "[" * DEEP,
    "closed arrays": "[" * DEEP + "]" * DEEP,
    "objects": '{"a":' * DEEP + "1" + "}" * DEEP,
    "digits": "7" * 1_000_000,
    "negative digits": "-" + "7" * 1_000_000,
    "decimals": "0." + "3" * 1_000_000,
    "exponent": "1e999999999",
    "keys": "{" + ",".join(f'"k{i}":{i}' for i in range(60_000)) + "}",
    "same keys": "{" + ",".join('"k":1' for _ in range(60_000)) + "}",
    "list": "[" + ",".join(["1"] * 300_000) + "]",
    "objects in a list": "[" + ",".join(['{"a": "b"}'] * 60_000) + "]",
    "backslashes": '"' + "\\" * 500_000,
    "escapes": '"' + "\\ud83d" * 100_000 + '"',
    "blanks": " " * 1_000_000,
    "start tags": "<tool_call>" * 60_000,
    "end tags": "</tool_call>" * 60_000,
    "empty calls": "<tool_call></tool_call>" * 30_000,
    "half calls": '<tool_call>{"name": "f", "arguments": {"a": "' * 15_000,
    "functions": "<tool_call><function=f>" * 30_000,
    "parameters": "<tool_call><function=f>" + "<parameter=a>" * 50_000,
    "parameter ends": "<tool_call><function=f><parameter=a>" + "</parameter>\n" * 50_000,
    "marks": "[TOOL_CALLS]" * 60_000,
    "lists of calls": "[TOOL_CALLS]f{" * 60_000,
    "semicolons": '{"name":"f","parameters":{}};' * 20_000,
    "python lists": "[" * DEEP + "]" * DEEP,
    "python calls": "f(" * DEEP + ")" * DEEP,
    "python many calls": "[" + ",".join(["f(a=1)"] * 12_000) + "]",
    "python signs": "[f(a=" + "-" * 40_000 + "1)]",
    "python dots": "[f" + ".a" * 40_000 + "()]",
    "python sums": "[f(a=" + "1+" * 40_000 + "1)]",
    "python digits": "[f(a=" + "9" * 90_000 + ")]",
    "python exponent": "[f(a=1e999)]",
    "python nul": "[f(a='\0')]",
    "python quotes": "'" * 90_000,
    "reasoning": "<think>" * 60_000,
    "closed reasoning": "<think>\n</think>\n" * 40_000,
    "ends of reasoning": "</think>" * 60_000,
    "reasoning between calls": "<tool_call>{</think>" * 40_000,
    "fences": "```json\n" * 60_000,
    "fenced": "```\n" * 100_000 + "1",
    "surrogates": "\ud800\udfff" * 1000,
    "controls": "".join(map(chr, range(160))),
    "attempts": '{"name": "' * 60_000,
    "more attempts": '{"arguments": {' * 60_000,
    "python attempts": "[a(" * 60_000,
    "boxes": r"\boxed{" * 60_000,
    "answers": "<answer>" * 60_000,
    "thoughts": "<think>a</think> <answer>" * 30_000,
}
SCHEMAS: dict[str, Any] = {
    "plain": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    "reference to itself": {
        "$ref": "#/$defs/tree",
        "$defs": {
            "tree": {
                "anyOf": [
                    {"type": "array", "items": {"$ref": "#/$defs/tree"}, "minItems": 1},
                    {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 0, "minItems": 1},
                    {"const": 1.5},
                ]
            }
        },
    },
    "unique": {"type": "array", "uniqueItems": True, "maxItems": 3},
    "pattern": {"type": "string", "pattern": "^(a+)+$"},
    "multiple": {"type": "number", "multipleOf": 0.7},
}


def check(name: str, verdict: Verdict) -> None:
    assert verdict.passed is False, (name, verdict.reason)
    assert verdict.seconds < 5, (name, verdict)
    assert len(verdict.detail) < 2000, name


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
def test_calls(format: str) -> None:
    tools = [{"name": "f", "parameters": SCHEMAS["plain"]}]
    task = {"tools": tools, "format": format, "expected": [{"name": "f", "arguments": {"a": 3}}]}
    right = FORMATS[format].write([("f", {"a": 3})])
    texts = {**TEXTS, **{f"marked {name}": f"{FORMATS[format].mark or ''}{text}" for name, text in TEXTS.items()}}
    rollouts = [reply_to(task, each) for text in texts.values() for each in (text, right)]
    judged = judge_rollouts(ToolCalls, rollouts, workers=1)
    assert all(after.passed for after in judged[1::2])
    for name, verdict in zip(texts, judged[::2], strict=True):
        check(name, verdict)


@pytest.mark.slow
@pytest.mark.parametrize("schema", SCHEMAS)
def test_json(schema: str) -> None:
    rollouts = [reply_to({"schema": SCHEMAS[schema]}, text) for text in TEXTS.values()]
    for name, verdict in zip(TEXTS, judge_rollouts(JSONSchema, rollouts, workers=1), strict=True):
        check(name, verdict)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("pattern", '"' + "a" * 60 + '!"'),
        ("reference to itself", "[" * 60 + "2" + "]" * 60),
        ("unique", "[" + ",".join(f'{{"a": {i}}}' for i in range(20_000)) + "]"),
        ("multiple", "9" * 4000),
    ],
)
def test_what_takes_a_schema_too_long_is_too_complex_and_the_next_one_is_judged(schema: str, text: str) -> None:
    task = {"schema": SCHEMAS[schema]}
    right = {"pattern": '"aaa"', "reference to itself": "[1.5]", "unique": "[1, 2]", "multiple": "1.4"}[schema]
    slow, after = judge_rollouts(JSONSchema, [reply_to(task, text), reply_to(task, right)], workers=1)
    check(schema, slow)
    assert slow.reason in ("too_complex", "wrong_answer")
    assert (slow.reason == "too_complex") or schema == "unique"
    assert after.passed


def test_forms_and_lengths_stay_quick() -> None:
    for grammar in ("<think> <answer>", "<think>? text? boxed text?", "<answer>(json)", "code text?"):
        verdicts = judge_rollouts(Format, [reply_to({}, text) for text in TEXTS.values()], grammar=grammar)
        for name, verdict in zip(TEXTS, verdicts, strict=True):
            assert verdict.score in (0.0, 1.0), name
            assert verdict.seconds < 2, (name, grammar, verdict.seconds)
    for verdict in judge_rollouts(Length, [reply_to({}, text) for text in TEXTS.values()]):
        assert verdict.score is not None
        assert -1 <= verdict.score <= 0
