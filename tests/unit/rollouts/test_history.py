"""Long conversations: what the policy is shown, and that its tokens stay those that were sampled."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentrl.api import (
    ConfigError,
    Demonstration,
    Env,
    History,
    Message,
    Options,
    PluginError,
    Rollout,
    Services,
    StepResult,
    Stop,
    Task,
    ToolCall,
    Turn,
)
from agentrl.api.background import run_loop
from agentrl.config import Layer
from agentrl.loops.resolve import resolve
from agentrl.loops.sft import encode_demonstration
from agentrl.rollouts.chat import ChatFormat
from agentrl.rollouts.collect import plan
from agentrl.rollouts.engines.base import SampleRequest
from agentrl.rollouts.history import FULL, Window, WindowOptions
from agentrl.rollouts.players import TokenPlayers
from agentrl.rollouts.runner import run_rollout
from agentrl.rollouts.sampling import TurnBarrier
from tests.support import ScriptedEngine, guess_task, make_settings

OPENING = (Message(role="system", content="Be brief."), Message(role="user", content="Find the number."))


def turn(number: int, said: str = "", **info: Any) -> Turn:
    return Turn(
        segment=0,
        span=(0, 0),
        completion=None,
        action=Message(role="assistant", content=said or f"guess {number}"),
        observation=(Message(role="user", content=f"answer {number}"),),
        info=info,
    )


def window(**options: Any) -> Window:
    return Window(WindowOptions(**options))


def shown(messages: Sequence[Message]) -> list[str]:
    return [message.content for message in messages]


def test_the_whole_conversation_by_default() -> None:
    assert shown(FULL.view(OPENING, [turn(0), turn(1)])) == [
        *shown(OPENING),
        "guess 0",
        "answer 0",
        "guess 1",
        "answer 1",
    ]


@pytest.mark.parametrize(("turns", "slack"), [(1, 0), (2, 0), (3, 2), (1, 5)])
def test_a_window_holds_its_turns_and_moves_in_jumps(turns: int, slack: int) -> None:
    history = window(turns=turns, slack=slack, characters=0)
    whole = [turn(number) for number in range(20)]
    gone = []
    for count in range(len(whole) + 1):
        view = history.view(OPENING, whole[:count])
        kept = (len(view) - len(OPENING)) // 2
        assert kept == count if count <= turns + slack else turns <= kept <= turns + slack
        assert shown(view[len(OPENING) :]) == shown(FULL.view((), whole[count - kept : count]))
        gone.append(count - kept)
    jumps = [after - before for before, after in itertools.pairwise(gone) if after != before]
    assert set(jumps) == {slack + 1}


def test_a_note_stands_for_the_turns_that_left() -> None:
    calls = (ToolCall(id="0", name="look", arguments={"where": "box"}),)
    looked = Turn(
        segment=0,
        span=(0, 0),
        completion=None,
        action=Message(role="assistant", content="I look.", tool_calls=calls),
        observation=(Message(role="tool", content="a key " * 50, tool_call_id="0"),),
        info={"progress": "found the key"},
    )
    note = shown(window(turns=1, slack=0, characters=60).view(OPENING, [looked, turn(1), turn(2)]))[1]
    head, *lines = note.removeprefix("Find the number.\n\n").splitlines()
    assert head == "[Turns 1 to 2 are not shown."
    assert lines[0].startswith('Turn 1: I look. {"name": "look", "arguments": {"where": "box"}} -> a key a key')
    assert lines[0].endswith("...")
    assert len(lines[0]) < 140
    assert lines[1:] == ["Turn 2: guess 1 -> answer 1", "Progress: found the key", "]"]


def test_what_the_policy_summed_up_replaces_what_came_before() -> None:
    turns = [
        turn(0),
        turn(1, "so: <summary>old</summary> <summary>below 9 <summary>above 4</summary>", progress="4 < n"),
        turn(2),
        turn(3, "<summary>never closed"),
        turn(4),
    ]
    note = shown(window(turns=1, slack=0).view(OPENING, turns))[1].splitlines()
    assert note[3:] == [
        "Your summary in turn 2: above 4",
        "Turn 3: guess 2 -> answer 2",
        "Turn 4: <summary>never closed -> answer 3",
        "Progress: 4 < n",
        "]",
    ]


def test_an_opening_without_a_word_of_the_user_gets_the_note_behind_it() -> None:
    view = window(turns=1, slack=0).view(OPENING[:1], [turn(0), turn(1)])
    assert [message.role for message in view] == ["system", "user", "assistant", "user"]
    assert view[0] == OPENING[0]


class Long(Env):
    """Twelve turns; every third leaves a mark of progress."""

    def __init__(self, marks: bool) -> None:
        super().__init__(Options(), Services())
        self.turn, self.marks = 0, marks

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
        return list(OPENING), {}

    def step(self, action: Message) -> StepResult:
        self.turn += 1
        info = {"progress": f"mark {self.turn}"} if self.marks and self.turn % 3 == 0 else {}
        told = Message(role="user", content=f"answer {self.turn - 1}")
        return StepResult(observation=(told,), terminated=self.turn == 12, info=info)


def run(chat: ChatFormat, history: History, *, marks: bool = True) -> tuple[Rollout, list[SampleRequest]]:
    said = iter([f"guess {number}" for number in range(12)])
    engine = ScriptedEngine(chat, lambda request: next(said))
    settings = make_settings(chat, max_tokens=4000, max_turns=20)

    async def scenario() -> Rollout:
        sampler = TurnBarrier(engine)
        sampler.enter()
        (attempt,) = plan([guess_task()], 1, seed=0, phase=("test",))
        return await run_rollout(attempt, Long(marks), TokenPlayers(sampler, settings), settings.limits, history)

    return run_loop(scenario()), [request for batch in engine.batches for request in batch]


def test_a_window_starts_a_segment_where_it_moves_and_trains_what_was_sampled(chat: ChatFormat) -> None:
    history = window(turns=2, slack=3, characters=0)
    rollout, requests = run(chat, history)
    assert rollout.stop is Stop.FINISHED, rollout.error
    assert [turn.segment for turn in rollout.turns] == [0] * 6 + [1] * 4 + [2] * 2
    for place, (made, request) in enumerate(zip(rollout.turns, requests, strict=True)):
        assert made.completion is not None
        segment = rollout.segments[made.segment]
        assert tuple(segment.ids[: made.span[0]].tolist()) == request.prompt
        assert tuple(segment.ids[slice(*made.span)].tolist()) == made.completion.token_ids
        assert chat.decode(request.prompt) == chat.render(history.view(OPENING, rollout.turns[:place]), generate=True)
    sampled = [int(token) for segment in rollout.segments for token in segment.ids[segment.sampled]]
    assert sampled == [token for turn in rollout.turns for token in turn.completion.token_ids]  # type: ignore[union-attr]
    assert "Progress: mark 3; mark 6\n]" in chat.decode(requests[-1].prompt)
    assert len(requests[-1].prompt) < len(run(chat, FULL)[1][-1].prompt)


def test_demonstrations_are_cut_as_rollouts_are(chat: ChatFormat) -> None:
    history = window(turns=2, slack=3)
    rollout, _ = run(chat, history, marks=False)  # demonstrations tell no progress
    said = [message for turn in rollout.turns for message in (turn.action, *turn.observation)]
    demonstration = Demonstration(messages=(*OPENING, *said))
    segments = encode_demonstration(chat, demonstration, history)
    assert len(segments) == len(rollout.segments) == 3
    for made, sampled in zip(segments, rollout.segments, strict=True):
        length = int(sampled.sampled.nonzero()[0][-1]) + 1
        assert made.ids[:length].tolist() == sampled.ids[:length].tolist()
        assert made.sampled[:length].tolist() == sampled.sampled[:length].tolist()
        assert not made.sampled[length:].any()


OWN = """
from agentrl.api import History, Options

