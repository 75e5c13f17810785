#!/usr/bin/env python3
"""Makes the goldens of the adapter tests: LoRA adapters on the models of goldens/, and what PEFT makes of them.

    make_adapter_goldens.py [--out DIR] [--only NAME ...]   write DIR/NAME/... (default: adapter_goldens/ beside this)
    make_adapter_goldens.py --check [--out DIR]             make them again elsewhere and compare with DIR

PEFT has changed what the halves of experts' adapters are. Cases with a `peft` are made only with that release, all
others only with 0.20 or later; what the installed one cannot make is left out, or refused if --only names it:

    pip install --no-deps --target DIR peft==0.18.1; PYTHONPATH=DIR make_adapter_goldens.py      (0.19.0, 0.19.1)

Models, data, training and limits are those of make_goldens.py; PEFT adds the adapters and says what is trained.
README.md in this folder describes the files.
"""

import json
import re
import shutil
import sys
import warnings
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import peft
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

import make_goldens as base_goldens
from make_goldens import FLOAT32, FLOAT64

BASES = Path(__file__).parent / "goldens"
SIZE_LIMIT = 4_000_000  # bytes of all goldens together
STRENGTH = 0.2  # deviation of the initial B halves times their adapter's scale
SEQUENCES = 2  # whose logits are stored
PREFIX = "base_model.model."  # of the names in PEFT's files
NAME = "default"  # of the adapter in PEFT's modules
ROWS = "token_adapter.trainable_tokens_delta"
OLD = ("0.18", "0.19.0", "0.19.1")  # releases of PEFT that cases ask for
INSTALLED = next((old for old in OLD if (peft.__version__ + ".").startswith(old + ".")), "")  # "": a newer one


@dataclass
class AdapterCase:
    """One adapter. `adapter` holds the keys of the run configuration that are not in DEFAULTS."""

    name: str
    covers: str
    base: str
    adapter: dict
    clip: float
    lr: float = 3e-3
    merged: list = field(default_factory=list)  # adapted modules whose merged weights are stored
    peft: str = ""                              # of OLD, if made with such a release

    @property
    def exchanged(self):
        """Whether the first half of an expert's adapter is for the outputs and the second for the inputs. Up to 0.18
        the first is for the second axis of the parameter; 0.19.0 takes the third if the parameter is transposed."""
        transposed = self.base_case.family == "gpt_oss"
        return self.peft == "0.19.0" or (self.peft == "0.18" and not transposed)

    @property
    def keys(self):
        return DEFAULTS | self.adapter

    @property
    def base_case(self):
        found = next(case for case in base_goldens.CASES if case.name == self.base)
        assert not found.freeze and not found.mxfp4 and not found.aux_loss and not found.z_loss
        return replace(found, clip=self.clip, lr=self.lr)

    @property
    def model(self):
        return BASES / self.base / "model"


DEFAULTS = {"dropout": 0.0, "targets": "all-linear", "target_parameters": [], "exclude": [], "rslora": False,
            "rank_pattern": {},
            "alpha_pattern": {}, "also_train": []}
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
GATE_UP, DOWN = "mlp.experts.gate_up_proj", "mlp.experts.down_proj"  # parameters of all experts of a layer

