"""LoRA: only the adapters move, the start policy stays within reach, and what is saved needs no peft."""

from __future__ import annotations

import copy
from pathlib import Path

import peft
import pytest
import torch
from torch import Tensor

from agentrl.api import ConfigError
from agentrl.config import Config, LoraConfig, ModelConfig
from agentrl.learning.adapters import add_adapters, merged_state, trained_state, without_adapters
from agentrl.learning.algorithms import PRESETS
from agentrl.learning.models import Policy, load_policy, save_policy, trained_policy
from tests.support import make_policy
from tests.unit.learning.test_learner import built, learner

IDS = torch.arange(6, 40)[None]


def adapted(seed: int = 0) -> Policy:
    policy = make_policy()
    add_adapters(policy.model, LoraConfig(rank=4, alpha=16), seed)
    return policy


def logits(policy: Policy) -> Tensor:
    with torch.no_grad():
        found: Tensor = policy.model(input_ids=IDS).logits
    return found


def train(policy: Policy, preset: str = "grpo", steps: int = 3) -> None:
    made = learner(policy, PRESETS[preset])
    for step in range(steps):
        made.step(made.prepare(built(policy, PRESETS[preset])), step)


def test_new_adapters_change_nothing_and_come_from_the_seed() -> None:
    policy = adapted()
    assert torch.equal(logits(policy), logits(make_policy()))
    trainable = {name for name, parameter in policy.model.named_parameters() if parameter.requires_grad}
    assert trainable == {name for name, _ in policy.model.named_parameters() if ".lora_" in name}
    assert trainable
    assert not any("embed" in name or "lm_head" in name for name in trainable)
    again, other = trained_state(adapted().model), trained_state(adapted(1).model)
    assert all(torch.equal(value, again[name]) for name, value in trained_state(policy.model).items())
    assert any(not torch.equal(value, other[name]) for name, value in trained_state(policy.model).items())


@pytest.mark.parametrize("preset", ["grpo", "ppo"])
def test_training_moves_the_adapters_alone_and_the_reference_stays_the_start_policy(preset: str) -> None:
    policy, start = adapted(), make_policy()
    base = {name: value.clone() for name, value in policy.model.state_dict().items() if ".lora_" not in name}
    train(policy, preset)
    assert all(torch.equal(value, policy.model.state_dict()[name]) for name, value in base.items())
    assert not torch.allclose(logits(policy), logits(start), atol=1e-3)
    with without_adapters(policy.model):
        assert torch.equal(logits(policy), logits(start))
    assert not torch.allclose(logits(policy), logits(start), atol=1e-3), "switched on again"
    assert all(p.requires_grad == (".lora_" in name) for name, p in policy.model.named_parameters())


def test_the_divergence_is_taken_from_the_start_policy() -> None:
    """A full copy as the reference, and the model without its adapters, say the same."""
    lora = adapted()
    made = learner(lora, PRESETS["grpo"])
    assert made.reference is None
    first = made.step(made.prepare(built(lora, PRESETS["grpo"])), 0)
    assert first["kl_reference"] == pytest.approx(0.0, abs=1e-9)
    batch = built(lora, PRESETS["grpo"])
    prepared = made.prepare(batch)
    expected = learner(make_policy(), PRESETS["grpo"]).prepare(batch)
    assert prepared.reference is not None
    assert expected.reference is not None
    torch.testing.assert_close(prepared.reference, expected.reference)
    assert made.step(prepared, 1)["kl_reference"] > 1e-4


def test_what_is_saved_is_the_merged_model(tmp_path: Path) -> None:
    policy = adapted()
    train(policy)
    save_policy(policy, tmp_path)
    assert not (tmp_path / "adapter_config.json").exists()
    loaded = load_policy(ModelConfig(path=str(tmp_path), device="cpu"), tmp_path)
    assert set(merged_state(policy.model)) == set(loaded.model.state_dict())
    torch.testing.assert_close(logits(loaded), logits(policy), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(logits(loaded), logits(make_policy()), atol=1e-3)
    names = [name for name, _ in learner(policy, PRESETS["dr_grpo"]).named_weights()]
    assert not any("lora" in name or "base_layer" in name for name in names)


@pytest.mark.parametrize("preset", ["grpo", "ppo"])
def test_a_restored_learner_goes_on_bit_for_bit(preset: str) -> None:
    first, second = adapted(), adapted(1)
    batch = built(first, PRESETS[preset])
    through = learner(first, PRESETS[preset], epochs=2)
    through.step(through.prepare(batch), 0)
    state = copy.deepcopy(through.state())
    assert all(".lora_" in name for name in state["model"])
    through.step(through.prepare(batch), 1)
    restored = learner(second, PRESETS[preset], epochs=2)
    restored.load_state(state)
    restored.step(restored.prepare(batch), 1)
    for name, value in first.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[name]), name


def test_a_run_from_an_adapter_starts_from_the_merged_model(tmp_path: Path) -> None:
    """As peft itself saves it, after somebody else's fine-tuning."""
    base = make_policy()
    save_policy(base, tmp_path / "base")
    tuned = peft.get_peft_model(
        load_policy(ModelConfig(device="cpu"), tmp_path / "base").model,
        peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False),
    )
    tuned.save_pretrained(tmp_path / "adapter")
    config = Config.model_validate({"model": {"path": str(tmp_path / "adapter"), "device": "cpu", "lora": {"rank": 2}}})
    policy = trained_policy(config, tmp_path / "adapter")
    with torch.no_grad():
        expected = tuned(input_ids=IDS).logits
    torch.testing.assert_close(logits(policy), expected, rtol=1e-4, atol=1e-4)
    train(policy)
    with without_adapters(policy.model):
        torch.testing.assert_close(logits(policy), expected, rtol=1e-4, atol=1e-4)


def test_targets_that_the_model_has_not_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model.lora.targets = \['q_prj'\]"):
        add_adapters(make_policy().model, LoraConfig(targets=["q_prj"]), 0)
