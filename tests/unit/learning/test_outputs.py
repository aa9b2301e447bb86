"""The layout is hidden and changes nothing: padding, segments, micro-batches, tool output."""

from __future__ import annotations

import numpy as np
import pytest
import torch

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


def test_logits_that_the_model_scales_keep_their_scale(policy: Policy) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    torch.manual_seed(0)
    config = Gemma2Config(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=256,
        final_logit_softcapping=0.05,
        attn_implementation="eager",
    )
    model = Gemma2ForCausalLM(config).eval()
    segment = random_segment(3, 20)
    with torch.no_grad():
        found = token_outputs(model, [[segment]], width=int(segment.sampled.sum()), temperature=1.0).logprob[0]
        full = model(input_ids=torch.from_numpy(segment.ids.astype(np.int64))[None]).logits[0].log_softmax(-1)
    places = np.flatnonzero(segment.sampled)
    expected = [float(full[p - 1, segment.ids[p]]) for p in places]
    assert found.tolist() == pytest.approx(expected, abs=1e-5)