CASES = [
    AdapterCase("llama_bias", "Llama: matmuls with biases, GQA 8", "llama_bias", {"rank": 4, "alpha": 8}, clip=0.43),
    AdapterCase("qwen2_tied", "Qwen2: q/k/v bias, tied, a scale that is not a fraction of two", "qwen2_tied",
                {"rank": 3, "alpha": 10}, clip=1.5),
    AdapterCase("qwen3_norm", "Qwen3: q/k norm, alpha equal to the rank", "qwen3_norm", {"rank": 4, "alpha": 4},
                clip=0.41),
    AdapterCase("mistral_packed", "Mistral: window, packed documents, label mask", "mistral_packed",
                {"rank": 2, "alpha": 8}, clip=0.78),
    AdapterCase("gemma3_local", "Gemma 3: local layers and a global one, tied", "gemma3_local", {"rank": 3, "alpha": 6},
                clip=1.18),
    AdapterCase("gemma4_keys", "Gemma 4: no v_proj where values are made of keys", "gemma4_keys", {"rank": 2, "alpha": 4},
                clip=0.3),
    AdapterCase("gemma4_e2b", "Gemma 4 E2B: readers without k_proj and v_proj, what makes and takes inputs of layers",
                "gemma4_e2b", {"rank": 2, "alpha": 4}, clip=0.3,
                merged=["per_layer_model_projection", "layers.0.per_layer_input_gate", "layers.4.self_attn.q_proj"]),
    AdapterCase("gemma4_moe", "Gemma 4: attention, the MLP beside experts, and the router", "gemma4_moe",
                {"rank": 2, "alpha": 4}, clip=0.3,
                merged=["layers.0.router.proj", "layers.0.mlp.down_proj", "layers.1.self_attn.k_proj"]),
    AdapterCase("phi3_window", "Phi-3: one adapter for the fused qkv_proj and one for gate_up_proj", "phi3_window",
                {"rank": 4, "alpha": 8}, clip=0.45),
    AdapterCase("granite_tied", "Granite 3: multipliers of embedding, softmax, branches and logits, tied",
                "granite_tied", {"rank": 2, "alpha": 24}, clip=0.035),
    AdapterCase("olmo3", "OLMo 3: branches without a norm before them", "olmo3_packed", {"rank": 2, "alpha": 4},
                clip=0.3),
    AdapterCase("smollm3", "SmolLM3: a layer without RoPE", "smollm3_packed", {"rank": 2, "alpha": 4}, clip=0.3),
    AdapterCase("seed_oss", "Seed-OSS: heads wider than hidden", "seed_oss", {"rank": 2, "alpha": 4}, clip=0.3),
    AdapterCase("ministral3", "Ministral 3: queries that grow", "ministral3", {"rank": 2, "alpha": 4}, clip=0.3),
    AdapterCase("glm4", "GLM-4: one adapter for gate_up_proj, norms around the branches", "glm4",
                {"rank": 2, "alpha": 4}, clip=0.3),
    AdapterCase("qwen3_moe", "Qwen3-MoE: attention only, three shards", "qwen3_moe",
                {"rank": 4, "alpha": 8, "targets": ATTENTION}, clip=0.243),
    AdapterCase("qwen3_fp8", "Qwen3 on a base in fp8", "qwen3_fp8", {"rank": 3, "alpha": 6}, clip=7.5,
                merged=["layers.0.self_attn.q_proj", "layers.0.mlp.down_proj", "layers.1.self_attn.k_proj"]),
    AdapterCase("qwen3_moe_fp8", "Qwen3-MoE on a base in fp8: attention and experts", "qwen3_moe_fp8",
                {"rank": 2, "alpha": 4, "targets": ATTENTION, "target_parameters": [GATE_UP, DOWN]}, clip=0.25,
                merged=["layers.0.mlp.experts.gate_up_proj", "layers.1.mlp.experts.down_proj",
                        "layers.0.self_attn.k_proj"]),
    AdapterCase("gpt_oss", "gpt-oss: all-linear is attention only; biases, sinks", "gpt_oss", {"rank": 3, "alpha": 6},
                clip=0.198),
    AdapterCase("mixtral", "Mixtral: attention only, shuffled order", "mixtral",
                {"rank": 4, "alpha": 8, "targets": ATTENTION}, clip=0.258),
    AdapterCase("rslora", "alpha / sqrt(rank), also for a rank of its own, shuffled order", "llama_mha",
                {"rank": 4, "alpha": 16, "rslora": True, "rank_pattern": {"down_proj": 3}}, clip=1.4),
    AdapterCase("patterns", "rank_pattern and alpha_pattern: a whole name, a suffix, a regex for one layer; the first "
                "match counts", "qwen2_window",
                {"rank": 2, "alpha": 4,
                 "rank_pattern": {"^model.layers.0.mlp.gate_proj": 5, "down_proj": 3, r"layers\.1\..*": 1},
                 "alpha_pattern": {r"layers\.2\.self_attn\.[qk]_proj": 7, "mlp.up_proj": 2.5}},
                clip=0.37, merged=["layers.0.mlp.gate_proj", "layers.1.mlp.down_proj", "layers.2.self_attn.k_proj"]),
    AdapterCase("targets_regex", "targets and exclude as one regular expression each", "llama_llama3",
                {"rank": 4, "alpha": 8, "targets": r"model\.layers\.\d+\.(self_attn\.[qkv]|mlp\.(up|down))_proj",
                 "exclude": r".*\.1\..*\.[kv]_proj"},
                clip=1.13, merged=["layers.0.self_attn.k_proj", "layers.1.mlp.up_proj"]),
    AdapterCase("targets_list", "targets and exclude as lists of modules", "qwen3_yarn",
                {"rank": 4, "alpha": 8,
                 "targets": ["q_proj", "self_attn.k_proj", "o_proj", "model.layers.1.mlp.down_proj"],
                 "exclude": ["layers.0.self_attn.q_proj"]},
                clip=1.18, merged=["layers.0.self_attn.k_proj", "layers.1.mlp.down_proj"]),
    AdapterCase("also_train_head", "lm_head and two kinds of norm beside the adapters, float32 file, label mask",
                "llama_linear",
                {"rank": 2, "alpha": 4, "targets": ["q_proj", "v_proj"],
                 "also_train": ["lm_head", "model.norm", "input_layernorm"]},
                clip=0.75, merged=["layers.0.self_attn.q_proj", "layers.1.self_attn.v_proj"]),
    AdapterCase("also_train_embedding", "embed_tokens of an untied model beside the adapters", "mistral_window",
                {"rank": 2, "alpha": 4, "targets": ["q_proj", "v_proj"], "also_train": ["embed_tokens"]},
                clip=0.18, merged=["layers.0.self_attn.q_proj", "layers.1.self_attn.v_proj"]),
    AdapterCase("also_train_names", "also_train by bare ends of names; a target that is trained whole has no adapter",
                "qwen3_norm",
                {"rank": 2, "alpha": 4, "also_train": ["layers.1.mlp.down_proj", "norm"]},
                clip=0.515, merged=["layers.0.mlp.down_proj", "layers.1.mlp.up_proj"]),
    AdapterCase("gpt_oss_experts",
                "gpt-oss: attention and experts, whose gate and up rows are interleaved; a rank of its "
                "own for a parameter", "gpt_oss",
                {"rank": 3, "alpha": 6, "target_parameters": [GATE_UP, DOWN],
                 "rank_pattern": {"experts.gate_up_proj": 2}},
                clip=0.315, merged=["layers.0.mlp.experts.gate_up_proj", "layers.1.mlp.experts.down_proj",
                                  "layers.0.self_attn.k_proj"]),
    AdapterCase("qwen3_moe_experts", "Qwen3-MoE: attention and experts, which files hold one by one", "qwen3_moe",
                {"rank": 2, "alpha": 4, "targets": ATTENTION, "target_parameters": [GATE_UP, DOWN]},
                clip=0.2342, merged=["layers.0.mlp.experts.gate_up_proj", "layers.1.mlp.experts.down_proj",
                                  "layers.0.self_attn.k_proj"]),
    AdapterCase("qwen3_moe_experts_peft_0_18", "PEFT 0.18, whose halves for experts are exchanged, as their shapes say",
                "qwen3_moe", {"rank": 2, "alpha": 4, "targets": ["q_proj"], "target_parameters": [GATE_UP, DOWN]},
                clip=0.157, merged=["layers.1.mlp.experts.down_proj", "layers.0.self_attn.q_proj"], peft="0.18"),
    AdapterCase("gpt_oss_experts_peft_0_18", "PEFT 0.18, whose halves for transposed parameters are those of today",
                "gpt_oss", {"rank": 2, "alpha": 4, "targets": ["q_proj"], "target_parameters": [GATE_UP, DOWN]},
                clip=0.169, merged=["layers.1.mlp.experts.down_proj", "layers.0.self_attn.q_proj"], peft="0.18"),
    AdapterCase("gpt_oss_experts_peft_0_19_0", "PEFT 0.19.0, whose halves for transposed parameters are exchanged",
                "gpt_oss", {"rank": 2, "alpha": 4, "targets": ["q_proj"], "target_parameters": [GATE_UP, DOWN]},
                clip=0.154, merged=["layers.0.mlp.experts.down_proj", "layers.0.self_attn.q_proj"], peft="0.19.0"),
    *(AdapterCase("glm4_moe_experts_peft_" + release.replace(".", "_"),
                  f"PEFT {release}, a parameter of as many outputs as inputs: its version tells the layout",
                  "glm4_moe_whole", {"rank": 2, "alpha": 4, "targets": ["q_proj"], "target_parameters": [GATE_UP]},
                  clip=0.105, merged=["layers.1.mlp.experts.gate_up_proj"], peft=release) for release in ("0.18", "0.19.1")),
    AdapterCase("mixtral_down", "Mixtral: one parameter of the experts and no module", "mixtral",
                {"rank": 2, "alpha": 4, "targets": None, "target_parameters": [DOWN]},
                clip=0.1375, merged=["layers.0.mlp.experts.down_proj"]),
    AdapterCase("glm4_moe_lite", "GLM 4.7 Flash: the five matmuls of latent attention", "glm4_moe_lite_bias",
                {"rank": 2, "alpha": 4, "targets": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",
                                                    "o_proj"]},
                clip=0.12, merged=["layers.0.self_attn.kv_a_proj_with_mqa", "layers.1.self_attn.kv_b_proj"]),
    AdapterCase("mistral4", "Mistral Small 4: latent attention and experts, which files hold in two tensors", "mistral4",
                {"rank": 3, "alpha": 3, "targets": ["q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"],
                 "target_parameters": [GATE_UP, DOWN]},
                clip=0.1, merged=["layers.0.mlp.experts.gate_up_proj", "layers.1.self_attn.kv_b_proj"]),
    AdapterCase("qwen3_5", "all-linear, Qwen3.5: q with its gates, and the five matmuls of a delta net", "qwen3_5",
                {"rank": 2, "alpha": 4}, clip=0.2, merged=["layers.0.linear_attn.in_proj_qkv", "layers.2.self_attn.q_proj"]),
    AdapterCase("qwen3_next", "Qwen3-Next: the three matmuls of a delta net, whose rows lie by key head, and q", "qwen3_next",
                {"rank": 2, "alpha": 4, "targets": ["in_proj_qkvz", "in_proj_ba", "out_proj", "q_proj"]}, clip=0.032,
                merged=["layers.0.linear_attn.in_proj_qkvz", "layers.0.linear_attn.in_proj_ba", "layers.1.self_attn.q_proj"]),
    AdapterCase("granite4", "all-linear, Granite 4 H: both matmuls of Mamba, and an MLP whose gate and up are one matrix",
                "granite4", {"rank": 2, "alpha": 4}, clip=0.2,
                merged=["layers.0.mamba.in_proj", "layers.1.mamba.out_proj", "layers.2.shared_mlp.input_linear"]),
    AdapterCase("qwen2_moe", "Qwen2-MoE: attention, the shared expert and its gate", "qwen2_moe",
                {"rank": 2, "alpha": 4, "targets": ["q_proj", "v_proj", "shared_expert_gate", "shared_expert.up_proj"]},
                clip=0.08, merged=["layers.0.mlp.shared_expert_gate", "layers.1.mlp.shared_expert.up_proj"]),
    AdapterCase("dora_llama", "DoRA: matmuls with biases, GQA 8", "llama_bias", {"rank": 4, "alpha": 8, "dora": True},
                clip=0.47),
    AdapterCase("dora_qwen2", "DoRA: q/k/v bias, tied, a scale that is not a fraction of two", "qwen2_tied",
                {"rank": 3, "alpha": 10, "dora": True}, clip=1.5),
    AdapterCase("dora_phi3", "DoRA: one adapter for the fused qkv_proj and one for gate_up_proj", "phi3_window",
                {"rank": 4, "alpha": 8, "dora": True}, clip=0.405),
    AdapterCase("dora_granite", "DoRA: multipliers of branches, rslora, tied", "granite_tied",
                {"rank": 2, "alpha": 24, "rslora": True, "dora": True}, clip=0.0495, lr=6e-3),
    AdapterCase("dora_some", "DoRA: some of the modules that are one matmul here, packed documents, label mask, a norm "
                "beside it", "mistral_packed",
                {"rank": 2, "alpha": 8, "targets": ["q_proj", "v_proj", "up_proj"], "also_train": ["model.norm"],
                 "dora": True},
                clip=0.455, merged=["layers.0.self_attn.v_proj", "layers.1.mlp.up_proj"]),
    AdapterCase("bias_all", "every bias beside the adapters, of modules with and without one, tied", "qwen2_tied",
                {"rank": 3, "alpha": 10, "targets": ["q_proj", "v_proj", "down_proj"], "bias": "all"}, clip=0.97,
                merged=["layers.0.self_attn.q_proj", "layers.1.self_attn.k_proj"]),
    AdapterCase("bias_lora_only", "biases of modules with an adapter, with DoRA", "llama_bias",
                {"rank": 2, "alpha": 4, "targets": ["q_proj", "o_proj", "up_proj"], "bias": "lora_only", "dora": True},
                clip=0.268, merged=["layers.0.self_attn.q_proj", "layers.1.mlp.up_proj", "layers.1.mlp.gate_proj"]),
    AdapterCase("bias_gpt_oss", "gpt-oss: biases of attention and the router, but no sinks and no experts", "gpt_oss",
                {"rank": 3, "alpha": 6, "bias": "all"}, clip=0.24,
                merged=["layers.0.self_attn.k_proj", "layers.1.mlp.router"]),
    AdapterCase("token_rows", "rows of single tokens of an untied embedding, not in order", "qwen3_norm",
                {"rank": 2, "alpha": 4, "targets": ["q_proj", "v_proj"], "trainable_token_indices": [17, 3, 60]},
                clip=0.1055, merged=["embed_tokens", "layers.0.self_attn.q_proj"]),
    AdapterCase("token_rows_tied", "rows of a table that is the output matrix too", "qwen2_tied",
                {"rank": 2, "alpha": 4, "targets": ["q_proj", "v_proj"], "trainable_token_indices": [5, 90, 41, 2]},
                clip=0.42, merged=["embed_tokens", "layers.0.self_attn.q_proj"]),
    AdapterCase("token_rows_scaled", "Gemma 3: tied rows of a scaled embedding, the padding's among them",
                "gemma3_local",
                {"rank": 2, "alpha": 4, "targets": ["o_proj"],
                 "trainable_token_indices": {"embed_tokens": [0, 33], "lm_head": [0, 33]}},
                clip=0.7, merged=["embed_tokens", "layers.0.self_attn.o_proj"]),
    AdapterCase("token_rows_head", "rows of the embedding and others of the output matrix, float32 file, label mask",
                "llama_linear",
                {"rank": 2, "alpha": 4, "targets": ["down_proj"],
                 "trainable_token_indices": {"embed_tokens": [7], "lm_head": [50, 7, 12]}},
                clip=0.27, merged=["embed_tokens", "lm_head", "layers.0.mlp.down_proj"]),
    AdapterCase("token_rows_multiplied",
                "Granite 3: multipliers of embedding and logits; lm_head is not named, but tied",
                "granite_tied",
                {"rank": 2, "alpha": 4, "targets": ["q_proj"], "trainable_token_indices": [9]},
                clip=0.0125, merged=["embed_tokens", "layers.0.self_attn.q_proj"]),
    AdapterCase("text_part", "Mistral 3 with a vision tower: modules of the text part by PEFT's names, and a norm",
                "mistral3_whole",
                {"rank": 2, "alpha": 4, "targets": r"model\.language_model\.layers\.\d+\.(self_attn|mlp)\..*_proj",
                 "rank_pattern": {"language_model.layers.1.self_attn.v_proj": 3},
                 "also_train": ["model.language_model.norm"]},
                clip=0.45, merged=["layers.0.self_attn.q_proj", "layers.1.self_attn.v_proj"]),
]

