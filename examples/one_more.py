"""A whole environment in one file: `agentrl train --env examples/one_more.py:OneMore`."""

import re

from agentrl.api import Env, Message, StepResult, Task


class OneMore(Env):
    default_reward = {
        "success": {"part": "right", "at_least": 1.0},
        "parts": [{"name": "right", "source": "env_reward", "kind": "process", "reduce": "sum", "bound": 1.0}],
    }

    def tasks(self, split):
        things = {"train": ("lamp", "chair", "scarf"), "validation": ("clock",), "test": ("basket", "candle")}[split]
        asked = {f"{n} {thing}s and one more make": n + 1 for thing in things for n in range(1, 9)}
        return [Task(id=text, messages=(Message(role="user", content=text),), answer=n) for text, n in asked.items()]

    def reset(self, *, task, seed):
        self.answer = str(task.answer)
        return list(task.messages), {}

    def step(self, action):
        return StepResult(reward=float(re.findall(r"-?\d+", action.content) == [self.answer]), terminated=True)
