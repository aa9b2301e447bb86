"""LoRA: small trained matrices beside frozen ones, made by peft (Hu et al. 2021, arXiv:2106.09685).

The adapters lie inside the policy's own modules. Without them the model is the start policy again, which is what a KL
term compares with; what is saved is the merged model, an ordinary folder that loads without peft.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import peft
import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor
from transformers import PreTrainedModel

from agentrl.api import ConfigError, keyed_seed
from agentrl.config import LoraConfig

_NAME = "default"


def add_adapters(model: PreTrainedModel, config: LoraConfig, seed: int) -> None:
    """Put new adapters into `model`, in place, and freeze the rest. They change nothing before they are trained.

    Raises ConfigError when `config.targets` names no layer of the model.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(keyed_seed(seed, "adapters"))
        try:
            peft.inject_adapter_in_model(
                peft.LoraConfig(
                    r=config.rank,
                    lora_alpha=config.alpha,
                    target_modules="all-linear" if config.targets is None else list(config.targets),
                ),
                model,
                adapter_name=_NAME,
            )
        except ValueError as error:
            raise ConfigError(f"model.lora.targets = {config.targets}: {' '.join(str(error).split())}") from error


def has_adapters(model: torch.nn.Module) -> bool:
    """Whether `add_adapters` was called on the model."""
    return any(isinstance(module, BaseTunerLayer) for module in model.modules())


@contextmanager
def without_adapters(model: torch.nn.Module) -> Iterator[None]:
    """Within this context the model is the start policy."""
    layers = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def merged_state(model: torch.nn.Module) -> dict[str, Tensor]:
    """The state of the model as it would be without adapters but with the weights that they amount to."""
    merged: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        if isinstance(module, BaseTunerLayer):
            layer: Any = module  # the base class of peft does not declare what each of its kinds has
            merged[f"{name}.weight"] = layer.get_delta_weight(_NAME)
    state = {}
    for key, tensor in model.state_dict().items():
        if ".lora_" in key:
            continue
        name = key.replace(".base_layer.", ".")
        state[name] = tensor.detach() + merged[name].detach() if name in merged else tensor.detach()
    return state


def trained_state(model: torch.nn.Module) -> dict[str, Any]:
    """What training changes: the adapters where there are any, else the whole state."""
    state = model.state_dict()
    return {key: value for key, value in state.items() if ".lora_" in key} if has_adapters(model) else state


def load_trained(model: torch.nn.Module, state: Mapping[str, Any]) -> None:
    """Put back what `trained_state` gave. Raises RuntimeError for the state of another model."""
    whole = {**model.state_dict(), **state} if has_adapters(model) else state
    model.load_state_dict(whole)


def load_adapted(model: PreTrainedModel, folder: str) -> PreTrainedModel:
    """`model` with the adapter in `folder` merged into its weights: the start policy of a run from an adapter."""
    merged: PreTrainedModel = peft.PeftModel.from_pretrained(model, folder).merge_and_unload()
    return merged
