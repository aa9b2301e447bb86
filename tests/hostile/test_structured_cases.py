"""Tool calls and JSON that parsers get wrong, with the right verdict, every line through its verifier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agentrl_verifiers.json_schema import JSONSchema
from agentrl_verifiers.tool_calls import ToolCalls

from agentrl.api import Services, Verdict, Verifier
from tests.support_answers import judge_rollouts, reply_to

PLUGINS: dict[str, type[Verifier]] = {"toolcall": ToolCalls, "json": JSONSchema}
LINES = {
    name: [json.loads(line) for line in Path(__file__).with_name(f"{name}_cases.jsonl").read_text().splitlines()]
    for name in PLUGINS
}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    found = {}
    for name, plugin in PLUGINS.items():
        judged = judge_rollouts(plugin, [reply_to(line["task"], line["response"]) for line in LINES[name]])
        found.update(zip((line["id"] for line in LINES[name]), judged, strict=True))
    return found


@pytest.mark.parametrize("line", [x for lines in LINES.values() for x in lines], ids=lambda line: line["id"])
def test_case(line: dict[str, Any], verdicts: dict[str, Verdict]) -> None:
    verdict = verdicts[line["id"]]
    assert verdict.passed is line["right"]["passed"], f"{verdict.reason}: {verdict.detail} ({line['why']})"
    assert verdict.score == float(line["right"]["passed"])
    if not verdict.passed:
        expected = {"malformed", "unclosed", "unknown_tool", "schema", "forged"} & set(line["right"]["reasons"])
        if expected and line["id"].startswith("tc"):
            assert verdict.reason == "invalid_tool_call"
        assert verdict.detail


@pytest.mark.parametrize("name", PLUGINS)
def test_every_task_is_taken(name: str) -> None:
    verifier = PLUGINS[name](PLUGINS[name].Options(), Services())
    for line in LINES[name]:
        verifier.check_task(reply_to(line["task"], "").task)
