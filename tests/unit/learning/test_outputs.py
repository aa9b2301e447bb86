"""The layout is hidden and changes nothing: padding, segments, micro-batches, tool output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agentrl.api import Segment
from agentrl.learning.models import Policy
from agentrl.learning.outputs import microbatches, token_outputs

WANT = frozenset({"logprob", "entropy"})


def random_segment(seed: int, length: int, share: float = 0.4) -> Segment:
    random = np.random.default_rng(seed)
    sampled = random.random(length) < share
    sampled[0], sampled[-1] = False, True
    return Segment(
        ids=random.integers(6, 270, length).astype(np.int32),
        sampled=sampled,
        logprobs=np.zeros(length, dtype=np.float32),
        turn=np.zeros(length, dtype=np.int16),
    )


def by_hand(policy: Policy, segment: Segment, temperature: float) -> tuple[list[float], list[float]]:
    """Log-probabilities and entropies of the sampled tokens from the full logits of one unpadded sequence."""
    with torch.no_grad():
        logits = policy.model(input_ids=torch.from_numpy(segment.ids.astype(np.int64))[None]).logits[0].double()
    logprobs = (logits / temperature).log_softmax(-1)
    places = np.flatnonzero(segment.sampled)
    return (
        [float(logprobs[p - 1, segment.ids[p]]) for p in places],
        [float(-(logprobs[p - 1].exp() * logprobs[p - 1]).sum()) for p in places],
    )


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_rows_of_several_segments_and_lengths(policy: Policy, temperature: float) -> None:
    rows = [
        [random_segment(0, 12), random_segment(1, 30)],
        [random_segment(2, 5)],
        [random_segment(3, 17), random_segment(4, 9), random_segment(5, 11)],
    ]
    width = max(sum(int(s.sampled.sum()) for s in row) for row in rows)
    with torch.no_grad():
        outputs = token_outputs(policy.model, rows, want=WANT, width=width, temperature=temperature)
    assert outputs.entropy is not None
    for place, row in enumerate(rows):
        logprobs, entropies = zip(*(by_hand(policy, s, temperature) for s in row), strict=True)
        expected = [value for part in logprobs for value in part]
        assert outputs.logprob[place, : len(expected)].tolist() == pytest.approx(expected, abs=1e-5)
        assert not outputs.logprob[place, len(expected) :].any()
        spread = [value for part in entropies for value in part]
        assert outputs.entropy[place, : len(spread)].tolist() == pytest.approx(spread, abs=1e-4)


def test_positions_that_predict_nothing_sampled_get_no_gradient(policy: Policy) -> None:
    """The gradient with respect to the logits is exactly 0 wherever no token was sampled, whatever stands there."""
    segment = random_segment(7, 40)
    absurd = segment.ids.copy()
    absurd[20:30] = np.array([0, 1, 2, 277, 0, 1, 5, 5, 5, 3])  # pads, end marks and chat marks as tool output
    sampled = segment.sampled.copy()
    sampled[20:30] = False
    segment = Segment(ids=absurd, sampled=sampled, logprobs=segment.logprobs, turn=segment.turn)
    hidden: list[torch.Tensor] = []

    def keep(module: torch.nn.Module, inputs: object, output: torch.Tensor) -> None:
        output.retain_grad()
        hidden.append(output)

    policy.model.model.norm.register_forward_hook(keep)
    outputs = token_outputs(policy.model, [[segment]], want=WANT, width=int(sampled.sum()), temperature=1.0)
    assert outputs.entropy is not None
    (outputs.logprob.sum() + outputs.entropy.sum()).backward()
    predicting = np.zeros(len(sampled), dtype=bool)
    predicting[:-1] = sampled[1:]
    gradient = hidden[0].grad
    assert gradient is not None
    assert not gradient[0, ~torch.from_numpy(predicting)].any()
    assert gradient[0, torch.from_numpy(predicting)].abs().sum(-1).min() > 0


def test_microbatches_cover_every_row_once_within_the_budget() -> None:
    rows = [[random_segment(i, 3 + (i * 7) % 40)] for i in range(25)]
    rows.append([random_segment(99, 30), random_segment(98, 10)])
    chunks = list(microbatches(rows, budget=100))
    assert sorted(i for chunk in chunks for i in chunk) == list(range(26))
    for chunk in chunks:
        lines = sum(len(rows[i]) for i in chunk)
        assert lines * max(len(s) for i in chunk for s in rows[i]) <= 100
    assert list(microbatches(rows, budget=1)) == [[i] for chunk in microbatches(rows, budget=1) for i in chunk]


SMALL = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
KINDS: dict[str, dict[str, Any]] = {
    "llama": SMALL,
    "qwen3": {**SMALL, "head_dim": 8},
    "qwen3_moe": {**SMALL, "head_dim": 8, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16},
    "gemma2": {**SMALL, "head_dim": 8, "final_logit_softcapping": 0.05},  # caps its logits
    "granite": {**SMALL, "logits_scaling": 4.0},
    "gpt2": {"vocab_size": 300, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "eos_token_id": 2},
    "opt": {  # its body lies one deeper than that of others, and projects its states
        **{name: SMALL[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")},
        "ffn_dim": 64,
        "word_embed_proj_dim": 16,
        "max_position_embeddings": 64,
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_logits_in_pieces_are_the_model_s_own(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a model does to its logits, and however few of them there are at a time; gradients too."""
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **KINDS[kind])).float().eval()
    segments = [random_segment(seed, length) for seed, length in ((3, 20), (4, 11))]
    width = max(int(segment.sampled.sum()) for segment in segments)
    found = []
    for most in (1 << 24, 2 * 300):
        monkeypatch.setattr("agentrl.learning.outputs.LOGITS_AT_ONCE", most)
        model.zero_grad()
        outputs = token_outputs(model, [[s] for s in segments], want=WANT, width=width, temperature=1.0)
        assert outputs.entropy is not None
        (outputs.logprob.sum() + outputs.entropy.sum()).backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        found.append((outputs.logprob.detach(), outputs.entropy.detach(), gradient))
    for whole, pieces in zip(*found, strict=True):
        torch.testing.assert_close(pieces, whole, rtol=1e-4, atol=1e-5)
    for row, segment in enumerate(segments):
        with torch.no_grad():
            full = model(input_ids=torch.from_numpy(segment.ids.astype(np.int64))[None]).logits[0].log_softmax(-1)
        expected = [float(full[p - 1, segment.ids[p]]) for p in np.flatnonzero(segment.sampled)]
        assert found[0][0][row, : len(expected)].tolist() == pytest.approx(expected, abs=1e-5)
    assert "forward" not in vars(model.get_decoder())


def test_the_backward_pass_holds_few_logits_at_a_time(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """What autograd keeps for a batch: the layers' states, and not [tokens, vocabulary]."""
    rows = [[random_segment(seed, 60)] for seed in range(4)]
    tokens = sum(int(row[0].sampled.sum()) for row in rows)
    vocabulary = policy.model.config.vocab_size

    def kept() -> list[int]:
        sizes: list[int] = []

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            token_outputs(policy.model, rows, want=WANT, width=60, temperature=1.0)
        return sizes

    assert max(kept()) >= tokens * vocabulary
    monkeypatch.setattr("agentrl.learning.outputs.LOGITS_AT_ONCE", 8 * vocabulary)
    assert max(kept()) < tokens * vocabulary
