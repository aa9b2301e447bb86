"""Real chat templates: what is trained is what was sampled, and prompts are the template's own text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentrl.api import Message, Rollout, Stop, ToolCall, write_tool_calls
from agentrl.api.background import run_loop
from agentrl.config import ChatConfig
from agentrl.rollouts.chat import ChatFormat
from agentrl.rollouts.collect import plan
from agentrl.rollouts.engines.base import SampleRequest
from agentrl.rollouts.players import TokenPlayers
from agentrl.rollouts.runner import run_rollout
from agentrl.rollouts.sampling import TurnBarrier
from tests.support import ScriptedEngine, guess_task, make_settings, make_tokenizer
from tests.unit.rollouts.test_tool_rollouts import Counter

FOLDER = Path(__file__).parent / "templates"


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """What a template is like. stops: its end-of-turn marks. native: whether it shows tools itself, in which format.

    segments, thinking: segments of the five turns below without and with reasoning; 5 where the template shows each
    earlier turn differently from how it was asked for and written.
    """

    stops: tuple[str, ...]
    native: str | None = None
    segments: int = 1
    thinking: int = 1


GOLDEN = {
    "qwen2_5": Golden(stops=("<|im_end|>", "<|endoftext|>"), native="hermes"),
    "qwen3": Golden(stops=("<|im_end|>", "<|endoftext|>"), native="hermes"),
    "qwen3_5_think": Golden(stops=("<|im_end|>",), native="qwen3coder"),
    "qwen3_8": Golden(stops=("<|im_end|>",), native="qwen3coder"),
    "llama3": Golden(stops=("<|eot_id|>",)),
    "llama3_1": Golden(stops=("<|eot_id|>", "<|eom_id|>")),
    "gemma3": Golden(stops=("<end_of_turn>",)),
    "gemma4": Golden(stops=("<turn|>",)),
    "phi3": Golden(stops=("<|end|>", "<|endoftext|>")),
    "deepseek_r1_distill": Golden(stops=("<｜end▁of▁sentence｜>",), segments=5, thinking=5),
    "glm4moe": Golden(stops=("<|user|>", "<|observation|>", "<|endoftext|>"), thinking=5),
    "gptoss": Golden(stops=("<|return|>", "<|call|>"), segments=5, thinking=5),
    "nemotron_3_nano": Golden(stops=("<|im_end|>",), native="qwen3coder", segments=5, thinking=2),
    "cohere2": Golden(stops=("<|END_OF_TURN_TOKEN|>",)),
    "lfm2_v2": Golden(stops=("<|im_end|>",)),
    "chatml_vllm": Golden(stops=("<|im_end|>",)),
    "minicpmv45": Golden(stops=("<|im_end|>",), native="hermes", segments=5, thinking=5),
}

CALLS = (
    (ToolCall(id="", name="add", arguments={"amount": 2}),),
    (ToolCall(id="", name="add", arguments={"amount": 3}), ToolCall(id="", name="add", arguments={"amount": 4})),
    (ToolCall(id="", name="sub", arguments={"amount": 1}),),  # there is no such tool: the policy is told
    (ToolCall(id="", name="read", arguments={}),),
    (),
)
WORDS = ("", "Two at once.", "", "", "It is 9.")


def chat_of(name: str, **changes: object) -> ChatFormat:
    template = (FOLDER / f"{name}.jinja").read_text()
    tokenizer = make_tokenizer()
    marks = set(re.findall(r"<[|｜][^<>\s'\"{}]*[|｜]>|<(?:start|end)_of_turn>|<turn\|>|<\|turn>", template))
    stops = GOLDEN[name].stops
    tokenizer.add_special_tokens({"additional_special_tokens": sorted({*marks, *stops})})
    tokenizer.bos_token, tokenizer.eos_token = "<s>", stops[-1]
    tokenizer.chat_template = template
    return ChatFormat(tokenizer, tokenizer.convert_tokens_to_ids(list(stops)), ChatConfig(**changes))  # type: ignore[arg-type]


def script(chat: ChatFormat, *, thinking: bool, spaced: bool = False) -> list[str]:
    """What the policy writes in each turn; `spaced` writes its JSON in a way that no template does."""
    opened = chat.render([Message(role="user", content="x")], generate=True).rstrip().endswith("<think>")
    texts = []
    for turn, (words, calls) in enumerate(zip(WORDS, CALLS, strict=True)):
        body = "\n".join(part for part in (words, write_tool_calls(calls, chat.tool_format) if calls else "") if part)
        if spaced and chat.tool_format == "hermes":
            body = body.replace('": ', '"  :  ')
        thought = f"Thought {turn}.\n</think>\n\n" if thinking else ""
        texts.append(("" if opened or not thinking else "<think>\n") + thought + body)
    return texts


def play(chat: ChatFormat, texts: Sequence[str]) -> tuple[Rollout, list[SampleRequest]]:
    said = iter(texts)
    engine = ScriptedEngine(chat, lambda request: next(said))
    settings = make_settings(chat, max_tokens=100_000, max_new_tokens=2000, max_turns=8, context=100_000)

    async def scenario() -> Rollout:
        sampler = TurnBarrier(engine)
        sampler.enter()
        (attempt,) = plan([guess_task()], 1, seed=0, phase=("golden",))
        return await run_rollout(attempt, Counter(), TokenPlayers(sampler, settings), settings.limits)

    return run_loop(scenario()), [request for batch in engine.batches for request in batch]


def conversation(rollout: Rollout, turn: int) -> list[Message]:
    """The messages that the turn was asked with."""
    return [*rollout.task.messages, *(m for t in rollout.turns[:turn] for m in (t.action, *t.observation))]


@pytest.mark.parametrize("thinking", [False, True], ids=["plain", "thinking"])
@pytest.mark.parametrize("spaced", [False, True], ids=["usual", "spaced"])
@pytest.mark.parametrize("name", GOLDEN)
def test_trained_ids_are_sampled_ids(name: str, thinking: bool, spaced: bool) -> None:
    chat = chat_of(name)
    texts = script(chat, thinking=thinking, spaced=spaced)
    rollout, requests = play(chat, texts)
    assert rollout.stop is Stop.FINISHED, rollout.error
    assert rollout.evidence == {"total": 9}
    assert len(rollout.turns) == 5
    before: list[int] = []
    for turn, (record, request) in enumerate(zip(rollout.turns, requests, strict=True)):
        assert record.completion is not None
        segment = rollout.segments[record.segment]
        start, end = record.span
        assert tuple(segment.ids[:start].tolist()) == request.prompt  # the engine saw what stands before the turn
        assert tuple(segment.ids[start:end].tolist()) == record.completion.token_ids
        assert record.completion.token_ids[-1] == record.completion.stop_token  # the end of the turn is trained too
        fresh = turn == 0 or record.segment != rollout.turns[turn - 1].segment
        if fresh:
            assert chat.decode(request.prompt) == chat.render(
                conversation(rollout, turn), generate=True, tools=Counter.tools
            )
        else:
            assert list(request.prompt[: len(before)]) == before  # append-only
        before = [*request.prompt, *record.completion.token_ids]
    for place, segment in enumerate(rollout.segments):
        spans = [turn.span for turn in rollout.turns if turn.segment == place]
        inside = {i for start, end in spans for i in range(start, end)}
        assert {int(i) for i in segment.sampled.nonzero()[0]} == inside  # the mask: exactly what was sampled


@pytest.mark.parametrize("name", GOLDEN)
def test_formats_and_segments(name: str) -> None:
    chat, golden = chat_of(name), GOLDEN[name]
    assert (chat.tool_format if chat.knows_tools else None) == golden.native
    found = [len(play(chat, script(chat, thinking=thinking))[0].segments) for thinking in (False, True)]
    assert found == [golden.segments, golden.thinking]


@pytest.mark.parametrize(
    "name", ["qwen2_5", "qwen3", "llama3", "llama3_1", "gemma3", "gemma4", "phi3", "lfm2_v2", "chatml_vllm"]
)
def test_what_is_appended_is_what_the_template_shows(name: str) -> None:
    """A policy that writes as the template does: every prompt is the template's own text of the conversation."""
    chat = chat_of(name)
    rollout, requests = play(chat, script(chat, thinking=False))
    for turn, request in enumerate(requests):
        assert chat.decode(request.prompt) == chat.render(
            conversation(rollout, turn), generate=True, tools=Counter.tools
        )


def test_thinking_can_be_turned_off() -> None:
    on, off = chat_of("qwen3"), chat_of("qwen3", options={"enable_thinking": False})
    asked = [Message(role="user", content="x")]
    assert off.render(asked, generate=True).removeprefix(on.render(asked, generate=True)) == "<think>\n\n</think>\n\n"
