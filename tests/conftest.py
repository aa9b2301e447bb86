"""Fixtures that several suites share."""

from __future__ import annotations

import pytest

from agentrl.learning.models import Policy
from agentrl.rollouts.chat import ChatFormat
from tests.support import make_policy


@pytest.fixture
def policy() -> Policy:
    return make_policy()


@pytest.fixture
def chat(policy: Policy) -> ChatFormat:
    return ChatFormat(policy.tokenizer, policy.stop_ids)
