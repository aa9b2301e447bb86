"""A whole environment in one file:  agentrl train --env examples/echo.py:Echo

The policy must repeat a word. The reward comes from the environment's own steps, so no verifier is needed.
"""

from __future__ import annotations

from agentrl.api import Env, Message, StepResult, Task

WORDS = {"train": "abcdefgh", "validation": "ijkl", "test": "mnop"}


class Echo(Env):
    """Say the word, in one turn."""

    default_reward = {
        "success": {"part": "echo", "at_least": 1.0},
        "parts": [{"name": "echo", "source": "env_reward", "kind": "process", "reduce": "sum", "bound": 1.0}],
    }

    def tasks(self, split: str) -> list[Task]:
        ask = "Say the word {}"
        return [
            Task(id=f"{split}/{word}", messages=(Message(role="user", content=ask.format(word)),), answer=word)
            for word in WORDS[split]
        ]

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, object]]:
        self.answer = task.answer
        return list(task.messages), {}

    def step(self, action: Message) -> StepResult:
        return StepResult(reward=float(self.answer in action.content), terminated=True)
