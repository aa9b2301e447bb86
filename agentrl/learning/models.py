"""Loading and saving policies: ordinary Hugging Face folders, weights in float32 while they are trained."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar
from transformers.utils.peft_utils import find_adapter_config_file

from agentrl.api import ModelError
from agentrl.config import Config, ModelConfig
from agentrl.learning.adapters import add_adapters, load_adapted, merged_state


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Policy:
    """A causal language model with its tokenizer and the ids that end a turn.

    Example: `load_policy(ModelConfig(path="tiny"), Path("agentrl/assets/tiny"))`.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]
    pad_id: int

    @property
    def context(self) -> int:
        """The longest sequence in tokens; models that name none have no limit that anyone reaches."""
        return int(getattr(self.model.config, "max_position_embeddings", None) or 1 << 20)


def load_policy(config: ModelConfig, folder: str | Path) -> Policy:
    """Load model and tokenizer from `folder` (a path or a hub id); weights come as float32.

    A folder that holds a LoRA adapter gives the model that it was trained on, with the adapter merged in. Dropout is
    switched off: with it the probability ratio would not be 1 before the first update.
    """
    disable_progress_bar()
    try:
        base = _base_of_adapter(folder)
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(base or folder, dtype=torch.float32)
        own_tokenizer = base is None or (Path(folder) / "tokenizer_config.json").is_file()
        tokenizer = AutoTokenizer.from_pretrained(folder if own_tokenizer else base)
        if base is not None:
            model = load_adapted(model, str(folder))
    except (OSError, ValueError, KeyError, ImportError) as error:
        sentence = " ".join(str(error).split())
        raise ModelError(f"--model {config.path}: cannot be loaded: {sentence}") from error
    torch.nn.Module.to(model, device(config.device))  # the wrapper of transformers hides the type
    return wrap_policy(model, tokenizer)


def _base_of_adapter(folder: str | Path) -> str | None:
    """The model that an adapter in `folder` (or behind a hub id) belongs to; None when it holds a whole model."""
    about = find_adapter_config_file(str(folder))
    if about is None:
        return None
    return str(json.loads(Path(about).read_text(encoding="utf-8"))["base_model_name_or_path"])


def trained_policy(config: Config, folder: str | Path) -> Policy:
    """The start policy as it is trained: with new adapters where `model.lora` asks for them."""
    policy = load_policy(config.model, folder)
    if config.model.lora is not None:
        add_adapters(policy.model, config.model.lora, config.seed)
    return policy


def wrap_policy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Policy:
    """A Policy from a loaded model; neutralises what would change sampling or the forward pass in silence."""
    stop_ids = _stop_ids(model, tokenizer)
    _switch_off_dropout(model)
    pad_id = tokenizer.pad_token_id if isinstance(tokenizer.pad_token_id, int) else stop_ids[0]
    return Policy(model=model, tokenizer=tokenizer, stop_ids=stop_ids, pad_id=pad_id)


def _switch_off_dropout(model: PreTrainedModel) -> None:
    """Modules keep rates of their own, read from the configuration when they were built."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if isinstance(value, float) and ("dropout" in name or "pdrop" in name):
                setattr(module, name, 0.0)


def _stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    generation: GenerationConfig | None = model.generation_config
    named = generation.eos_token_id if generation is not None else None
    ids = [tokenizer.eos_token_id, *(named if isinstance(named, list) else [named])]
    stop_ids = tuple(dict.fromkeys(i for i in ids if isinstance(i, int)))
    if not stop_ids:
        raise ModelError("the model names no end-of-sequence token: set eos_token in its tokenizer_config.json")
    return stop_ids


def device(name: str) -> torch.device:
    """The torch device that `model.device` names; `auto` takes an accelerator when there is one."""
    if name != "auto":
        return torch.device(name)
    accelerator = torch.accelerator.current_accelerator()
    return accelerator if accelerator is not None and torch.accelerator.is_available() else torch.device("cpu")


def save_policy(policy: Policy, folder: Path, dtype: torch.dtype = torch.float32) -> None:
    """Write an ordinary Hugging Face folder: config, safetensors, tokenizer with its chat template. Adapters are
    merged into the weights."""
    disable_progress_bar()
    state = {name: tensor.to("cpu", dtype) for name, tensor in merged_state(policy.model).items()}
    policy.model.save_pretrained(folder, state_dict=state)
    policy.tokenizer.save_pretrained(folder)


def autocast_dtype(config: ModelConfig) -> torch.dtype | None:
    """The number format of forward passes when it is not that of the weights."""
    return torch.bfloat16 if config.dtype == "bfloat16" else None
