"""`math_answer`: a question, an answer, and a Python tool for those who want one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from agentrl.api import (
    JSON,
    Demonstration,
    Env,
    Execution,
    Limits,
    Message,
    SandboxUnavailable,
    Services,
    StepResult,
    Task,
    TaskSources,
    ToolCall,
    tool,
)
from agentrl.api import Options as BaseOptions
from agentrl_envs.math_answer.arithmetic import (
    Problem,
    arithmetic_tasks,
    draw_problems,
    request,
    response,
    working,
)
from agentrl_envs.math_answer.own import MARK, own_tasks

_LIMITS = Limits(cpu_seconds=4.0, seconds=12.0, memory_mb=256)
_SHOWN = 2000
_ARITHMETIC = ("digits", "operations", "steps", "demonstration_count", "demonstration_flaw_rate")


class Options(BaseOptions):
    """Options of `math_answer`; `agentrl env show math_answer` lists them.

    Example: `Options(source="gsm8k/train.jsonl")` or `Options(digits=3, operations=("+", "*"))`.
    """

    source: TaskSources = Field((), description="own tasks (fields question, answer); none takes embedded arithmetic")
    source_seed: int = Field(0, ge=0, description="draws the rows of a mixture of several sources")
    tools: tuple[Literal["python"], ...] = Field((), description="[python] lets the policy run programs")
    digits: int = Field(2, ge=1, le=6, description="arithmetic: most digits of a number")
    operations: tuple[Literal["+", "-", "*"], ...] = Field(("+", "-"), min_length=1, description="arithmetic: of these")
    steps: int = Field(1, ge=1, le=6, description="arithmetic: most operations of a problem")
    demonstration_count: int = Field(12000, ge=1, description="arithmetic: solutions that `agentrl sft` imitates")
    demonstration_flaw_rate: float = Field(
        0.5, ge=0.0, le=1.0, description="arithmetic: share of those solutions in which one operation goes wrong"
    )

    @model_validator(mode="after")
    def _one_kind_of_task(self) -> Options:
        given = [name for name in _ARITHMETIC if name in self.model_fields_set]
        if self.source and given:
            raise ValueError(f"{given[0]} belongs to the embedded arithmetic, and a source is given")
        if "source_seed" in self.model_fields_set and not any(source.weight for source in self.source):
            raise ValueError("source_seed draws mixtures by weight, and no source has a weight")
        return self


class MathAnswer(Env):
    """A question with one right answer: the user's own (`source`, GSM8K's form included) or embedded arithmetic."""

    Options = Options
    needs = frozenset({"sandbox"})
    default_reward: ClassVar[Mapping[str, JSON]] = {
        "success": {"part": "answer", "at_least": 1.0},
        "parts": [
            {
                "name": "answer",
                "verifier": "math_answer",
                "kind": "outcome",
                "weight": 1.0,
                "options": {"worked_out": True},
            }
        ],
    }

    @classmethod
    def needs_for(cls, options: BaseModel) -> frozenset[str]:
        """The sandbox, when the Python tool is on."""
        assert isinstance(options, Options)
        return cls.needs if options.tools else frozenset()

    def __init__(self, options: BaseModel, services: Services) -> None:
        super().__init__(options, services)
        assert isinstance(options, Options)
        self._settings = options
        self._tasks: dict[str, list[Task]] = {}
        if not options.tools:
            self.tools = ()

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `train`, `validation` or `test`, read or drawn once."""
        options = self._settings
        if split not in self._tasks:
            self._tasks[split] = (
                own_tasks(options.source, split, options.source_seed)
                if options.source
                else arithmetic_tasks(split, digits=options.digits, operations=options.operations, steps=options.steps)
            )
        return self._tasks[split]

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, JSON]]:
        """Begin an attempt. Nothing is random here, so `seed` changes nothing."""
        return list(task.messages), {}

    async def step(self, action: Message) -> StepResult:
        """Carry out calls of the tool; a message without one is the answer."""
        if self.tools and action.tool_calls:
            return await self.call_tools(action)
        return StepResult(terminated=True)

    @tool(timeout=30.0, max_characters=_SHOWN)  # type: ignore[untyped-decorator]
    async def python(self, code: str) -> str:
        """Run a Python program and see what it prints.

        code: the program
        """
        return printed(await self.services.sandbox.run(code, limits=_LIMITS))

    def gold(self, task: Task) -> Sequence[Message] | None:
        """The answer alone."""
        return (Message(role="assistant", content=f"{MARK} {task.answer}"),)

    def demonstrations(self, split: str) -> Iterable[Demonstration]:
        """Solutions of train questions: the source's own, or drawn ones of which a share goes wrong."""
        if split != "train":
            return ()
        return self._from_source() if self._settings.source else self._drawn()

    def _from_source(self) -> Iterator[Demonstration]:
        for task in self.tasks("train"):
            solution = str(task.data.get("solution", f"{MARK} {task.answer}"))
            yield Demonstration(messages=(*task.messages, Message(role="assistant", content=solution)))

    def _drawn(self) -> Iterator[Demonstration]:
        options = self._settings
        drawn = draw_problems(
            "train", "demonstrations", digits=options.digits, operations=options.operations, steps=options.steps
        )
        for problem, random_ in islice(drawn, options.demonstration_count):
            lines = working(problem, random_ if random_.random() < options.demonstration_flaw_rate else None)
            asked = Message(role="user", content=request(problem))
            if options.tools:
                yield Demonstration(messages=(asked, *_with_tool(problem, lines[-1].result)), tools=tuple(self.tools))
            else:
                yield Demonstration(messages=(asked, Message(role="assistant", content=response(lines))))


def _with_tool(problem: Problem, answer: int) -> Iterator[Message]:
    """The tool computes, and the answer may be copied wrongly."""
    call = ToolCall(id="", name="python", arguments={"code": f"print({problem.text})"})
    yield Message(role="assistant", content="", tool_calls=(call,))
    yield Message(role="tool", content=f"{working(problem)[-1].result}\n", tool_call_id=call.id)
    yield Message(role="assistant", content=f"{MARK} {answer}")


def printed(execution: Execution) -> str:
    """What the policy is told of a run: its output, and the last line of its error or why it was ended."""
    if execution.cause == "ours":
        raise SandboxUnavailable(f"the sandbox failed on a program of the tool: {execution.detail}")
    said = execution.stdout
    if execution.reason != "ok":
        last = execution.stderr.strip().splitlines()[-1:]
        said += "\n".join([*last, f"[{execution.reason}]"])
    return said or "[nothing was printed]"
