"""A small policy from nothing: a byte-level tokenizer with marks for chat and tools, and a Llama of any size.

Pure builders: they read no environment and no file. `agentrl sft` trains what they give on demonstrations.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END, PAD = "<|end|>", "<|pad|>"
CHAT_MARKS = (PAD, END, "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
"""Special tokens. `<|end|>` ends every message and is the end-of-sequence token."""
TEXT_MARKS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
"""One token each, but ordinary text to a decoder that skips special tokens."""

# A digit and a quoted letter are pieces of their own, so that constants are copied one by one. A piece ends at a comma
# and at the end of a line, and may hold several words: the sequences of a narrow world get short, and a clause has the
# same tokens wherever it stands.
_PIECES = r"""\d|(?<=")[A-Za-z](?=")|, |\n?(?:[^\d\n",]|"(?![A-Za-z]"))+"?|\n|"|,"""
_LONGEST_TOKEN = 24

CHAT_TEMPLATE = """\
{%- if tools %}<|system|>{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|end|>{% endif %}
{%- for message in messages %}<|{{ message['role'] }}|>
{%- if message.get('reasoning_content') %}<think>{{ message['reasoning_content'] }}</think>{% endif %}
{{- message['content'] or '' }}
{%- for call in message.get('tool_calls') or [] %}
{%- set function = call.get('function', call) %}
{{- '<tool_call>' + ({'name': function['name'], 'arguments': function['arguments']} | tojson) + '</tool_call>' }}
{%- endfor %}<|end|>
{%- endfor %}
{%- if add_generation_prompt %}<|assistant|>{% endif %}"""
"""Append-only: a message is rendered the same whatever follows it, its reasoning included."""


def build_tokenizer(texts: Iterable[str], vocab_size: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE on `texts`, with the marks above and the chat template.

    vocab_size: most entries in all, marks and 256 bytes included; few texts give fewer. Every text has an encoding and
    comes back from it byte for byte. Raises ValueError when `vocab_size` has no room for bytes and marks.

    Example: `build_tokenizer(["Write f(n): add 3."], 300)`.
    """
    least = 256 + len(CHAT_MARKS) + len(TEXT_MARKS)
    if vocab_size < least:
        raise ValueError(f"vocab_size {vocab_size} is too small: bytes and marks alone need {least}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(TEXT_MARKS),
        special_tokens=list(CHAT_MARKS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=_LONGEST_TOKEN,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(mark, special=False, normalized=False) for mark in TEXT_MARKS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[mark for mark in CHAT_MARKS if mark not in (END, PAD)],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_policy(
    tokenizer: PreTrainedTokenizerFast,
    *,
    hidden_size: int,
    layers: int,
    heads: int,
    intermediate_size: int,
    context: int,
    seed: int,
) -> LlamaForCausalLM:
    """A Llama with random float32 weights that depend on `seed` alone.

    context: longest sequence in tokens. The output head is untied from the embeddings: engines that reload weights
    in place leave a tied head stale. Raises ValueError when `heads` does not divide `hidden_size` into even parts.

    Example: `build_policy(tokenizer, hidden_size=160, layers=4, heads=4, intermediate_size=448, context=512, seed=0)`.
    """
    if hidden_size % (2 * heads):
        raise ValueError(f"hidden_size {hidden_size} must be a multiple of twice the heads, {2 * heads}")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        intermediate_size=intermediate_size,
        max_position_embeddings=context,
        initializer_range=hidden_size**-0.5 / 2,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)
