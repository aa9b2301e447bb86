"""Policies are ordinary folders; what would change the numbers in silence is switched off."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from agentrl.api import ModelError
from agentrl.config import ModelConfig
from agentrl.learning.models import Policy, load_policy, save_policy, wrap_policy
from agentrl.learning.optimizer import learning_rate_at
from tests.support import make_policy


def test_a_saved_policy_loads_as_an_ordinary_folder(policy: Policy, tmp_path: Path) -> None:
    save_policy(policy, tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path)
    for name, value in policy.model.state_dict().items():
        assert torch.equal(plain.state_dict()[name], value)
    loaded = load_policy(ModelConfig(path=str(tmp_path), device="cpu"), tmp_path)
    assert loaded.stop_ids == policy.stop_ids
    assert loaded.tokenizer.chat_template == policy.tokenizer.chat_template
    assert loaded.tokenizer.encode("def f(a):") == policy.tokenizer.encode("def f(a):")


def test_half_precision_on_disk_is_float32_in_training(policy: Policy, tmp_path: Path) -> None:
    save_policy(policy, tmp_path, torch.float16)
    loaded = load_policy(ModelConfig(path=str(tmp_path), device="cpu"), tmp_path)
    assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}


def test_dropout_is_off_also_while_training() -> None:
    policy = make_policy(attention_dropout=0.5)
    policy.model.train()
    ids = torch.arange(6, 26)[None]
    with torch.no_grad():
        first, second = (policy.model(input_ids=ids).logits for _ in range(2))
    assert torch.equal(first, second)


def test_a_model_without_an_end_token_is_refused(policy: Policy) -> None:
    policy.tokenizer.eos_token = None
    policy.model.generation_config.eos_token_id = None
    with pytest.raises(ModelError, match="end-of-sequence"):
        wrap_policy(policy.model, policy.tokenizer)


def test_all_end_tokens_of_the_generation_config_stop(policy: Policy) -> None:
    policy.model.generation_config.eos_token_id = [4, 1]
    assert wrap_policy(policy.model, policy.tokenizer).stop_ids == (1, 4)


@pytest.mark.parametrize("damage", ["weights", "config"])
def test_a_damaged_folder_is_one_sentence(policy: Policy, tmp_path: Path, damage: str) -> None:
    save_policy(policy, tmp_path)
    if damage == "weights":
        (tmp_path / "model.safetensors").unlink()
    else:
        (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot be loaded") as error:
        load_policy(ModelConfig(path=str(tmp_path), device="cpu"), tmp_path)
    assert "\n" not in str(error.value)


def test_learning_rates() -> None:
    def rates(schedule: str) -> list[float]:
        return [
            learning_rate_at(s, steps=10, peak=1.0, warmup=2, schedule=schedule)  # type: ignore[arg-type]
            for s in range(10)
        ]

    for schedule in ("constant", "linear", "cosine"):
        assert rates(schedule)[:3] == [0.5, 1.0, 1.0]
    assert rates("constant")[9] == 1.0
    assert rates("linear")[9] == pytest.approx(1 / 8)
    assert 0 < rates("cosine")[9] < rates("linear")[9]
    assert rates("linear") == sorted(rates("linear")[:2]) + sorted(rates("linear")[2:], reverse=True)
