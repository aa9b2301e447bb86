"""Tasks that are always or never solved come less often; the order follows from seed and measurements alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pytest

from agentrl.api import ConfigError, DataError, Group, Reward, Rollout, Scored, Stop, Task
from agentrl.config import Config, CurriculumConfig, Layer, parse
from agentrl.loops.curriculum import CurriculumCursor, make_cursor
from agentrl.loops.cursor import TaskCursor

SIZE = 4


def tasks(count: int) -> list[Task]:
    return [Task(id=f"t/{i}", messages=()) for i in range(count)]


def group(task: Task, outcomes: list[bool | None]) -> Group:
    members = tuple(
        Scored(
            rollout=Rollout(task=task, index=index, seed=0, turns=(), segments=(), stop=Stop.FINISHED, evidence=None),
            verdicts=(),
            reward=Reward(parts=(), success=success),
        )
        for index, success in enumerate(outcomes)
    )
    return Group(task=task, members=members)


def cursor(count: int = 20, per_step: int = 5, seed: int = 0, **settings: object) -> CurriculumCursor:
    config = CurriculumConfig.model_validate({"kind": "pass_rate", "min_rollouts": SIZE, **settings})
    return CurriculumCursor(tasks(count), per_step, seed, config)


Outcome = Callable[[int, int], list[bool | None]]


def by_number(number: int, step: int) -> list[bool | None]:
    """The first five are always solved, the next five never, the rest half the time."""
    return [number < 5 or (number >= 10 and index % 2 == 0) for index in range(SIZE)]


def walk(found: CurriculumCursor, steps: int, outcome: Outcome = by_number) -> list[list[str]]:
    taken = []
    for step in range(steps):
        chosen = found.current()
        assert found.current() == chosen
        assert len({task.id for task in chosen}) == found.per_step
        taken.append([task.id for task in chosen])
        found.advance([group(task, outcome(int(task.id[2:]), step)) for task in chosen])
    return taken


def share_of_settled(taken: list[list[str]]) -> float:
    names = [int(name[2:]) for step in taken for name in step]
    return sum(number < 10 for number in names) / len(names)


def test_settled_tasks_are_dropped() -> None:
    taken = walk(cursor(weight=0.0), 24)
    assert sorted(name for step in taken[:4] for name in step) == sorted(task.id for task in tasks(20))
    assert share_of_settled(taken[4:]) == 0.0


def test_settled_tasks_come_less_often() -> None:
    taken = walk(cursor(weight=0.2), 400)
    # ten of twenty tasks with a fifth of the chance: 2 of 12
    assert 0.12 < share_of_settled(taken[4:]) < 0.22


def test_what_stays_unsettled_comes_as_often_as_the_other_unsettled_ones() -> None:
    counts = Counter(name for step in walk(cursor(weight=0.0), 204) for name in step)
    unsettled = [counts[f"t/{number}"] for number in range(10, 20)]
    assert max(unsettled) - min(unsettled) <= 2


def test_a_task_that_is_no_longer_settled_comes_back() -> None:
    found = cursor(count=6, per_step=3, weight=0.5, memory=0.0)
    walk(found, 2, lambda number, step: [False] * SIZE)
    assert found.measures()["curriculum/never"] == 6
    walk(found, 12, lambda number, step: [True, False] * (SIZE // 2))
    assert found.measures() == {"curriculum/skipped": 0, "curriculum/always": 0, "curriculum/never": 0}


def test_too_few_rollouts_settle_nothing() -> None:
    found = cursor(count=4, per_step=4, min_rollouts=3 * SIZE)
    walk(found, 2, lambda number, step: [True] * SIZE)
    assert found.measures()["curriculum/always"] == 0
    walk(found, 1, lambda number, step: [True] * SIZE)
    assert found.measures()["curriculum/always"] == 4


def test_unjudged_rollouts_are_no_failures() -> None:
    found = cursor(count=4, per_step=4, min_rollouts=2)
    walk(found, 5, lambda number, step: [None] * SIZE)
    assert found.measured == {}
    walk(found, 1, lambda number, step: [True, True, None, None])
    assert found.measures()["curriculum/always"] == 4


def test_a_step_is_full_even_when_everything_is_settled() -> None:
    found = cursor(weight=0.0)
    taken = walk(found, 40, lambda number, step: [True] * SIZE)
    assert all(len(step) == 5 for step in taken)
    assert found.measures()["curriculum/always"] == 20


@pytest.mark.parametrize("done", [0, 1, 3, 7, 18])
def test_a_resumed_run_goes_on_as_it_would_have(done: int) -> None:
    settings = {"weight": 0.3, "count": 17, "per_step": 4, "seed": 5}
    whole = walk(cursor(**settings), 30)  # type: ignore[arg-type]
    first = cursor(**settings)  # type: ignore[arg-type]
    walk(first, done)
    first.current()
    state = json.loads(json.dumps(first.state()))
    resumed = cursor(**settings)  # type: ignore[arg-type]
    resumed.load_state(state)
    assert walk(resumed, 30 - done) == whole[done:]
    assert resumed.measured != {}


def test_the_seed_decides_the_order() -> None:
    assert walk(cursor(seed=1), 10) == walk(cursor(seed=1), 10) != walk(cursor(seed=2), 10)


def test_changed_data_is_refused() -> None:
    found = cursor(count=6, per_step=3)
    walk(found, 2)
    with pytest.raises(DataError, match="has 7 tasks, the checkpoint was written with 6"):
        cursor(count=7, per_step=3).load_state(found.state())
    state = found.state()
    state["measured"]["t/old"] = [4.0, 4.0, 4.0]
    with pytest.raises(DataError, match="measured the task 't/old'"):
        cursor(count=6, per_step=3).load_state(state)


def test_more_tasks_per_step_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.tasks_per_step = 5 is above the 4 tasks"):
        cursor(count=4, per_step=5)


def test_the_configuration_chooses() -> None:
    plain = Config.model_validate({"train": {"tasks_per_step": 2}})
    assert isinstance(make_cursor(plain, tasks(4)), TaskCursor)
    chosen = Config.model_validate({"train": {"tasks_per_step": 2, "curriculum": {"kind": "pass_rate"}}})
    assert isinstance(make_cursor(chosen, tasks(4)), CurriculumCursor)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"weight": 0.5}, "weight does nothing with kind = 'none'"),
        ({"kind": "pass_rate", "never": 0.5, "always": 0.5}, "never must be below always"),
        ({"kind": "pass_rate", "weight": 1.0}, "train.curriculum.weight"),
        ({"kind": "pass_rat"}, "train.curriculum.kind"),
    ],
)
def test_settings_that_do_nothing_are_refused(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse([Layer("test", {"train": {"curriculum": settings}})])
