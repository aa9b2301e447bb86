"""`reasoning_gym`: one question of a dataset, one reply; the library's own scorer decides."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, Field, model_validator

from agentrl.api import JSON, Env, Message, Services, StepResult, Task
from agentrl.api import Options as BaseOptions
from agentrl_envs.reasoning_gym.entries import APART, MISSING, draw_tasks

Size = Annotated[int, Field(ge=1, lt=APART)]


class Options(BaseOptions):
    """Options of `reasoning_gym`; `agentrl env show reasoning_gym` lists them.

    Example: `Options(dataset="chain_sum", config={"max_terms": 3})`.
    """

    dataset: str = Field(default="chain_sum", description="a dataset's name in the library; composite mixes several")
    config: dict[str, Any] = Field(default={}, description="the dataset's own settings; seed and size are set here")
    seed: int = Field(default=0, ge=0, description="other seeds draw other tasks; splits never share a question")
    train_size: Size = Field(default=500, description="entries drawn for train")
    validation_size: Size = Field(default=50, description="entries drawn for validation")
    test_size: Size = Field(default=100, description="entries drawn for test")
    instruction: str = Field(
        default="Write the answer between <answer> and </answer>.", description="what follows the question"
    )

    @model_validator(mode="after")
    def _possible(self) -> Options:
        if importlib.util.find_spec("reasoning_gym") is None:
            raise ValueError(MISSING)
        taken = sorted({"seed", "size"} & set(self.config))
        if taken:
            raise ValueError(f"config.{taken[0]} is set by the environment: use env.options.seed and the sizes")
        return self


class ReasoningGym(Env):
    """The environment. `Task.data` holds what the entry was drawn from (`dataset`, `config`, `seed`, `index`) and it.

    `entry` is JSON in which `{"!tuple": [...]}` is a tuple and `{"!dict": [[key, value], ...]}` a mapping whose keys
    are no text.
    """

    Options = Options
    default_reward: ClassVar[Mapping[str, JSON]] = {
        "success": {"part": "answer", "at_least": 1.0},
        "parts": [{"name": "answer", "verifier": "reasoning_gym", "kind": "outcome", "weight": 1.0}],
    }

    def __init__(self, options: BaseModel, services: Services) -> None:
        super().__init__(options, services)
        assert isinstance(options, Options)
        self._settings = options

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `train`, `validation` or `test`. Raises DataError for an unknown dataset or setting."""
        options = self._settings
        sizes = {"train": options.train_size, "validation": options.validation_size, "test": options.test_size}
        return draw_tasks(options.dataset, options.config, options.seed, sizes, options.instruction, split)

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, JSON]]:
        """Ask the question. Nothing is random here, so `seed` changes nothing."""
        return list(task.messages), {}

    def step(self, action: Message) -> StepResult:
        """One reply is all there is."""
        return StepResult(terminated=True)

    def gold(self, task: Task) -> Sequence[Message] | None:
        """The entry's answer in its tag; None where the library knows none."""
        if task.answer is None:
            return None
        return (Message(role="assistant", content=f"<answer>{task.answer}</answer>"),)
