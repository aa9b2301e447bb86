"""Strict JSON: what is refused although other readers take it, and that what is written is read back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.api import DataError, JSONTextError, check_schema, costly, read_json, schema_error, without_fence


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "[1,]",
        "{'a': 1}",
        '{"a": 1,}',
        "NaN",
        "-Infinity",
        '{"a": 1, "a": 1}',
        "1 2",
        "01",
        "+1",
        ".5",
        "1.",
        "tru",
        '"\n"',
        '"\\d"',
        "// a\n1",
        "1e999",
        "\u00a01",
        "undefined",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(JSONTextError) as caught:
        read_json(text)
    assert not caught.value.too_complex


@pytest.mark.parametrize("text", ["1" * 4301, "[" * 101 + "]" * 101, '{"a":' * 101 + "1" + "}" * 101, "[" * 10**5])
def test_too_complex(text: str) -> None:
    with pytest.raises(JSONTextError) as caught:
        read_json(text)
    assert caught.value.too_complex


@pytest.mark.parametrize("text", ["[" * 100 + "]" * 100, "1" * 4300, " \t\r\n1\n", '"\\ud83d"', "-0", "1e-999"])
def test_taken(text: str) -> None:
    assert read_json(text) == json.loads(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_what_is_written_is_read(value: Any) -> None:
    assert read_json(json.dumps(value)) == value
    assert read_json(json.dumps(value, ensure_ascii=False, indent=1)) == value


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("```json\n1\n```", "1"),
        ("```\n1\n```", "1"),
        ("\ufeff ```JSON\r\n1\r\n```\n", "1"),
        ("~~~~json\n1\n~~~~", "1"),
        ("```python\n1\n```", "```python\n1\n```"),
        ("```\n1\n``` x", "```\n1\n``` x"),
        ("x ```\n1\n```", "x ```\n1\n```"),
        (" 1 ", "1"),
    ],
)
def test_fences(text: str, inside: str) -> None:
    assert without_fence(text) == inside


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "wrong"},
        {"$ref": "https://example.org/s"},
        {"$ref": "#/$defs/none"},
        {"properties": 3},
        7,
        {"required": "a"},
    ],
)
def test_a_schema_that_is_none(schema: Any) -> None:
    with pytest.raises(DataError):
        check_schema(schema)


def test_schemas() -> None:
    schema = {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    check_schema(schema)
    check_schema(True)
    assert schema_error(schema, {"n": 3.0}) is None
    assert schema_error(schema, {"n": True}) == "$.n: True is not of type 'integer'"
    assert len(schema_error({"type": "string"}, ["x" * 10_000]) or "") <= 300
    assert costly(schema)
    assert not costly({"type": "object", "properties": {"a": {"type": "string", "enum": ["b"]}}})
    assert costly({"properties": {"a": {"items": [{"pattern": "^a"}]}}})
