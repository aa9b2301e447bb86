"""Which tasks come next: a seeded order per epoch, counted by what was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from agentrl.api import ConfigError, DataError, Group, Task, keyed_seed


class Cursor(Protocol):
    """Hands out the tasks of a run, one step after the other, and can be saved between two of them."""

    def current(self) -> list[Task]: ...
    def advance(self, groups: Sequence[Group] = ()) -> None: ...
    def measures(self) -> dict[str, float]: ...
    def state(self) -> dict[str, Any]: ...
    def load_state(self, state: dict[str, Any]) -> None: ...


def check_count(before: int, now: int) -> None:
    """Refuse to go on with another number of tasks than the checkpoint was written with."""
    if before != now:
        raise DataError(
            f"the split 'train' has {now} tasks, the checkpoint was written with {before}: "
            "the data changed, so the run cannot go on where it was"
        )


class TaskCursor:
    """Hands out `per_step` tasks at a time, every epoch in a new order.

    An epoch's rest that does not fill a step is left out of that epoch, so that no step holds a task twice.
    """

    def __init__(self, tasks: Sequence[Task], per_step: int, seed: int) -> None:
        if per_step > len(tasks):
            raise ConfigError(f"train.tasks_per_step = {per_step} is above the {len(tasks)} tasks of the split 'train'")
        self.tasks, self.per_step, self.seed = tasks, per_step, seed
        self.steps_taken = 0

    def current(self) -> list[Task]:
        """The tasks of the next step; the same until `advance` says that they were trained on."""
        per_epoch = len(self.tasks) // self.per_step
        epoch, place = divmod(self.steps_taken, per_epoch)
        order = np.random.default_rng(keyed_seed(self.seed, "tasks", epoch)).permutation(len(self.tasks))
        return [self.tasks[i] for i in order[place * self.per_step : (place + 1) * self.per_step]]

    def advance(self, groups: Sequence[Group] = ()) -> None:
        """The current tasks were consumed; what came of them changes nothing here."""
        self.steps_taken += 1

    def measures(self) -> dict[str, float]:
        """Nothing for the metrics."""
        return {}

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds, such as `{"steps_taken": 12, "tasks": 400}`."""
        return {"steps_taken": self.steps_taken, "tasks": len(self.tasks)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken; another number of tasks is a `DataError`."""
        check_count(state["tasks"], len(self.tasks))
        self.steps_taken = state["steps_taken"]
