"""Rollouts with tools: what is carried out, what is told to the policy, what ends the rollout and as what."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from agentrl.api import ConfigError, Env, Message, Options, Rollout, Services, Stop, Task, keyed_seed, tool
from agentrl.api.background import run_loop
from agentrl.rollouts.chat import ChatFormat
from agentrl.rollouts.collect import collect, plan
from agentrl.rollouts.players import Attempt, TokenPlayers, WordPlayers
from agentrl.rollouts.runner import run_rollout
from agentrl.rollouts.sampling import TurnBarrier
from tests.support import ScriptedEngine, guess_task, make_settings
from tests.unit.rollouts.test_collect import scorer


class Counter(Env):
    """A number that tools change; `fault` is planted into `reset`, `step`, `evidence`, `close` or the tool."""

    def __init__(self, fault: str = "") -> None:
        super().__init__(Options(), Services())
        self.fault, self.total, self.closed = fault, 0, 0

    def _maybe(self, where: str) -> None:
        if self.fault == f"{where} exits":
            raise SystemExit(1)
        if self.fault == f"{where} hangs":
            time.sleep(3)
        if self.fault == f"{where} raises":
            raise OSError("planted")

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
        self._maybe("reset")
        return list(task.messages), {}

    @tool(timeout=0.2)
    def add(self, amount: int) -> int:
        """Add to the total."""
        self._maybe("add")
        self.total += amount
        return self.total

    @tool
    def read(self) -> int:
        """The total."""
        return self.total

    def evidence(self) -> Any:
        self._maybe("evidence")
        return object() if self.fault == "evidence is no JSON" else {"total": self.total}

    def close(self) -> None:
        self.closed += 1
        self._maybe("close")


def call(name: str, **arguments: Any) -> str:
    values = ", ".join(f'"{key}": {value}' for key, value in arguments.items())
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{{values}}}}}\n</tool_call>'


def run(chat: ChatFormat, env: Env, *texts: str, **limits: Any) -> tuple[Rollout, ScriptedEngine]:
    said = iter(texts)
    engine = ScriptedEngine(chat, lambda request: next(said))
    settings = make_settings(chat, **{"max_tokens": 4000, "max_new_tokens": 500, **limits})

    async def scenario() -> Rollout:
        sampler = TurnBarrier(engine)
        sampler.enter()
        (attempt,) = plan([guess_task()], 1, seed=0, phase=("test",))
        return await run_rollout(attempt, env, TokenPlayers(sampler, settings), settings.limits)

    return run_loop(scenario()), engine


def told(rollout: Rollout) -> list[str]:
    return [message.content for turn in rollout.turns for message in turn.observation]


def test_calls_one_after_the_other_and_in_parallel(chat: ChatFormat) -> None:
    env = Counter()
    both = f"Two at once. {call('add', amount=2)}\n{call('add', amount=3)}"
    rollout, engine = run(chat, env, call("add", amount=1), both, "done")
    assert rollout.stop is Stop.FINISHED
    assert rollout.evidence == {"total": 6}
    assert told(rollout) == ["1", "3", "6"]
    first, second, last = (turn.action for turn in rollout.turns)
    assert [one.id for one in (*first.tool_calls, *second.tool_calls)] == ["000000000", "000100000", "000100001"]
    assert [m.tool_call_id for m in rollout.turns[1].observation] == ["000100000", "000100001"]
    assert (second.content, last.content, last.tool_calls) == ("Two at once.", "done", ())
    (segment,) = rollout.segments
    shown = chat.decode(engine.batches[2][0].prompt)
    assert '"name": "add"' in shown  # the template knows no tools: they stand in the first message
    assert "<|user|><tool_response>\n3\n</tool_response>\n<tool_response>\n6\n</tool_response><|end|>" in shown
    assert segment.ids[segment.sampled].tolist() == [
        token for turn in rollout.turns if turn.completion for token in turn.completion.token_ids
    ]


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (call("sub", amount=1), "unknown_tool", "sub"),
        (call("add", amount='"much"'), "arguments", "amount"),
        (call("add"), "arguments", "amount"),
        ('<tool_call>\n{"name": "add", "argum', "malformed", ""),
        ('<tool_call>\n{"name": "add", "arguments": {"amount": 1}}\n', "malformed", ""),
    ],
    ids=["unknown tool", "mistyped", "missing", "half a call", "unclosed"],
)
def test_a_call_that_cannot_be_carried_out_is_told(chat: ChatFormat, text: str, kind: str, said: str) -> None:
    env = Counter()
    rollout, _ = run(chat, env, text, call("add", amount=1), "done")
    assert rollout.stop is Stop.FINISHED
    message, after = told(rollout)
    assert message.startswith("error: ")
    assert said in message
    assert after == "1"
    assert set(rollout.turns[0].info["tool_problem"]) == {"kind", "text"}
    assert rollout.turns[0].action.content == text  # kept as it was written
    assert rollout.turns[0].action.tool_calls == ()

    stopped, _ = run(chat, Counter(), text, on_parse_error="stop")
    assert stopped.stop is Stop.PARSE_ERROR
    assert not stopped.stop.failed  # the policy's own doing: it is judged
    assert stopped.evidence == {"total": 0}


def test_a_policy_that_never_learns_ends_with_its_own_stop(chat: ChatFormat) -> None:
    rollout, _ = run(chat, Counter(), *[call("sub")] * 9, max_parse_errors=2, max_turns=9)
    assert rollout.stop is Stop.PARSE_ERROR
    assert len(rollout.turns) == 3
    endless, _ = run(chat, Counter(), *[call("read")] * 9, max_turns=5)
    assert (endless.stop, len(endless.turns)) == (Stop.MAX_TURNS, 5)


def test_only_allowed_tools_are_shown_and_carried_out(chat: ChatFormat) -> None:
    rollout, engine = run(chat, Counter(), call("add", amount=5), call("read"), "done", tools=["read"])
    assert "no tool" in told(rollout)[0] or "unknown" in told(rollout)[0]
    assert rollout.evidence == {"total": 0}
    assert '"name": "add"' not in chat.decode(engine.batches[0][0].prompt)
    with pytest.raises(ConfigError, match=r"rollout.tools names the tool 'raed'.*did you mean 'read'"):
        run(chat, Counter(), "done", tools=["raed"])


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("add raises", "error: OSError: planted"),
        ("add exits", "error: SystemExit: 1"),
        ("add hangs", "error: add was given up after 0.2 s"),
    ],
)
def test_a_tool_s_fault_is_told_and_the_rollout_goes_on(chat: ChatFormat, fault: str, said: str) -> None:
    rollout, _ = run(chat, Counter(fault), call("add", amount=1), call("read"), "done")
    assert rollout.stop is Stop.FINISHED
    assert told(rollout) == [said, "0"]
    assert rollout.turns[0].info == {"tool_calls": 1, "tool_errors": 1}


@pytest.mark.parametrize(
    ("fault", "stop", "said"),
    [
        ("reset raises", Stop.ENV_ERROR, "planted"),
        ("reset exits", Stop.ENV_ERROR, "SystemExit"),
        ("reset hangs", Stop.TIMEOUT, ""),
        ("evidence raises", Stop.ENV_ERROR, "planted"),
        ("evidence hangs", Stop.ENV_ERROR, "TimeoutError"),
        ("evidence is no JSON", Stop.ENV_ERROR, "JSON"),
        ("close raises", Stop.ENV_ERROR, "planted"),
        ("close exits", Stop.ENV_ERROR, "SystemExit"),
    ],
)
def test_an_environment_s_fault_ends_its_rollout_alone(chat: ChatFormat, fault: str, stop: Stop, said: str) -> None:
    env = Counter(fault)
    rollout, _ = run(chat, env, call("read"), "done", step_timeout_seconds=0.3)
    assert rollout.stop is stop
    assert said in (rollout.error or "")
    assert env.closed == 1


def test_an_environment_that_stops_the_loop_ends_its_rollout_alone(chat: ChatFormat) -> None:
    class Stopper(Counter):
        async def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:  # type: ignore[override]
            asyncio.get_running_loop().stop()
            return list(task.messages), {}

    rollout, _ = run(chat, Stopper(), "done")
    assert rollout.stop is Stop.ENV_ERROR
    assert "belongs to agentrl" in (rollout.error or "")


@pytest.mark.parametrize("content", [None, b"bytes", 7])
def test_messages_that_are_no_text_are_the_environment_s_fault(chat: ChatFormat, content: Any) -> None:
    class Odd(Counter):
        def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
            return [Message(role="user", content=content)], {}

    rollout, _ = run(chat, Odd(), "done")
    assert rollout.stop is Stop.ENV_ERROR
    assert "content" in (rollout.error or "")


class Dice(Env):
    """Says what its own random numbers give."""

    def __init__(self) -> None:
        super().__init__(Options(), Services())

    def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
        self.seed, self.rolls = seed, 0
        return [Message(role="user", content=f"start {keyed_seed(seed) % 100}")], {}

    @tool
    async def roll(self) -> int:
        """Roll."""
        self.rolls += 1
        await asyncio.sleep(keyed_seed(self.seed, self.rolls) % 7 / 1000)
        return keyed_seed(self.seed, "roll", self.rolls) % 1000


@pytest.mark.parametrize("concurrency", [1, 3, 50])
@pytest.mark.parametrize("backwards", [False, True])
def test_same_seed_same_observations_in_any_order_and_at_any_concurrency(concurrency: int, backwards: bool) -> None:
    async def write(attempt: Attempt, conversation: Any, tools: Any, turn: int) -> str:
        return call("roll") if turn < 3 else "done"

    def seen(attempts: list[Attempt], concurrency: int) -> dict[Any, Any]:
        limits = make_settings(None, concurrency=concurrency, max_turns=8).limits  # type: ignore[arg-type]
        groups = run_loop(
            collect(
                attempts,
                make_env=Dice,
                players=WordPlayers(write),
                limits=limits,
                scorer=scorer(),
                progress=lambda scored: None,
            )
        )
        rollouts = [member.rollout for group in groups for member in group.members]
        return {(r.task.id, r.index): told(r) for r in rollouts}

    attempts = plan([guess_task(n) for n in range(5)], 3, seed=1, phase=("x",))
    found = seen(attempts[::-1] if backwards else attempts, concurrency)
    assert found == seen(attempts, 15)
    assert len({tuple(rolls) for rolls in found.values()}) == 5  # members of a group see the same world
    assert all(len(rolls) == 3 for rolls in found.values())


def test_tools_are_those_of_the_instance_after_reset(chat: ChatFormat) -> None:
    class Late(Counter):
        def reset(self, *, task: Task, seed: int) -> tuple[list[Message], dict[str, Any]]:
            self.tools = [spec for spec in type(self).tools if spec.name == "read"]
            return super().reset(task=task, seed=seed)

    rollout, engine = run(chat, Late(), "done")
    assert rollout.stop is Stop.FINISHED
    assert '"name": "read"' in chat.decode(engine.batches[0][0].prompt)
    assert '"name": "add"' not in chat.decode(engine.batches[0][0].prompt)
