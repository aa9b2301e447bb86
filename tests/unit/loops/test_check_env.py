"""`env check` passes what is sound and names what is not."""

from __future__ import annotations

import pytest

from agentrl.config import Layer
from agentrl.loops.check_env import Finding, check_env
from agentrl.loops.resolve import resolve


def findings(name: str) -> dict[str, Finding]:
    resolved = resolve([Layer("test", {"env": {"name": f"tests.faulty_envs:{name}"}})])
    return {finding.name: finding for finding in check_env(resolved, 12)}


def test_a_sound_environment_passes() -> None:
    found = findings("Sound")
    assert [f.name for f in found.values() if f.right is False] == []
    assert found["gold succeeds"].detail == "6 of 6 tasks, reward 1 to 1"
    assert found["tools have schemas"].right is None


@pytest.mark.parametrize(
    ("name", "check", "said"),
    [
        ("WrongGold", "gold succeeds", "6 of 6 fail"),
        ("Moody", "same seed, same observations", "reset gave other messages"),
        ("Forgetful", "rollouts do not disturb each other", "another "),
        ("Parrot", "what is no attempt fails", "an echo succeeds"),
        ("Fragile", "odd messages are no bugs", "surrogates not allowed"),
        ("Leaky", "tasks", "stands in train"),
        ("OneName", "tasks", "two tasks share an id"),
        ("Shuffled", "tasks", "another instance gives other tasks"),
        ("Pairs", "gold succeeds", "must return a StepResult, not tuple"),
        ("Unspoken", "tools have schemas", "'look' has no description"),
    ],
)
def test_a_fault_is_named(name: str, check: str, said: str) -> None:
    finding = findings(name)[check]
    assert finding.right is False
    assert said in finding.detail
