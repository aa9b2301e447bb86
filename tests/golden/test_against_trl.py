"""Loss and gradient of one batch, beside those of TRL's own trainer on the same rows."""

from __future__ import annotations

import copy
import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from agentrl.learning.algorithms import PRESETS
from agentrl.learning.batch import Batch
from agentrl.learning.models import Policy
from tests.support import make_policy
from tests.unit.learning.test_learner import built, learner

trl = pytest.importorskip("trl", reason="needs trl 1.16: `pip install -e '.[test]'`")

MAX_TOKENS = 50  # what `learner` is told too
OF_TRL: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "epsilon": 0.2, "beta": 0.04},
    "dr_grpo": {"loss_type": "dr_grpo", "epsilon": 0.2, "beta": 0.0},
    "dapo": {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "beta": 0.0},
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "beta": 0.0,
    },
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0, "beta": 0.0},
}


def moved(columns: Tensor, mask: Tensor, seed: int, size: float) -> Tensor:
    """Log-probabilities of a policy nearby."""
    drift = torch.randn(columns.shape, generator=torch.Generator().manual_seed(seed)) * size
    return torch.where(mask, columns + drift, 0.0)


def trl_loss(
    policy: Policy, name: str, batch: Batch, old: Tensor, reference: Tensor, folder: Path
) -> tuple[float, list[Tensor]]:
    from datasets import Dataset

    options = {key: value for key, value in OF_TRL[name].items() if key != "beta"}
    arguments = trl.GRPOConfig(
        output_dir=str(folder),
        use_cpu=True,
        bf16=False,
        report_to="none",
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=MAX_TOKENS,
        gradient_checkpointing=False,
        use_bias_correction_kl=False,  # the KL term of the GRPO paper; DeepSeek-V3.2's has the ratio before it
        beta=0.0,
        **options,
    )
    trainer = trl.GRPOTrainer(
        model=policy.model,
        reward_funcs=lambda completions, **kwargs: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_list([{"prompt": "x"}] * 8),
        processing_class=policy.tokenizer,
    )
    trainer.beta = OF_TRL[name]["beta"]
    trainer.current_gradient_accumulation_steps = 1
    # TRL's rows are prompt and completion, observations inside the completion: three tokens are given, then all else.
    segments = [row[0] for row in batch.segments]
    width = max(len(s) for s in segments) - 3
    completion = torch.zeros(len(segments), width, dtype=torch.long)
    completion_mask, tool_mask = torch.zeros_like(completion), torch.zeros_like(completion)
    olds, references = torch.zeros(completion.shape), torch.zeros(completion.shape)
    for row, segment in enumerate(segments):
        size = len(segment) - 3
        completion[row, :size] = torch.from_numpy(segment.ids[3:].astype("int64"))
        completion_mask[row, :size] = 1
        tool_mask[row, :size] = torch.from_numpy(segment.sampled[3:].astype("int64"))
        places = tool_mask[row].bool()
        olds[row, places] = old[row][batch.mask[row]]
        references[row, places] = reference[row][batch.mask[row]]
    prompt = torch.stack([torch.from_numpy(s.ids[:3].astype("int64")) for s in segments])
    policy.model.train()
    loss = trainer._compute_loss(
        policy.model,
        {
            "prompt_ids": prompt,
            "prompt_mask": torch.ones_like(prompt),
            "completion_ids": completion,
            "completion_mask": completion_mask,
            "tool_mask": tool_mask,
            "advantages": batch.advantages[:, 0],
            "old_per_token_logps": olds,
            "ref_per_token_logps": references,
            "num_items_in_batch": tool_mask.sum(),
        },
    )
    policy.model.zero_grad()
    loss.backward()
    return float(loss.detach()), [p.grad.clone() for p in policy.model.parameters() if p.grad is not None]


@pytest.mark.parametrize("name", sorted(OF_TRL))
def test_loss_and_gradient_are_those_of_trl(name: str, tmp_path: Path) -> None:
    policy = make_policy()
    batch = built(policy, PRESETS[name])
    other = dataclasses.replace(policy, model=copy.deepcopy(policy.model))
    made = learner(other, PRESETS[name])
    current = made._frozen(made.model, batch)
    old, reference = moved(current, batch.mask, 1, 0.2), moved(current, batch.mask, 2, 0.2)
    # The sampler agrees with the old policy: TRL corrects for a sampler that differs only with vLLM.
    batch = dataclasses.replace(batch, sampler_logprobs=old)
    prepared = made.prepare(batch)
    prepared = dataclasses.replace(prepared, old=old, reference=None if prepared.reference is None else reference)
    gradients: list[Tensor] = []
    made.optimizer.step = lambda *a, **k: gradients.extend(  # type: ignore[assignment,method-assign,misc]
        p.grad.clone() for p in other.model.parameters() if p.grad is not None
    )
    stats = made.step(prepared, 0)

    loss, expected = trl_loss(policy, name, batch, old, reference, tmp_path)
    assert stats["clip_low"] + stats["clip_high"] > 0 or name == "cispo", "the batch must reach the clips"
    assert stats["loss"] == pytest.approx(loss, abs=1e-5)
    assert max(float(g.abs().max()) for g in expected) > 1e-3
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