# What PEFT 0.21 adapts for all-linear in a layer: modules, and parameters that are not a module's weight. Experts and
# routers were nn.Linear in transformers 4, and PEFT keeps adapting them. megatrain's all-linear leaves them out, so the
# cases above name the modules of attention.
LINEAR = {"self_attn." + module for module in ATTENTION}
MLP = {"mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
EXPERTS = {"mlp.gate.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"}
LATENT = {"self_attn." + module for module in ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj")}
LAYER_INPUT = {"per_layer_input_gate", "per_layer_projection"}
SHARED = {"mlp.shared_expert." + module for module in ("gate_proj", "up_proj", "down_proj")}
FUSED_MLP = {"mlp.gate_up_proj", "mlp.down_proj"}
DELTA_NET = {"linear_attn." + module for module in ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj")}
MAMBA = {"mamba.in_proj", "mamba.out_proj"}
SHARED_MLP = {"shared_mlp.input_linear", "shared_mlp.output_linear"}
RECURRENT = {"qwen3_5_text": DELTA_NET | MLP, "granitemoehybrid": MAMBA | SHARED_MLP}  # layers without attention
ALL_LINEAR = {"granitemoehybrid": (LINEAR | SHARED_MLP, set()),
              "phi3": ({"self_attn.qkv_proj", "self_attn.o_proj"} | FUSED_MLP, set()),
              "glm4": (LINEAR | FUSED_MLP, set()),
              "qwen3_moe": (LINEAR, EXPERTS), "mixtral": (LINEAR, EXPERTS), "gpt_oss": (LINEAR, set()),
              "qwen2_moe": (LINEAR | SHARED | {"mlp.shared_expert_gate"}, set()),
              "glm4_moe_lite": (LATENT, EXPERTS),
              "mistral4": (LATENT | {"mlp.shared_experts." + module for module in ("gate_proj", "up_proj", "down_proj")}, set()),
              "qwen3_next": (LINEAR | {"mlp.shared_expert_gate"}, EXPERTS),
              "gemma4_text": (LINEAR | MLP | LAYER_INPUT | {"router.proj"}, set())}
BY_KEY_HEAD = {"linear_attn." + module for module in ("in_proj_qkvz", "in_proj_ba", "out_proj")}


# ---- adapters --------------------------------------------------------------------------------------------------------

def peft_config(keys):
    return LoraConfig(task_type="CAUSAL_LM", r=keys["rank"], lora_alpha=keys["alpha"], lora_dropout=keys["dropout"],
                      target_modules=keys["targets"], target_parameters=keys["target_parameters"] or None,
                      exclude_modules=keys["exclude"] or None,
                      use_rslora=keys["rslora"], use_dora=keys.get("dora", False), bias=keys.get("bias", "none"),
                      rank_pattern=dict(keys["rank_pattern"]), alpha_pattern=dict(keys["alpha_pattern"]),
                      modules_to_save=keys["also_train"] or None,
                      trainable_token_indices=keys.get("trainable_token_indices"))


def file_name(parameter):
    """The name in PEFT's file without PREFIX, of a parameter of a PeftModel."""
    name = parameter.removeprefix(PREFIX).removesuffix(f".{NAME}")
    name = name.replace(f".modules_to_save.{NAME}.", ".").replace(f".{NAME}.", ".")
    return name.removesuffix(".weight") if name.endswith("lora_magnitude_vector.weight") else name


def trained_of(model):
    return {file_name(name): parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def write_adapter(case, directory):
    """PEFT's initial values, but B halves that are not zero: else the gradients of the A halves would be zero. DoRA's
    magnitudes, trained biases and rows of single tokens are not those of the base either."""
    model = base_goldens.load_model(case.model, FLOAT32)
    torch.manual_seed(base_goldens.seed_of(case))
    model = get_peft_model(model, peft_config(case.keys))
    rng = np.random.default_rng([base_goldens.seed_of(case), 3])
    for name, parameter in sorted(trained_of(model).items()):
        if name.endswith("lora_magnitude_vector"):
            weight = model.get_submodule(PREFIX + name.removesuffix(".lora_magnitude_vector")).get_base_layer().weight
            assert torch.equal(parameter, torch.linalg.norm(weight, dim=1)), name
            parameter.data.mul_(torch.from_numpy(1 + 0.1 * rng.standard_normal(tuple(parameter.shape))))
        if name.endswith(".bias"):  # no longer the base's
            parameter.data.add_(torch.from_numpy(0.05 * rng.standard_normal(tuple(parameter.shape))))
        if name.endswith(ROWS):
            noise = rng.standard_normal(tuple(parameter.shape)) * parameter.std().item()
            parameter.data.add_(torch.from_numpy(noise).to(FLOAT32))
        if case.exchanged and ".experts.lora_A" in name:  # for the outputs; as the B halves below
            parameter.data[:, :base_goldens.experts_of(model.config)] *= 0.02
        if not name.endswith("lora_B.weight"):
            continue
        assert not parameter.any(), name
        module = model.get_submodule(PREFIX + name.removesuffix(".lora_B.weight"))
        values = STRENGTH / module.scaling[NAME] * rng.standard_normal(tuple(parameter.shape))
        of_hidden = ".o_proj." in name or (".experts.lora_B" in name and not case.exchanged)
        if case.base_case.family in base_goldens.EXPERT_FAMILIES and of_hidden:
            # as make_goldens.py: layers hardly reorder the experts
            values[:base_goldens.experts_of(model.config)] *= 0.02
        parameter.data.copy_(torch.from_numpy(values))
    model.save_pretrained(directory, save_embedding_layers=False)
    (directory / "README.md").unlink()

    file = directory / "adapter_config.json"
    config = json.loads(file.read_text())
    config["base_model_name_or_path"] = f"../../../goldens/{case.base}/model"
    for key in ("target_modules", "target_parameters", "exclude_modules", "modules_to_save"):  # sets, in any order
        if isinstance(config[key], list):
            config[key].sort()
    file.write_text(json.dumps(config, indent=2) + "\n")
    stored = load_file(directory / "adapter_model.safetensors")
    assert {name.removeprefix(PREFIX) for name in stored} == set(trained_of(model))
    assert all(tensor.dtype == FLOAT32 for tensor in stored.values())


def load_adapted(case, directory, dtype):
    model = base_goldens.load_model(case.model, dtype)
    model = PeftModel.from_pretrained(model, str(directory / "adapter"), is_trainable=True,
                                      autocast_adapter_dtype=False).train()
    stored = load_file(directory / "adapter" / "adapter_model.safetensors")
    trained = trained_of(model)
    assert {PREFIX + name for name in trained} == set(stored)
    for name, parameter in trained.items():
        assert torch.equal(parameter, stored[PREFIX + name].to(dtype)), name
    assert all(parameter.dtype == dtype for parameter in model.parameters())
    return model


def by_text_model(tensors):
    return {base_goldens.text_name(name): tensor for name, tensor in tensors.items()}


def train(case, data, directory, dtype, steps):
    model = load_adapted(case, directory, dtype)
    copies = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    trained = trained_of(model)
    start = {name: parameter.detach().clone() for name, parameter in trained.items()}
    result = base_goldens.train_steps(case.base_case, data, model, trained, dtype, steps)
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad or torch.equal(parameter, copies[name]), name
    assert all(gradient.any() for gradient in result["grads"].values())
    return result | {"start": start, "final": {name: p.detach().clone() for name, p in trained.items()}}


def logits_of(case, data, model, dtype):
    """Of whole sequences, in the order of the file and without the borders of documents."""
    size = case.base_case.seq_len
    tokens = torch.from_numpy(data.tokens[:SEQUENCES * size].reshape(SEQUENCES, size))
    with base_goldens.widened(dtype), torch.no_grad():
        return model(input_ids=tokens, use_cache=False, **base_goldens.without_images(case.base_case, tokens)).logits


def merged_of(case, directory, dtype):
    return load_adapted(case, directory, dtype).merge_and_unload()


def merged_names(case, modules):
    """The modules of `merged`, else the first and the last one of layer 0 and the last but one of layer 1."""
    if not case.merged:
        layers = [[module for module in modules if f".{layer}." in module] for layer in range(2)]
        return [layers[0][0], layers[0][-1], layers[1][-2]]
    model = "model.language_model." if case.base_case.whole else "model."
    return [end if end == "lm_head" else model + end for end in case.merged]


def exchanged_half(tensor, half, experts):
    """The other half's tensor by today's layout, whose halves are (experts * r, in) and (out, r * experts)."""
    rows, cols = tensor.shape
    if half == "lora_A":
        return tensor.reshape(experts, -1, cols).permute(2, 1, 0).reshape(cols, -1)
    return tensor.reshape(rows, -1, experts).permute(2, 1, 0).reshape(-1, rows)


def by_expert(case, tensors):
    """megatrain's names: the halves of a parameter's adapter expert by expert, gate rows before up rows."""
    parameters = [name.rsplit(".", 1)[-1] for name in case.keys["target_parameters"]]
    family = case.base_case.family
    config = json.loads((case.model / "config.json").read_text())
    experts = config.get("num_local_experts", config.get("num_experts", config.get("n_routed_experts")))
    split = {}
    for name, tensor in tensors.items():
        if ".experts." not in name:
            split[name.replace(".base_layer.bias", ".bias")] = tensor
            continue
        prefix, half = name.removesuffix(".weight").rsplit(".", 1)
        if case.exchanged:
            tensor = exchanged_half(tensor, half, experts)
            half = "lora_B" if half == "lora_A" else "lora_A"
        inner = prefix.endswith(".base_layer")
        parameter = parameters[0] if len(parameters) == 1 else "gate_up_proj" if inner else "down_proj"
        prefix = prefix.removesuffix(".base_layer")
        if family == "mixtral":
            prefix = prefix.replace("mlp.experts", "block_sparse_moe.experts")
        for expert in range(experts):
            if half == "lora_A":
                part = tensor.chunk(experts)[expert]
            else:
                part = tensor[:, expert::experts]
                if family == "gpt_oss" and parameter == "gate_up_proj":
                    part = torch.cat([part[0::2], part[1::2]])
            split[f"{prefix}.{expert}.{parameter}.{half}.weight"] = part.contiguous()
    return split


def as_in_files(base, state, module):
    """The tensors of a merged module or parameter, by their names in a model's files."""
    if not module.endswith((".experts.gate_up_proj", ".experts.down_proj")):
        return [(name, state[name]) for name in (module + ".weight", module + ".bias") if name in state]
    value = state[module]
    if base.family in base_goldens.STACKED:
        return [(module, value)]
    prefix, parameter = module.rsplit(".", 1)
    parts = {"gate_up_proj": ["gate_proj", "up_proj"], "down_proj": ["down_proj"]}[parameter]
    if base.family == "mixtral":
        prefix = prefix.replace("mlp.experts", "block_sparse_moe.experts")
        parts = [{"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}[part] for part in parts]
    return [(f"{prefix}.{expert}.{part}.weight", rows.contiguous()) for expert in range(value.shape[0])
            for part, rows in zip(parts, value[expert].chunk(len(parts)))]


# ---- checks ----------------------------------------------------------------------------------------------------------

def check_all_linear(case):
    model = base_goldens.load_model(case.model, FLOAT32)
    present = {name.removesuffix(".weight") for name in model.state_dict()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # patterns that PEFT itself makes for experts and then does not use
        tuner = get_peft_model(model, peft_config(DEFAULTS | {"rank": 1, "alpha": 1})).base_model
    if case.base_case.whole:  # PEFT takes those of the vision tower, too
        tuner.targeted_module_names = [base_goldens.text_name(name) for name in tuner.targeted_module_names
                                       if "language_model" in name]
    modules, parameters = ALL_LINEAR.get(case.base_case.family, (LINEAR | MLP, set()))
    layers = [f"model.layers.{layer}." for layer in range(model.config.get_text_config().num_hidden_layers)]
    for found, expected in ((tuner.targeted_module_names, modules), (tuner.targeted_parameter_names, parameters)):
        kinds = getattr(model.config, "layer_types", None) or [""] * len(layers)
        delta_net = DELTA_NET | MLP if (modules, parameters) == (LINEAR | MLP, set()) else BY_KEY_HEAD | modules - LINEAR
        recurrent = RECURRENT.get(case.base_case.family, delta_net)
        of_layer = [recurrent if kind == "linear_attention" and expected is modules else expected for kind in kinds]
        wanted = {layer + name for layer, names in zip(layers, of_layer) for name in names}
        if case.base_case.family == "gemma4_text":  # layers lack what they make of other parts or read
            wanted = (wanted | {"model.per_layer_model_projection"} if expected else wanted) & present
        assert set(found) == wanted, (case.name, found)


def check_merge(case, data, directory, exact_logits):
    """A merged model computes what the adapter does, which is not what the base does."""
    assert exact_logits.dtype == FLOAT64
    merged = logits_of(case, data, merged_of(case, directory, FLOAT64), FLOAT64)
    assert (merged - exact_logits).abs().max() < 1e-9 * exact_logits.abs().max(), case.name
    plain = logits_of(case, data, base_goldens.load_model(case.model, FLOAT64), FLOAT64)
    assert (plain - exact_logits).abs().max() > 1e-2 * exact_logits.abs().max(), case.name


# ---- main ------------------------------------------------------------------------------------------------------------

def make(case, out):
    directory = out / case.name
    if directory.exists():
        shutil.rmtree(directory)
    directory.mkdir(parents=True)
    base, data = case.base_case, base_goldens.data_of(case.base_case)
    if base.fp8:
        base_goldens.write_plain_of_fp8(case.model)
    if not case.peft:
        check_all_linear(case)
    write_adapter(case, directory / "adapter")

    exact = train(case, data, directory, FLOAT64, base.steps)
    single = train(case, data, directory, FLOAT32, base.steps)
    half = train(case, data, directory, torch.bfloat16, steps=1)
    agreement = base_goldens.agreement_of(base, case.name, exact, single, half)

    adapted = load_adapted(case, directory, FLOAT64)
    if base_goldens.has_experts(base):
        base_goldens.check_routes(base, adapted)
    logits = logits_of(case, data, adapted, FLOAT64)
    check_merge(case, data, directory, logits)
    merged = merged_of(case, directory, FLOAT32).state_dict()
    base_goldens.remove_plain(case.model)
    modules = [name.removesuffix(".lora_A.weight") for name in exact["final"] if name.endswith(".lora_A.weight")]
    merged = {ours: value for name in merged_names(case, modules) for ours, value in as_in_files(base, merged, name)}

    save_file(base_goldens.narrow(by_expert(case, by_text_model(exact["grads"]))), directory / "grads.safetensors")
    save_file(base_goldens.narrow(by_expert(case, by_text_model(exact["final"]))), directory / "final.safetensors")
    save_file(base_goldens.narrow({"logits": logits}), directory / "logits.safetensors")
    save_file(base_goldens.narrow(merged), directory / "merged.safetensors")
    place = f"../../goldens/{case.base}/"
    files = json.loads((BASES / case.base / "expected.json").read_text())["data"]
    expected = {
        "covers": case.covers,
        "base": place + "model",
        "data": {key: value if key == "dtype" else place + value for key, value in files.items()},
        **base_goldens.setup_of(base),
        "adapter": {"rank": case.adapter["rank"], "alpha": case.adapter["alpha"], **case.keys},
        **({"exchanged_halves": True} if case.exchanged else {}),
        **{key: exact[key] for key in ("losses", "grad_norms", "clip_factors", "trained_tokens")},
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__},
    }
    (directory / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    return base_goldens.size_of(directory, case.name, exact, agreement)


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=FutureWarning)
    for case in CASES:
        if case.name in sys.argv and case.peft != INSTALLED:
            sys.exit(f"{case.name} is made with peft {case.peft or '0.20 or later'}, not with {peft.__version__}")
    CASES = [case for case in CASES if case.peft == INSTALLED]
    if INSTALLED.startswith("0.19"):  # what it renames for transformers 5 needs an early one, and is not in these files
        peft.utils.save_and_load.is_transformers_ge_v5 = False
    sys.exit(base_goldens.main(__doc__, "adapter_goldens", CASES, make, SIZE_LIMIT))
