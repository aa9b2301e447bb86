"""`code_exec`: write a program, see what running it on the visible examples gave, try again; hidden tests decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from pydantic import BaseModel, Field

from agentrl.api import (
    JSON,
    Call,
    Demonstration,
    Env,
    Limits,
    Message,
    SandboxUnavailable,
    Services,
    StepResult,
    Task,
    extract_program,
)
from agentrl.api import Options as BaseOptions
from agentrl_envs.code_exec.basic import basic_tasks
from agentrl_envs.code_exec.demonstrations import demonstrations, fenced
from agentrl_envs.code_exec.feedback import NO_PROGRAM, examples_passed, observe

_LIMITS = Limits(cpu_seconds=2.0, seconds=8.0, memory_mb=256)


class Options(BaseOptions):
    """Options of `code_exec`; `agentrl env show code_exec` lists them.

    Example: `Options(max_turns=2)`.
    """

    max_turns: int = Field(default=3, ge=1, description="attempts at one task")
    demonstration_count: int = Field(default=6000, ge=1, description="conversations that `agentrl sft` imitates")
    demonstration_flaw_rate: float = Field(
        default=0.6, ge=0.0, le=1.0, description="share of the attempts in demonstrations that carry one flaw"
    )


class CodeExec(Env):
    """The environment. `Task.data` holds `entry_point`, visible `examples` and hidden `cases`."""

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
        self._task: Task | None = None
        self._program: str | None = None
        self._attempts = 0

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `train`, `validation` or `test`."""
        return basic_tasks(split)

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, JSON]]:
        """Begin an attempt. Nothing is random here, so `seed` changes nothing."""
        self._task, self._program, self._attempts = task, None, 0
        return list(task.messages), {"examples": len(task.data["examples"])}

    async def step(self, action: Message) -> StepResult:
        """Run the attempt on the visible examples; ends when all pass or no attempt is left."""
        assert self._task is not None, "reset comes before step"
        examples = self._task.data["examples"]
        self._attempts += 1
        self._program = extract_program(action.content)
        passed, text = 0, NO_PROGRAM
        if self._program is not None:
            passed, text = await self._try(self._program, examples)
        ended = passed == len(examples) or self._attempts >= self._settings.max_turns
        return StepResult(
            observation=() if ended else (Message(role="user", content=text),),
            terminated=ended,
            info={"examples_passed": passed, "examples": len(examples)},
        )

    async def _try(self, program: str, examples: Sequence[Mapping[str, JSON]]) -> tuple[int, str]:
        assert self._task is not None
        entry_point = str(self._task.data["entry_point"])
        calls = [Call(function=entry_point, args=example["args"]) for example in examples]
        execution = await self.services.sandbox.run_calls(program, calls, limits=_LIMITS)
        if execution.load.cause == "ours":
            raise SandboxUnavailable(f"the sandbox failed on the visible examples: {execution.load.detail}")
        return examples_passed(examples, execution), observe(entry_point, examples, execution)

    def evidence(self) -> JSON:
        """The last attempt's program, which the hidden tests judge."""
        return {"program": self._program}

    def gold(self, task: Task) -> Sequence[Message] | None:
        """The reference program as one attempt."""
        return None if task.answer is None else (fenced(str(task.answer)),)

    def demonstrations(self, split: str) -> Iterable[Demonstration]:
        """Conversations about fresh functions of the train templates; other splits are not for imitation."""
        if split != "train":
            return ()
        options = self._settings
        return demonstrations(
            count=options.demonstration_count, flaw_rate=options.demonstration_flaw_rate, attempts=options.max_turns
        )
