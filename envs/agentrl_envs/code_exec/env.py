"""`code_exec`: write a program, see what running it on the visible examples gave, try again; hidden tests decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from agentrl.api import (
    JSON,
    Demonstration,
    Env,
    Message,
    Services,
    StepResult,
    Task,
    TaskSources,
    extract_program,
)
from agentrl.api import Options as BaseOptions
from agentrl_envs.code_exec.attempts import try_visible, visible_count
from agentrl_envs.code_exec.basic import basic_tasks
from agentrl_envs.code_exec.datasets import humaneval_tasks, mbpp_tasks, own_tasks
from agentrl_envs.code_exec.demonstrations import demonstrations, fenced
from agentrl_envs.code_exec.feedback import NO_PROGRAM

_SOURCES = {"humaneval": humaneval_tasks, "mbpp": mbpp_tasks, "own": own_tasks}


class Options(BaseOptions):
    """Options of `code_exec`; `agentrl env show code_exec` lists them.

    Example: `Options(max_turns=2)`.
    """

    tasks: Literal["basic", "humaneval", "mbpp", "own"] = Field(
        default="basic", description="which tasks; 'own' reads a source with prompt and cases, io or tests"
    )
    source: TaskSources = Field(default=(), description="where the tasks are: needed by own and mbpp")
    source_seed: int = Field(default=0, ge=0, description="draws the rows of a mixture of several sources")
    max_turns: int = Field(default=3, ge=1, description="attempts at one task")
    demonstration_count: int = Field(default=6000, ge=1, description="conversations that `agentrl sft` imitates")
    demonstration_flaw_rate: float = Field(
        default=0.6, ge=0.0, le=1.0, description="share of the attempts in demonstrations that carry one flaw"
    )

    @model_validator(mode="after")
    def _fits_the_tasks(self) -> Options:
        given = self.model_fields_set
        if self.tasks == "basic" and self.source:
            raise ValueError("tasks = 'basic' takes no source; say tasks = 'own', 'mbpp' or 'humaneval'")
        if self.tasks == "own" and not self.source:
            raise ValueError("tasks = 'own' needs a source, such as source=tasks.jsonl")
        if "source_seed" in given and not any(source.weight for source in self.source):
            raise ValueError("source_seed draws mixtures by weight, and no source has a weight")
        for name in ("demonstration_count", "demonstration_flaw_rate"):
            if self.tasks != "basic" and name in given:
                raise ValueError(f"{name} belongs to tasks = 'basic'; those of '{self.tasks}' are its solutions")
        return self


class CodeExec(Env):
    """Write a program, see what running it on the visible part of the tests gave, try again."""

    Options = Options
    needs = frozenset({"sandbox"})
    default_reward: ClassVar[Mapping[str, JSON]] = {
        "success": {"part": "tests", "at_least": 1.0},
        "parts": [{"name": "tests", "verifier": "code_tests", "kind": "outcome", "weight": 1.0}],
    }

    def __init__(self, options: BaseModel, services: Services) -> None:
        super().__init__(options, services)
        assert isinstance(options, Options)
        self._settings = options
        self._tasks: dict[str, list[Task]] = {}
        self._task: Task | None = None
        self._program: str | None = None
        self._attempts = 0

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `train`, `validation` or `test`, read once."""
        options = self._settings
        if options.tasks == "basic":
            return basic_tasks(split)
        if split not in self._tasks:
            self._tasks[split] = _SOURCES[options.tasks](options.source, split, options.source_seed)
        return self._tasks[split]

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, JSON]]:
        """Begin an attempt. Nothing is random here, so `seed` changes nothing."""
        self._task, self._program, self._attempts = task, None, 0
        return list(task.messages), {"examples": visible_count(task.data)}

    async def step(self, action: Message) -> StepResult:
        """Run the attempt on the visible examples; ends when all pass or no attempt is left."""
        assert self._task is not None, "reset comes before step"
        self._attempts += 1
        self._program = extract_program(action.content)
        passed, text = 0, NO_PROGRAM
        if self._program is not None:
            passed, text = await try_visible(self.services.sandbox, self._program, self._task.data)
        examples = visible_count(self._task.data)
        ended = passed == examples or self._attempts >= self._settings.max_turns
        return StepResult(
            observation=() if ended else (Message(role="user", content=text),),
            terminated=ended,
            info={"examples_passed": passed, "examples": examples},
        )

    def evidence(self) -> JSON:
        """The last attempt's program, which the hidden tests judge."""
        return {"program": self._program}

    def gold(self, task: Task) -> Sequence[Message] | None:
        """The reference program as one attempt."""
        return None if task.answer is None else (fenced(str(task.answer)),)

    def demonstrations(self, split: str) -> Iterable[Demonstration]:
        """For `basic`, conversations about fresh functions of the train templates; else the solutions of train."""
        if split != "train":
            return ()
        options = self._settings
        if options.tasks != "basic":
            return self._solutions()
        return demonstrations(
            count=options.demonstration_count, flaw_rate=options.demonstration_flaw_rate, attempts=options.max_turns
        )

    def _solutions(self) -> Iterator[Demonstration]:
        for task in self.tasks("train"):
            if task.answer is not None:
                yield Demonstration(messages=(*task.messages, fenced(str(task.answer))))
