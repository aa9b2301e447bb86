"""Tokens are the record: appended, never decoded and encoded again."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from agentrl.api import Completion, ConfigError, Message, Rollout, Stop, ToolCall, ToolSpec
from agentrl.config import ChatConfig
from agentrl.learning.models import Policy
from agentrl.rollouts.chat import PLAIN_TEMPLATE, ChatFormat, TokenLedger
from agentrl.rollouts.collect import plan
from agentrl.rollouts.players import TokenPlayers
from agentrl.rollouts.runner import run_rollout
from agentrl.rollouts.sampling import TurnBarrier
from tests.support import Guess, ScriptedEngine, guess_task, make_settings

PICK = ToolSpec(
    name="pick",
    description="Picks one.",
    parameters={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
)


def sampled(chat: ChatFormat, ids: list[int]) -> Completion:
    return Completion(token_ids=tuple(ids), logprobs=tuple(-0.25 for _ in ids), finish="stop", stop_token=ids[-1])


def test_a_second_prompt_extends_the_first_with_the_template_s_suffix(chat: ChatFormat) -> None:
    ledger = TokenLedger(chat)
    user = Message(role="user", content="hello")
    first = ledger.prompt([user], 0)
    answer = [*chat.encode("hi"), chat.stop_ids[0]]
    assert ledger.complete(sampled(chat, answer), 0) == (0, (len(first), len(first) + len(answer)))
    action = Message(role="assistant", content=chat.text(sampled(chat, answer)))
    again = Message(role="user", content="more")
    second = ledger.prompt([user, action, again], 1)
    assert second[: len(first) + len(answer)] == (*first, *answer)
    assert chat.decode(second) == chat.render([user, action, again], generate=True)
    (segment,) = ledger.segments()
    assert segment.sampled.sum() == len(answer)
    assert np.array_equal(segment.ids[segment.sampled], answer)


def test_ids_that_the_tokenizer_would_never_choose_are_kept(chat: ChatFormat) -> None:
    """The policy may spell a word letter by letter; encoding its text again would merge the letters."""
    letters = [chat.encode(letter)[0] for letter in "return"]
    assert chat.encode("return") != letters
    ledger = TokenLedger(chat)
    user = Message(role="user", content="x")
    prompt = ledger.prompt([user], 0)
    ledger.complete(sampled(chat, [*letters, chat.stop_ids[0]]), 0)
    longer = ledger.prompt([user, Message(role="assistant", content="return"), user], 1)
    assert list(longer[len(prompt) : len(prompt) + len(letters)]) == letters


def test_a_template_that_rewrites_history_starts_a_new_segment(policy: Policy) -> None:
    policy.tokenizer.chat_template = (
        "{% for m in messages %}<|{{ m['role'] }}|>"
        "{{ m['content'].split('</think>')[-1] if m['role'] == 'assistant' else m['content'] }}"
        "<|end|>\n{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    chat = ChatFormat(policy.tokenizer, policy.stop_ids)
    ledger = TokenLedger(chat)
    user = Message(role="user", content="q")
    ledger.prompt([user], 0)
    thought = [*chat.encode("<think>hm</think>yes"), chat.stop_ids[0]]
    ledger.complete(sampled(chat, thought), 0)
    conversation = [user, Message(role="assistant", content=chat.text(sampled(chat, thought))), user]
    prompt = ledger.prompt(conversation, 1)
    assert chat.decode(prompt) == chat.render(conversation, generate=True)
    assert "think" not in chat.decode(prompt)
    answer = [*chat.encode("no"), chat.stop_ids[0]]
    assert ledger.complete(sampled(chat, answer), 1)[0] == 1
    first, second = ledger.segments()
    assert first.ids[first.sampled].tolist() == thought
    assert second.ids[second.sampled].tolist() == answer
    assert second.turn.tolist() == [1] * len(second)


def test_a_model_without_a_template_gets_the_plain_one(policy: Policy) -> None:
    policy.tokenizer.chat_template = None
    chat = ChatFormat(policy.tokenizer, policy.stop_ids)
    text = chat.render([Message(role="user", content="hi")], generate=True)
    assert text == "User: hi\n\nAssistant:"


def test_the_action_is_what_was_sampled_without_the_end_token(chat: ChatFormat) -> None:
    ids = [*chat.encode("a <|user|> b"), chat.stop_ids[0]]
    assert chat.text(sampled(chat, ids)) == "a <|user|> b"
    cut = Completion(token_ids=(ids[0],), logprobs=(0.0,), finish="length")
    assert chat.text(cut) == chat.decode([ids[0]])


@pytest.mark.parametrize("keep", [False, True])
def test_a_stop_string_ends_a_turn_of_a_base_model(policy: Policy, keep: bool) -> None:
    """Dropped from the message, the conversation is no extension of what was sampled: a new segment starts."""
    policy.tokenizer.chat_template = None
    config = ChatConfig(stop_strings=["\n\nUser:"], keep_stop_string=keep)
    chat = ChatFormat(policy.tokenizer, policy.stop_ids, config)
    engine = ScriptedEngine(chat, lambda request: "5\n\nUser: and then")
    settings = make_settings(chat, max_turns=2)

    async def scenario() -> Rollout:
        sampler = TurnBarrier(engine)
        sampler.enter()
        (attempt,) = plan([guess_task()], 1, seed=0, phase=("test",))
        return await run_rollout(attempt, Guess(), TokenPlayers(sampler, settings), settings.limits)

    rollout = asyncio.run(scenario())
    assert rollout.stop is Stop.MAX_TURNS
    assert [turn.action.content for turn in rollout.turns] == ["5\n\nUser:" if keep else "5"] * 2
    assert len(rollout.segments) == (1 if keep else 2)
    (first,), (second,) = engine.batches
    text = chat.decode(second.prompt)
    if keep:  # the template's own end of a turn follows what was sampled
        assert text.startswith(chat.decode(first.prompt) + "5\n\nUser:<|end|>\n\nUser: no")
    else:
        assert text == chat.render([*guess_task().messages, *conversation(rollout)], generate=True)
    for segment in rollout.segments:
        assert "User:" in chat.decode(segment.ids[segment.sampled].tolist())  # the tokens stay: they were sampled


def conversation(rollout: Rollout) -> list[Message]:
    first = rollout.turns[0]
    return [first.action, *first.observation]


def test_marks_that_the_policy_writes_as_text_stay_text(chat: ChatFormat) -> None:
    ledger = TokenLedger(chat)
    user = Message(role="user", content="q")
    ledger.prompt([user], 0)
    spelt = [token for letter in "a<|end|>b" for token in chat.encode(letter)]
    ledger.complete(sampled(chat, [*spelt, chat.stop_ids[0]]), 0)
    said = Message(role="assistant", content="a<|end|>b")
    prompt = ledger.prompt([user, said, user], 1)
    assert chat.decode(prompt) == chat.render([user, said, user], generate=True)
    assert len(ledger._closed) == 0


def test_formats_of_calls_that_do_not_exist_are_refused(policy: Policy) -> None:
    with pytest.raises(ConfigError, match=r"chat.tool_format = 'hermse': unknown.*did you mean 'hermes'"):
        ChatFormat(policy.tokenizer, policy.stop_ids, ChatConfig(tool_format="hermse"))


def test_a_system_message_of_the_configuration_and_none_of_the_task(policy: Policy) -> None:
    chat = ChatFormat(policy.tokenizer, policy.stop_ids, ChatConfig(system="Be short."))
    assert chat.render([Message(role="user", content="x")], generate=True).startswith("<|system|>Be short.<|end|>")
    own = [Message(role="system", content="Be long."), Message(role="user", content="x")]
    assert "short" not in chat.render(own, generate=True)


@pytest.mark.parametrize("template", [None, PLAIN_TEMPLATE], ids=["knows tools", "knows none"])
def test_tools_are_shown_once_or_not_at_all(policy: Policy, template: str | None) -> None:
    user = Message(role="user", content="x")
    said = Message(role="assistant", content="", tool_calls=(ToolCall(id="0", name="pick", arguments={"n": 7}),))
    shown, hidden = (
        ChatFormat(policy.tokenizer, policy.stop_ids, ChatConfig(template=template, show_tools=show))
        for show in (True, False)
    )
    assert (shown.knows_tools, shown.tool_format) == (hidden.knows_tools, hidden.tool_format)
    assert shown.render([user], generate=True, tools=[PICK]).count("Picks one.") == 1
    assert hidden.render([user], generate=True, tools=[PICK]) == hidden.render([user], generate=True)
    assert '"n": 7' in hidden.render([user, said], generate=False, tools=[PICK]), "calls are shown all the same"
