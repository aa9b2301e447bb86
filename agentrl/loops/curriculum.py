"""A task order that spends little on tasks which every attempt solves, or none does: equal rewards teach nothing.

Every epoch walks through all tasks in a seeded order of its own. A task whose measured pass rate says that it is always
or never solved is taken with a small chance, or not at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentrl.api import ConfigError, DataError, Group, Task, keyed_seed
from agentrl.config import Config, CurriculumConfig
from agentrl.loops.cursor import Cursor, TaskCursor, check_count


@dataclass(frozen=True, slots=True)
class _Draw:
    """The tasks of a step, where the next one begins, and how many were passed over."""

    chosen: tuple[int, ...]
    epoch: int
    place: int
    skipped: int


def make_cursor(config: Config, tasks: Sequence[Task]) -> Cursor:
    """The cursor that `train.curriculum` asks for."""
    train = config.train
    if train.curriculum.kind == "none":
        return TaskCursor(tasks, train.tasks_per_step, config.seed)
    return CurriculumCursor(tasks, train.tasks_per_step, config.seed, train.curriculum)


class CurriculumCursor:
    """Hands out `per_step` tasks at a time by their measured pass rates.

    Every attempt counts; at each new measurement of a task its earlier ones count `memory` times what they did. Which
    tasks come is decided by the seed and the measurements alone, so that a resumed run goes on bit for bit. A step is
    always full and holds no task twice: where too few tasks are left, those passed over are taken.
    """

    def __init__(self, tasks: Sequence[Task], per_step: int, seed: int, config: CurriculumConfig) -> None:
        if per_step > len(tasks):
            raise ConfigError(f"train.tasks_per_step = {per_step} is above the {len(tasks)} tasks of the split 'train'")
        self.tasks, self.per_step, self.seed, self.config = tasks, per_step, seed, config
        self.epoch = self.place = self.steps_taken = 0
        self.measured: dict[str, list[float]] = {}
        """By task: rollouts so far; rollouts and successes as they count now."""
        self._drawn: _Draw | None = None

    def current(self) -> list[Task]:
        """The tasks of the next step; the same until `advance` says that they were trained on."""
        return [self.tasks[i] for i in self._draw().chosen]

    def advance(self, groups: Sequence[Group] = ()) -> None:
        """The current tasks were consumed; `groups` are their rollouts, of which those that were judged count."""
        draw = self._draw()
        for group in groups:
            judged = [member.reward.success for member in group.members if member.reward.success is not None]
            if judged:
                before, memory = self.measured.get(group.task.id, [0.0, 0.0, 0.0]), self.config.memory
                self.measured[group.task.id] = [
                    before[0] + len(judged),
                    before[1] * memory + len(judged),
                    before[2] * memory + sum(judged),
                ]
        self.epoch, self.place = draw.epoch, draw.place
        self.steps_taken += 1
        self._drawn = None

    def measures(self) -> dict[str, float]:
        """For the metrics of the current step: tasks passed over, and tasks known to be always or never solved."""
        kinds = [self._kind(name) for name in self.measured]
        return {
            "curriculum/skipped": float(self._draw().skipped),
            "curriculum/always": float(kinds.count("always")),
            "curriculum/never": float(kinds.count("never")),
        }

    def state(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {
            "steps_taken": self.steps_taken,
            "tasks": len(self.tasks),
            "epoch": self.epoch,
            "place": self.place,
            "measured": {name: list(counts) for name, counts in self.measured.items()},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken. Raises DataError when the tasks are others."""
        check_count(state["tasks"], len(self.tasks))
        unknown = sorted(set(state["measured"]) - {task.id for task in self.tasks})
        if unknown:
            raise DataError(
                f"the checkpoint measured the task '{unknown[0]}', which the split 'train' does not have: the data "
                "changed, so the run cannot go on where it was"
            )
        self.steps_taken, self.epoch, self.place = state["steps_taken"], state["epoch"], state["place"]
        self.measured = {name: list(counts) for name, counts in state["measured"].items()}
        self._drawn = None

    def _draw(self) -> _Draw:
        if self._drawn is None:
            self._drawn = self._walk()
        return self._drawn

    def _walk(self) -> _Draw:
        """Go on from where the last step ended, once round at most."""
        chosen: list[int] = []
        skipped: list[int] = []
        epoch, place = self.epoch, self.place
        order = self._order(epoch)
        for _ in range(2 * len(self.tasks)):  # the rest of this epoch, and the next
            if len(chosen) == self.per_step:
                break
            if place == len(order):
                epoch, place = epoch + 1, 0
                order = self._order(epoch)
            number = order[place]
            place += 1
            if number not in chosen:
                (chosen if self._taken(self.tasks[number].id, epoch) else skipped).append(number)
        rest = [number for number in dict.fromkeys(skipped) if number not in chosen]
        chosen += rest[: self.per_step - len(chosen)]
        return _Draw(tuple(chosen), epoch, place, len(skipped))

    def _order(self, epoch: int) -> list[int]:
        random = np.random.default_rng(keyed_seed(self.seed, "tasks", epoch))
        return [int(number) for number in random.permutation(len(self.tasks))]

    def _taken(self, name: str, epoch: int) -> bool:
        if self._kind(name) is None:
            return True
        return keyed_seed(self.seed, "curriculum", epoch, name) / 2**63 < self.config.weight

    def _kind(self, name: str) -> str | None:
        """`always` or `never` for a task that was measured often enough, else None."""
        total, rollouts, successes = self.measured.get(name, (0.0, 1.0, 0.0))
        if total < self.config.min_rollouts:
            return None
        rate = successes / rollouts
        if rate >= self.config.always:
            return "always"
        return "never" if rate <= self.config.never else None
