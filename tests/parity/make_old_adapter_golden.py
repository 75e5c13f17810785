#!/usr/bin/env python3
"""Writes adapter_goldens/NAME/adapter_peft_0.18: the adapter of a golden as PEFT 0.18 stores it.

    make_old_adapter_golden.py        with peft 0.18; make_adapter_goldens.py needs a newer one

In 0.18 the halves of an expert's adapter are for the second and the third axis of its parameter. So their roles are
exchanged unless the parameter is transposed. The logits must be those of the golden.
"""

import json
import shutil
from pathlib import Path

import peft
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file

from make_goldens import load_model

HERE = Path(__file__).parent
NAMES = ["qwen3_moe_experts", "gpt_oss_experts"]
PREFIX = "base_model.model."


def exchanged(tensor, experts, first):
    """The other half of an adapter, from the half (experts * r, in), or (out, r * experts), of PEFT 0.20 and later."""
    if first:
        return tensor.reshape(experts, -1, tensor.shape[1]).permute(2, 1, 0).reshape(tensor.shape[1], -1)
    return tensor.reshape(tensor.shape[0], -1, experts).permute(2, 1, 0).reshape(-1, tensor.shape[0])


def make(name):
    golden = HERE / "adapter_goldens" / name
    expected = json.loads((golden / "expected.json").read_text())
    keys = expected["adapter"]
    base = load_model(golden / expected["base"], torch.float32)
    experts = base.config.num_local_experts if name.startswith("gpt_oss") else base.config.num_experts
    transposed = name.startswith("gpt_oss")
    targets = ["q_proj", "k_proj", "v_proj", "o_proj"] if keys["targets"] == "all-linear" else keys["targets"]
    model = get_peft_model(base, LoraConfig(
        task_type="CAUSAL_LM", r=keys["rank"], lora_alpha=keys["alpha"], target_modules=targets,
        target_parameters=keys["target_parameters"], rank_pattern=keys["rank_pattern"]))
    stored = load_file(golden / "adapter" / "adapter_model.safetensors")
    wanted = {}
    for key, tensor in stored.items():
        if ".experts." in key and not transposed:
            other = ("lora_A.weight", "lora_B.weight")
            first = key.endswith(other[0])
            key = key.removesuffix(other[not first]) + other[first]
            tensor = exchanged(tensor, experts, first)
        wanted[key] = tensor
    for key, parameter in model.named_parameters():
        if parameter.requires_grad:
            parameter.data.copy_(wanted.pop(key.replace(".default.", ".")))
    assert not wanted, wanted.keys()
    tokens = torch.frombuffer(bytearray((golden / expected["data"]["tokens"]).read_bytes()), dtype=torch.uint16)
    ids = tokens[:2 * expected["seq_len"]].to(torch.int64).reshape(2, -1)
    logits, golden_logits = model(input_ids=ids).logits, load_file(golden / "logits.safetensors")["logits"]
    assert (logits - golden_logits).abs().max() < 1e-5 * golden_logits.abs().max()
    out = golden / "adapter_peft_0.18"
    if out.exists():
        shutil.rmtree(out)
    model.save_pretrained(out, save_embedding_layers=False)
    (out / "README.md").unlink()
    file = out / "adapter_config.json"
    config = json.loads(file.read_text())
    config["base_model_name_or_path"] = f"../{expected['base']}"
    for key in ("target_modules", "target_parameters"):
        config[key] = sorted(config[key])
    file.write_text(json.dumps(config, indent=2) + "\n")


if __name__ == "__main__":
    assert peft.__version__.startswith("0.18."), peft.__version__
    for each in NAMES:
        make(each)
