"""The contract, and that digging everywhere does not pay."""

from __future__ import annotations

import agentrl


def test_the_contract() -> None:
    findings = agentrl.check_env("agentrl_treasure.env:Treasure")
    assert [finding for finding in findings if finding.right is False] == []
    assert {finding.name: finding.detail for finding in findings}["tools have schemas"] == "walk, dig"
