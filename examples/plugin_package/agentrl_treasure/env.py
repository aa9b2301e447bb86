"""A walker on a small map, moved by tools."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from agentrl.api import Env, Message, Task, ToolCall, tool
from agentrl.api import Options as BaseOptions

STEPS = {"north": (0, 1), "south": (0, -1), "east": (1, 0), "west": (-1, 0)}


class Options(BaseOptions):
    """Options of `treasure`."""

    width: int = Field(4, ge=2, description="fields in each direction")


class Treasure(Env):
    """Walk to the treasure and dig there. The world is a state: what a tool did stays done."""

    Options = Options
    default_reward = {
        "success": {"part": "found", "at_least": 1.0},
        "parts": [{"name": "found", "verifier": "agentrl_treasure.verifier:Found", "kind": "outcome", "weight": 1.0}],
    }

    def tasks(self, split: str) -> list[Task]:
        """One task for each place that is not the start; every fourth is for validation, every fourth for test."""
        places = [(x, y) for x in range(self.options.width) for y in range(self.options.width) if (x, y) != (0, 0)]
        remainder = {"train": (0, 1), "validation": (2,), "test": (3,)}[split]
        return [
            Task(
                id=f"{x}-{y}",
                messages=(
                    Message(role="user", content=f"The treasure lies {x} east and {y} north of you. Dig it out."),
                ),
                data={"place": [x, y]},
            )
            for number, (x, y) in enumerate(places)
            if number % 4 in remainder
        ]

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, object]]:
        self.x, self.y = 0, 0
        self.dug: list[list[int]] = []
        return list(task.messages), {}

    @tool
    def walk(self, direction: Literal["north", "south", "east", "west"], steps: int = 1) -> str:
        """Walk over the map.

        steps: how far
        """
        dx, dy = STEPS[direction]
        x, y = self.x + dx * steps, self.y + dy * steps
        if not (0 <= x < self.options.width and 0 <= y < self.options.width):
            raise ValueError("that is off the map")
        self.x, self.y = x, y
        return f"at {x} east, {y} north"

    @tool
    def dig(self) -> str:
        """Dig where you stand."""
        self.dug.append([self.x, self.y])
        return "dug"

    def evidence(self) -> dict[str, object]:
        """Where it was dug, which the verifier compares with the task."""
        return {"dug": self.dug}

    def gold(self, task: Task) -> list[Message]:
        x, y = task.data["place"]
        calls = [("walk", {"direction": "east", "steps": x})] if x else []
        calls += [("walk", {"direction": "north", "steps": y})] if y else []
        calls += [("dig", {})]
        said = [
            Message(role="assistant", content="", tool_calls=(ToolCall(id="", name=name, arguments=arguments),))
            for name, arguments in calls
        ]
        return [*said, Message(role="assistant", content="Done.")]
