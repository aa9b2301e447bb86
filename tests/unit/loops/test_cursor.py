"""Which tasks come next: every task once per epoch, in an order that the seed and the count alone decide."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentrl.api import ConfigError, DataError, Task
from agentrl.loops.cursor import TaskCursor


def tasks(count: int) -> list[Task]:
    return [Task(id=f"t/{i}", messages=()) for i in range(count)]


def steps(cursor: TaskCursor, count: int) -> list[list[str]]:
    taken = []
    for _ in range(count):
        taken.append([task.id for task in cursor.current()])
        cursor.advance()
    return taken


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 1000))
def test_an_epoch_holds_no_task_twice(count: int, per_step: int, seed: int) -> None:
    if per_step > count:
        return
    cursor = TaskCursor(tasks(count), per_step, seed)
    per_epoch = count // per_step
    for _ in range(3):
        epoch = [name for step in steps(cursor, per_epoch) for name in step]
        assert len(epoch) == len(set(epoch)) == per_epoch * per_step
        assert set(epoch) <= {task.id for task in tasks(count)}


def test_every_task_comes_once_when_steps_fill_the_epoch() -> None:
    cursor = TaskCursor(tasks(12), 4, seed=0)
    for _ in range(3):
        assert sorted(name for step in steps(cursor, 3) for name in step) == sorted(t.id for t in tasks(12))


def test_the_rest_of_an_epoch_is_another_one_each_time() -> None:
    cursor = TaskCursor(tasks(7), 3, seed=0)
    left_out = [
        {t.id for t in tasks(7)} - {name for step in steps(cursor, 2) for name in step} for _ in range(40)
    ]  # one task of 7 in each of 40 epochs
    assert all(len(rest) == 1 for rest in left_out)
    assert set().union(*left_out) == {t.id for t in tasks(7)}


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    cursor = TaskCursor(tasks(50), 50, seed=0)
    first, second = (step for step in steps(cursor, 2))
    (other,) = steps(TaskCursor(tasks(50), 50, seed=1), 1)
    plain = [t.id for t in tasks(50)]
    assert len({tuple(order) for order in (first, second, other, plain)}) == 4


def test_the_order_is_fixed_for_good() -> None:
    """Another order would change what a resumed run trains on."""
    assert steps(TaskCursor(tasks(6), 2, seed=0), 4) == [
        ["t/2", "t/3"],
        ["t/5", "t/4"],
        ["t/1", "t/0"],
        ["t/3", "t/4"],
    ]


def test_current_stays_until_it_was_trained_on() -> None:
    cursor = TaskCursor(tasks(10), 3, seed=4)
    first = cursor.current()
    assert cursor.current() == first
    cursor.advance()
    assert cursor.current() != first


@pytest.mark.parametrize("done", [0, 1, 4, 5, 13])
def test_a_resumed_cursor_goes_on_where_it_was(done: int) -> None:
    whole = steps(TaskCursor(tasks(11), 2, seed=3), 20)
    cursor = TaskCursor(tasks(11), 2, seed=3)
    steps(cursor, done)
    state = json.loads(json.dumps(cursor.state()))
    resumed = TaskCursor(tasks(11), 2, seed=3)
    resumed.load_state(state)
    assert steps(resumed, 20 - done) == whole[done:]


def test_changed_data_is_refused_on_resume() -> None:
    state = TaskCursor(tasks(11), 2, seed=3).state()
    cursor = TaskCursor(tasks(12), 2, seed=3)
    with pytest.raises(DataError, match="has 12 tasks, the checkpoint was written with 11: the data changed"):
        cursor.load_state(state)
    assert cursor.steps_taken == 0


def test_more_tasks_per_step_than_there_are_is_refused() -> None:
    TaskCursor(tasks(3), 3, seed=0)
    with pytest.raises(ConfigError, match=r"train\.tasks_per_step = 4 is above the 3 tasks of the split 'train'"):
        TaskCursor(tasks(3), 4, seed=0)
