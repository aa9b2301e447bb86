"""`tool_use`: carry out a request with tools over a small world; the state that is left, and an answer, decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from agentrl.api import JSON, Demonstration, Env, Message, Services, Task, TaskSources, tool
from agentrl.api import Options as BaseOptions
from agentrl_envs.tool_use.demonstrations import demonstrations, messages_of
from agentrl_envs.tool_use.own import own_tasks
from agentrl_envs.tool_use.requests import Request
from agentrl_envs.tool_use.tasks import drawn_tasks
from agentrl_envs.tool_use.world import World

_DRAWN = ("most_calls", "demonstration_count", "demonstration_flaw_rate")
_CALENDAR = frozenset({"day", "book", "drop"})


class Options(BaseOptions):
    """Options of `tool_use`; `agentrl env show tool_use` lists them.

    Example: `Options(domains=("calendar",), most_calls=2)`.
    """

    domains: tuple[Literal["shop", "calendar"], ...] = Field(
        default=("shop", "calendar"), min_length=1, description="what requests are about, and whose tools there are"
    )
    most_calls: int = Field(default=4, ge=1, le=4, description="tasks whose plan has at most this many calls")
    source: TaskSources = Field(
        default=(), description="own tasks (request, world, plan or expected, answer); none takes drawn ones"
    )
    source_seed: int = Field(default=0, ge=0, description="draws the rows of a mixture of several sources")
    demonstration_count: int = Field(default=6000, ge=1, description="conversations that `agentrl sft` imitates")
    demonstration_flaw_rate: float = Field(
        default=0.5, ge=0.0, le=1.0, description="share of the demonstrations that carry one flaw"
    )

    @model_validator(mode="after")
    def _one_kind_of_task(self) -> Options:
        given = [name for name in _DRAWN if name in self.model_fields_set]
        if self.source and given:
            raise ValueError(f"{given[0]} belongs to the drawn tasks, and a source is given")
        if "source_seed" in self.model_fields_set and not any(source.weight for source in self.source):
            raise ValueError("source_seed draws mixtures by weight, and no source has a weight")
        return self


class ToolUse(Env):
    """The environment. `Task.data` holds the rows at the `start` and those `expected` in the end, by table."""

    Options = Options
    default_reward: ClassVar[Mapping[str, JSON]] = {
        "success": {"part": "state", "at_least": 1.0},
        "parts": [
            {"name": "state", "verifier": "final_state", "kind": "outcome", "weight": 1.0},
            {
                "name": "calls",
                "verifier": "process",
                "kind": "process",
                "weight": 0.1,
                "reduce": "sum",
                "bound": 1.0,
            },
            {"name": "efficiency", "verifier": "efficiency", "kind": "outcome", "weight": 0.1},
        ],
    }

    def __init__(self, options: BaseModel, services: Services) -> None:
        super().__init__(options, services)
        assert isinstance(options, Options)
        self._settings = options
        self._world: World | None = None
        self._own: dict[str, tuple[Task, ...]] = {}
        self.tools = tuple(
            one for one in type(self).tools if ("calendar" if one.name in _CALENDAR else "shop") in options.domains
        )

    def tasks(self, split: str) -> Sequence[Task]:
        """The tasks of `train`, `validation` or `test`: those of `source`, else drawn ones."""
        options = self._settings
        if not options.source:
            return drawn_tasks(split, options.domains, options.most_calls)
        if split not in self._own:
            self._own[split] = own_tasks(options.source, split, options.source_seed)
        return self._own[split]

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, JSON]]:
        """Build the task's world. Nothing is random here, so `seed` changes nothing."""
        self.close()
        self._world = World(task.data["start"])
        return list(task.messages), {}

    @tool
    def item(self, name: str) -> str:
        """Price and stock."""
        return self._there.item(name)

    @tool
    def orders(self, customer: str) -> str:
        """Orders of a customer."""
        return self._there.orders(customer)

    @tool
    def order(self, customer: str, item: str, count: int) -> str:
        """Make an order."""
        return self._there.order(customer, item, count)

    @tool
    def cancel(self, order: int) -> str:
        """Cancel an order by its number."""
        return self._there.cancel(order)

    @tool
    def ship(self, order: int) -> str:
        """Ship an order by its number."""
        return self._there.ship(order)

    @tool
    def restock(self, item: str, count: int) -> str:
        """Add to the stock."""
        return self._there.restock(item, count)

    @tool
    def day(self, day: str) -> str:
        """Hours of a day (mon to fri)."""
        return self._there.day(day)

    @tool
    def book(self, day: str, hour: int, name: str) -> str:
        """Book a free hour."""
        return self._there.book(day, hour, name)

    @tool
    def drop(self, day: str, hour: int) -> str:
        """Free a booked hour."""
        return self._there.drop(day, hour)

    @property
    def _there(self) -> World:
        assert self._world is not None, "reset comes before a tool"
        return self._world

    def snapshot(self) -> object:
        """The whole database as bytes."""
        return self._there.snapshot()

    def restore(self, state: object) -> None:
        """Put the database back."""
        assert isinstance(state, bytes)
        self._there.restore(state)

    def evidence(self) -> JSON:
        """The rows that are left, by table."""
        return {"state": self._there.state()}

    def close(self) -> None:
        """Free the database."""
        if self._world is not None:
            self._world.close()
            self._world = None

    def gold(self, task: Task) -> Sequence[Message] | None:
        """The task's plan, one call a message, and its answer; None for a task without a plan."""
        if "plan" not in task.data:
            return None
        return tuple(one for one in _shown(task) if one.role == "assistant")

    def demonstrations(self, split: str) -> Iterable[Demonstration]:
        """Conversations about fresh requests, or the plans of the source; only train is for imitation."""
        if split != "train":
            return ()
        options = self._settings
        if options.source:
            known = [task for task in self.tasks("train") if "plan" in task.data]
            tools = tuple(self.tools)
            return [Demonstration(messages=(*task.messages, *_shown(task)), tools=tools) for task in known]
        return demonstrations(
            domains=options.domains,
            most_calls=options.most_calls,
            count=options.demonstration_count,
            flaw_rate=options.demonstration_flaw_rate,
            tools=tuple(self.tools),
        )


def _shown(task: Task) -> tuple[Message, ...]:
    """The task's plan, one call a message, with what each gives, and its answer."""
    plan = tuple((call["name"], call["arguments"]) for call in task.data["plan"])
    request = Request(text="", plan=plan, answer=task.answer)
    return tuple(messages_of(task.data["start"], request))
