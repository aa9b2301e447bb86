"""A policy from nothing: its tokenizer loses nothing, its template only ever appends, its weights follow the seed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

from agentrl.learning.scratch import CHAT_MARKS, END, PAD, TEXT_MARKS, build_policy, build_tokenizer

TEXTS = [
    f'Write f(s): replace "{c}" by "o", add {k}.\nf([1, 2]) == 3\ndef f(s):\n    return s.replace("{c}", "o") + {k}'
    for c in "abc"
    for k in range(10)
]
TOKENIZER = build_tokenizer(TEXTS, 300)
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Add 2 and 3."},
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "A tool can.",
        "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 3}}}],
    },
    {"role": "tool", "content": "5"},
    {"role": "assistant", "content": "It is 5."},
]


def render(messages: list[dict[str, Any]], *, generate: bool = False, **rest: Any) -> str:
    return str(TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=generate, **rest))


def small(tokenizer: PreTrainedTokenizerFast, seed: int = 0, **shape: int) -> LlamaForCausalLM:
    shape = {"hidden_size": 16, "layers": 2, "heads": 2, "intermediate_size": 24, "context": 64} | shape
    return build_policy(tokenizer, seed=seed, **shape)


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


def test_digits_and_quoted_letters_are_single_tokens() -> None:
    ids = TOKENIZER.encode('replace "b" by "o", add 47', add_special_tokens=False)
    pieces = [TOKENIZER.decode([i]) for i in ids]
    assert [piece for piece in pieces if piece in ("b", "o", "4", "7")] == ["b", "o", "4", "7"]
    for token in TOKENIZER.get_vocab():
        assert len(token) == 1 or not any(digit in token for digit in "0123456789"), token


def test_a_clause_has_the_same_tokens_wherever_it_stands() -> None:
    first = TOKENIZER.encode("add 3, add 4", add_special_tokens=False)
    middle = TOKENIZER.encode(", add 3, add 4", add_special_tokens=False)
    assert middle[-len(first) :] == first


def test_marks_are_one_token_each() -> None:
    assert len(TOKENIZER) == 300
    for mark in CHAT_MARKS + TEXT_MARKS:
        assert TOKENIZER.encode(f"a{mark}b", add_special_tokens=False)[1:-1] == [TOKENIZER.convert_tokens_to_ids(mark)]
    assert (TOKENIZER.eos_token, TOKENIZER.pad_token) == (END, PAD)
    kept = TOKENIZER.decode(
        TOKENIZER.encode("<think>x</think><tool_call>y</tool_call><|end|>"), skip_special_tokens=True
    )
    assert kept == "<think>x</think><tool_call>y</tool_call>"


def test_the_template_only_appends() -> None:
    texts = [render(TALK[:count]) for count in range(1, len(TALK) + 1)]
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter)
    for place, message in enumerate(TALK):
        if message["role"] == "assistant":
            assert render(TALK[: place + 1]).startswith(render(TALK[:place], generate=True))


def test_the_template_to_the_letter() -> None:
    call = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
    assert render(TALK, generate=True) == (
        "<|system|>Be brief.<|end|><|user|>Add 2 and 3.<|end|>"
        f"<|assistant|><think>A tool can.</think>{call}<|end|><|tool|>5<|end|><|assistant|>It is 5.<|end|><|assistant|>"
    )
    assert render([{"role": "assistant", "content": None}]) == "<|assistant|><|end|>"


def test_tools_are_told_first() -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}
    text = render(TALK[1:2], tools=[tool])
    assert text.startswith("<|system|>{")
    assert '"name": "add"' in text
    assert text.endswith("<|user|>Add 2 and 3.<|end|>")


def test_the_same_texts_give_the_same_tokenizer() -> None:
    assert build_tokenizer(iter(TEXTS), 300).get_vocab() == TOKENIZER.get_vocab()


def test_a_vocabulary_without_room_for_bytes_is_refused() -> None:
    assert len(build_tokenizer(TEXTS, 266)) == 266
    with pytest.raises(ValueError, match="265 is too small"):
        build_tokenizer(TEXTS, 265)


def test_weights_follow_the_seed_alone() -> None:
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first = small(TOKENIZER).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before), "the caller's random stream must not move"
    torch.manual_seed(2)
    again, other = small(TOKENIZER).state_dict(), small(TOKENIZER, seed=1).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_the_shape_is_what_was_asked_for() -> None:
    model = small(TOKENIZER)
    block = 4 * 16 * 16 + 3 * 16 * 24 + 2 * 16
    assert sum(p.numel() for p in model.parameters()) == 2 * 300 * 16 + 2 * block + 16
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    config = model.config
    assert config.max_position_embeddings == 64
    assert (config.eos_token_id, config.pad_token_id) == (TOKENIZER.eos_token_id, TOKENIZER.pad_token_id)
    head = model.get_output_embeddings().weight
    assert head.data_ptr() != model.get_input_embeddings().weight.data_ptr(), "a tied head goes stale on reload"


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden_size 18"):
        small(TOKENIZER, hidden_size=18)


def test_a_saved_policy_is_an_ordinary_folder(tmp_path: Path) -> None:
    model = small(TOKENIZER)
    model.save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    tokenizer, loaded = AutoTokenizer.from_pretrained(tmp_path), AutoModelForCausalLM.from_pretrained(tmp_path)
    text = render(TALK)
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    assert tokenizer.encode(text, add_special_tokens=False) == ids
    assert tokenizer.apply_chat_template(TALK, tokenize=False) == text
    assert (tokenizer.eos_token, tokenizer.pad_token) == (END, PAD)
    with torch.no_grad():
        probe = torch.tensor([ids[:60]])
        assert torch.equal(model(probe).logits, loaded(probe).logits)
