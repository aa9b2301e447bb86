"""Environments with one fault each, and one without, for `env check` and `audit` to tell apart."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from agentrl.api import Env, Message, Options, StepResult, Task, tool


class Sound(Env):
    """Say the word that the task's letter stands for."""

    WORDS: ClassVar[dict[str, str]] = {
        "a": "apple",
        "b": "birch",
        "c": "cedar",
        "d": "daisy",
        "e": "elder",
        "f": "fern",
    }
    default_reward: ClassVar[dict[str, Any]] = {
        "success": {"part": "right", "at_least": 1.0},
        "parts": [{"name": "right", "source": "env_reward", "kind": "process", "reduce": "sum", "bound": 2.0}],
    }

    def tasks(self, split: str) -> list[Task]:
        letters = {"train": "abcd", "validation": "e", "test": "f"}[split]
        return [
            Task(id=letter, messages=(Message(role="user", content=f"What grows under {letter}?"),), answer=word)
            for letter, word in self.WORDS.items()
            if letter in letters
        ]

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
        self.answer = str(task.answer)
        return list(task.messages), {}

    def worth(self, text: str) -> float:
        return float(text.strip() == self.answer)

    def step(self, action: Message) -> StepResult:
        return StepResult(reward=self.worth(action.content), terminated=True)

    def gold(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=str(task.answer))]


class WrongGold(Sound):
    def gold(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=str(task.answer).upper())]


class Moody(Sound):
    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
        super().reset(task=task, seed=seed)
        return [Message(role="user", content=f"{task.messages[0].content} {random.random()}")], {}


class Forgetful(Sound):
    """Keeps what belongs to a rollout on the class."""

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
        type(self).shared = str(task.answer)  # type: ignore[attr-defined]
        return list(task.messages), {}

    async def step(self, action: Message) -> StepResult:  # type: ignore[override]
        return StepResult(
            reward=float(action.content == self.shared),  # type: ignore[attr-defined]
            terminated=True,
            info={"wanted": self.shared},  # type: ignore[attr-defined]
        )


class Parrot(Sound):
    def worth(self, text: str) -> float:
        return float(self.answer in text or "grows" in text)


class Fragile(Sound):
    def worth(self, text: str) -> float:
        return float(text.encode().decode() == self.answer)  # half a surrogate pair cannot be encoded


class Leaky(Sound):
    def tasks(self, split: str) -> list[Task]:
        return super().tasks("train")


class OneName(Sound):
    def tasks(self, split: str) -> list[Task]:
        return [Task(id="task", messages=task.messages, answer=task.answer) for task in super().tasks(split)]


class Shuffled(Sound):
    def tasks(self, split: str) -> list[Task]:
        found = super().tasks(split)
        return random.sample(found, len(found))


class Pairs(Sound):
    def step(self, action: Message) -> StepResult:
        return ("observation", 1.0)  # type: ignore[return-value]


class Unspoken(Sound):
    """Tools without a word of description."""

    @tool
    def look(self) -> str:
        return "nothing"


# What pays although nothing was solved.


class PaysForForm(Sound):
    """A box earns half, whatever is in it; a wrong attempt has none."""

    def worth(self, text: str) -> float:
        return 0.5 * ("\\boxed{" in text) + super().worth(text)


class PaysForAnything(Sound):
    WORDS: ClassVar[dict[str, str]] = {"a": "A", "b": "B", "c": "C", "d": "D", "e": "E", "f": "A B"}

    def worth(self, text: str) -> float:
        return float(self.answer in text)


class PaysForSilence(Sound):
    """Every character costs: saying nothing is the best of all wrong answers."""

    def worth(self, text: str) -> float:
        return super().worth(text) - 0.01 * len(text)


class PaysPerCall(Env):
    """Each valid call earns, without end."""

    Options = Options
    default_reward: ClassVar[dict[str, Any]] = {
        "success": {"part": "done", "at_least": 100.0},
        "parts": [{"name": "done", "source": "env_reward", "kind": "process", "reduce": "sum", "bound": 100.0}],
    }

    def tasks(self, split: str) -> list[Task]:
        return [Task(id=f"{split}/{n}", messages=(Message(role="user", content=f"{split} {n}"),)) for n in range(3)]

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
        return list(task.messages), {}

    @tool
    def poke(self, where: str) -> str:
        """Poke something."""
        return "poked"

    async def step(self, action: Message) -> StepResult:  # type: ignore[override]
        if not action.tool_calls:
            return StepResult(terminated=True)
        result = await self.call_tools(action)
        return StepResult(observation=result.observation, reward=float(len(action.tool_calls)), info=result.info)