class Last(History):
    class Options(Options):
        count: int = 1

    def view(self, opening, turns):
        return [*opening, *(m for turn in turns[-self.options.count:] for m in (turn.action, *turn.observation))]

class Other:
    pass
"""


def resolved(name: str, **options: Any) -> History:
    settings = {"env": {"name": "code_exec"}, "rollout": {"history": {"name": name, "options": options}}}
    return resolve([Layer("test", settings)]).history


def test_ones_own_history_is_named_like_every_plugin(tmp_path: Path, chat: ChatFormat) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    rollout, requests = run(chat, resolved(f"{file}:Last", count=1))
    assert len(rollout.segments) == 11  # each of the first two turns shows all there is; then every view is another
    assert chat.decode(requests[-1].prompt).count("answer") == 1
    with pytest.raises(PluginError, match=r"not a subclass of agentrl\.api\.History"):
        resolved(f"{file}:Other")
    with pytest.raises(PluginError, match="unknown history 'windw'; did you mean 'window'"):
        resolved("windw")
    with pytest.raises(ConfigError, match=r"rollout\.history\.options\.turns = 0"):
        resolved("window", turns=0)


class Broken(History):
    def view(self, opening: Sequence[Message], turns: Sequence[Turn]) -> Sequence[Message]:
        raise OSError("planted")


def test_a_broken_history_fails_the_rollout_with_its_traceback(chat: ChatFormat) -> None:
    rollout, requests = run(chat, Broken(Options()))
    assert rollout.stop is Stop.ENV_ERROR
    assert rollout.error is not None
    assert "planted" in rollout.error
    assert requests == []
