#!/usr/bin/env python3
"""Makes the goldens of the parity test: tiny random models, data, and what PyTorch and transformers make of them.

    make_goldens.py [--out DIR] [--only NAME ...]   write DIR/NAME/... (default: goldens/ beside this file)
    make_goldens.py --check [--out DIR]             make them again elsewhere and compare with DIR

Stored values are computed by transformers' own code in float64 and rounded once to float32. The same run in float32
must agree with them within TORCH_LIMIT, so the goldens are also what transformers gives in float32.
README.md in this folder describes the files.
"""

import argparse
import contextlib
import fnmatch
import json
import math
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

FLOAT32, FLOAT64 = torch.float32, torch.float64
STORED = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
STEPS = 10
TORCH_LIMIT = 5e-6     # relative error of the float32 run; half of what the parity test allows
COSINE_LIMIT = 0.9995  # of the bfloat16 run's gradients; the parity test asks for 0.999
ROUTE_MARGIN = 0.03    # between the last chosen logit and the first that is not, of the step's spread of logits
FP8_BLOCK = 128         # rows and columns under one scale
SIZE_LIMIT = 16_000_000  # bytes of all goldens together


@dataclass
class Case:
    """One model and its data. `config` holds the fields of config.json that are not in COMMON."""

    name: str
    covers: str
    family: str
    config: dict
    seq_len: int
    batch: int
    stored: str = "bfloat16"
    saved_config: bool = False     # config.json as transformers 5 writes it, instead of as hubs hold it
    shards: int = 1
    extra_tensors: bool = False    # rotary_emb.inv_freq, as old Llama checkpoints carry
    token_dtype: str = "uint16"
    documents: bool = False
    labels: bool = False
    order: bool = False            # sequences in a shuffled order, from a file
    spare_tokens: int = 0          # after the last whole sequence, not used
    freeze: list = field(default_factory=list)  # patterns of the parameters with requires_grad False
    mxfp4: bool = False            # the experts' weights are stored in MXFP4
    fp8: bool = False              # the layers' matrices are stored in block-scaled fp8
    fused: bool = False            # experts are stored as transformers has them, where it would save them one by one
    idle: list = field(default_factory=list)    # experts that no token chooses
    whole: dict = field(default_factory=dict)   # config.json of a multimodal model, but its text_config: `config`
    flat: bool = False             # the fields of the text model lie beside those of `whole`, as in old files
    module_names: bool = False     # tensors are named as transformers' modules, not as it saves them
    aux_loss: float = 0.0          # coefficients of the router's losses
    z_loss: float = 0.0
    steps: int = STEPS
    longest_document: int = 25
    lengths: tuple = ()            # of a sequence's documents, in every sequence
    lr: float = 3e-3
    betas: tuple = (0.9, 0.95)
    clip: float = 0.8


COMMON = {"hidden_act": "silu", "initializer_range": 0.02, "use_cache": True, "attention_dropout": 0.0,
          "num_hidden_layers": 2, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 128}
ARCHITECTURE = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
                "mistral": "MistralForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "phi3": "Phi3ForCausalLM",
                "qwen3_moe": "Qwen3MoeForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM",
                "glm4_moe": "Glm4MoeForCausalLM", "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
                "deepseek_v3": "DeepseekV3ForCausalLM", "mixtral": "MixtralForCausalLM", "gpt_oss": "GptOssForCausalLM",
                "qwen3_5_text": "Qwen3_5ForCausalLM",
                "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM", "qwen3_next": "Qwen3NextForCausalLM",
                "granite": "GraniteForCausalLM", "olmo2": "Olmo2ForCausalLM", "olmo3": "Olmo3ForCausalLM",
                "smollm3": "SmolLM3ForCausalLM", "seed_oss": "SeedOssForCausalLM",
                "ministral3": "Ministral3ForCausalLM", "mistral4": "Mistral4ForCausalLM", "glm4": "Glm4ForCausalLM",
                "granitemoehybrid": "GraniteMoeHybridForCausalLM", "glm": "GlmForCausalLM",
                "exaone4": "Exaone4ForCausalLM", "gemma2": "Gemma2ForCausalLM",
                "nemotron_h": "NemotronHForCausalLM", "falcon_h1": "FalconH1ForCausalLM",
                "cohere": "CohereForCausalLM", "cohere2": "Cohere2ForCausalLM", "minimax_m2": "MiniMaxM2ForCausalLM",
                "lfm2": "Lfm2ForCausalLM", "gemma": "GemmaForCausalLM", "arcee": "ArceeForCausalLM",
                "ernie4_5": "Ernie4_5ForCausalLM", "olmoe": "OlmoeForCausalLM",
                "gemma4_text": "Gemma4ForCausalLM", "gemma4_unified_text": "Gemma4UnifiedForCausalLM"}
WHOLE = {"gemma3": ("Gemma3ForConditionalGeneration", "gemma3_text"),
         "mistral3": ("Mistral3ForConditionalGeneration", "mistral"),
         "qwen2_5_vl": ("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text"),
         "qwen3_vl": ("Qwen3VLForConditionalGeneration", "qwen3_vl_text"),
         "kimi_k25": ("KimiK25ForConditionalGeneration", "kimi_k2")}


def shape(hidden, heads, kv_heads, ff, vocab, tied=False, head_dim=None, layers=2, eps=1e-6, **more):
    fields = {"hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
              "intermediate_size": ff, "vocab_size": vocab, "tie_word_embeddings": tied,
              "num_hidden_layers": layers, "rms_norm_eps": eps}
    if head_dim:
        fields["head_dim"] = head_dim
    return {name: value for name, value in (fields | more).items() if value is not None}


SIGLIP = {"model_type": "siglip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
          "num_attention_heads": 2, "image_size": 8, "patch_size": 4, "vision_use_head": False}
PIXTRAL = {"model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
           "num_attention_heads": 2, "head_dim": 4, "image_size": 8, "patch_size": 4}
MOON_VIT = {"model_type": "kimi_k25_vision", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 1, "patch_size": 2, "pos_emb_height": 2, "pos_emb_width": 2, "pos_emb_time": 1}
QWEN_TOWER = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 2, "patch_size": 2,
              "temporal_patch_size": 1, "spatial_merge_size": 2, "out_hidden_size": 16}


def longrope(pairs, **more):
    """Factors unlike each other, so that a pair that takes another's shows."""
    return {"short_factor": [1.0 + 0.1 * i for i in range(pairs)], "long_factor": [1.5 + 0.7 * i for i in range(pairs)],
            "type": "longrope", **more}


CASES = [
    Case("llama_mha", "Llama 1/2: every head its own key, no num_key_value_heads, shuffled order", "llama",
         shape(32, 4, None, 48, 64, eps=1e-5), seq_len=32, batch=8, order=True, clip=0.95),
    Case("llama_llama3", "Llama 3.2: llama3 RoPE, tied, GQA 4, head size 6", "llama",
         shape(48, 8, 2, 48, 64, tied=True, eps=1e-5, attention_bias=False, mlp_bias=False, rope_theta=500.0,
               rope_scaling={"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 64, "rope_type": "llama3"}),
         seq_len=40, batch=8, clip=2.0),
    Case("llama_linear", "linear RoPE, GQA 2, head size 10, label mask, float32 file with values that are not bfloat16",
         "llama",
         shape(40, 4, 2, 40, 64, rope_theta=10000.0, rope_scaling={"type": "linear", "factor": 2.5}),
         seq_len=33, batch=6, stored="float32", labels=True, token_dtype="uint32", clip=1.3),
    Case("llama_bias", "attention_bias (q, k, v and o) and mlp_bias, GQA 8, head size apart from hidden/heads", "llama",
         shape(32, 8, 1, 48, 64, head_dim=8, attention_bias=True, mlp_bias=True,
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         seq_len=32, batch=8, saved_config=True),
    Case("llama_packed", "packed documents, GQA 2, three shards, unused rotary_emb.inv_freq tensors", "llama",
         shape(32, 4, 2, 48, 64, rope_theta=10000.0), seq_len=48, batch=8, shards=3, extra_tensors=True,
         documents=True, spare_tokens=5),
    Case("llama_yarn", "yarn RoPE with its own attention_factor, beta_fast and beta_slow, GQA 1, head size 14", "llama",
         shape(28, 2, 2, 48, 64, rope_theta=1000.0, attention_bias=False,
               rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
                             "attention_factor": 1.25, "beta_fast": 4.0, "beta_slow": 0.5}),
         seq_len=40, batch=8, betas=(0.9, 0.999)),
    Case("llama_head64", "head size 64, GQA 2, tied", "llama",
         shape(24, 2, 1, 40, 64, tied=True, head_dim=64, rope_theta=10000.0), seq_len=64, batch=8,
         clip=1.5),
    Case("qwen2_tied", "Qwen2: q/k/v bias, tied, GQA 2", "qwen2",
         shape(32, 4, 2, 64, 96, tied=True, rope_theta=1000.0, use_sliding_window=False, sliding_window=16,
               max_window_layers=1),
         seq_len=32, batch=8, clip=1.8),
    Case("qwen2_window", "Qwen2: sliding window in the layers from max_window_layers on, 3 layers, GQA 4", "qwen2",
         shape(32, 4, 1, 48, 64, layers=3, use_sliding_window=True, sliding_window=7, max_window_layers=1,
               rope_parameters={"rope_type": "default", "rope_theta": 100.0}),
         seq_len=40, batch=8, saved_config=True),
    Case("qwen2_yarn", "Qwen2: yarn RoPE by its factor alone, GQA 7, head size 6, packed, label mask", "qwen2",
         shape(42, 7, 1, 40, 64, rope_theta=1000.0, use_sliding_window=False,
               rope_scaling={"factor": 4.0, "original_max_position_embeddings": 64, "type": "yarn"}),
         seq_len=48, batch=8, documents=True, labels=True),
    Case("qwen3_norm", "Qwen3: q/k norm, head size apart from hidden/heads, GQA 2, float16 file", "qwen3",
         shape(32, 4, 2, 48, 64, head_dim=16, attention_bias=False, rope_theta=1000000.0), seq_len=36, batch=8,
         stored="float16"),
    Case("qwen3_yarn", "Qwen3: q/k norm, yarn RoPE, tied, GQA 4, head size 20", "qwen3",
         shape(32, 4, 1, 48, 80, tied=True, head_dim=20, attention_bias=False,
               rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0,
                                "original_max_position_embeddings": 64}),
         seq_len=44, batch=8, saved_config=True, clip=2.0),
    Case("qwen3_window", "Qwen3: q/k norm, attention_bias, window in layer 1 by layer_types, packed, GQA 1", "qwen3",
         shape(32, 2, 2, 48, 64, head_dim=16, attention_bias=True, use_sliding_window=True, sliding_window=5,
               max_window_layers=1, layer_types=["full_attention", "sliding_attention"],
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         seq_len=40, batch=8, documents=True, saved_config=True),
    Case("mistral_window", "Mistral: sliding window in every layer, GQA 4", "mistral",
         shape(32, 4, 1, 64, 64, eps=1e-5, rope_theta=10000.0, sliding_window=9), seq_len=40, batch=8, order=True),
    Case("mistral_packed", "Mistral Nemo: head size 12 apart from hidden/heads, GQA 8, window, packed, label mask",
         "mistral",
         shape(32, 8, 1, 40, 64, head_dim=12, eps=1e-5, rope_theta=10000.0, sliding_window=6), seq_len=36, batch=6,
         documents=True, labels=True, clip=1.5),
    Case("llama_frozen", "frozen: embedding and first layer; parts of fused products, weights without biases and back",
         "llama",
         shape(16, 4, 2, 20, 48, layers=3, attention_bias=True, mlp_bias=True, rope_theta=10000.0),
         seq_len=32, batch=8, stored="float32", clip=0.3,
         freeze=["model.embed_tokens.*", "model.layers.0.*", "*.k_proj.weight", "*.q_proj.bias", "*.2.*.gate_proj.*",
                 "*.down_proj.weight", "*.1.*.o_proj.bias", "model.layers.2.input_layernorm.weight", "lm_head.weight"]),
    Case("qwen3_frozen", "frozen: the tied table, a layer between trained ones, a q norm", "qwen3",
         shape(32, 4, 2, 48, 64, layers=3, tied=True, head_dim=16, attention_bias=False, rope_theta=1000000.0),
         seq_len=32, batch=8, clip=0.6,
         freeze=["model.embed_tokens.weight", "model.layers.1.*", "model.layers.[!0].*.q_norm.*", "*.[qv]_proj.*"]),
    Case("gemma3_local",
         "Gemma 3 as hubs hold it: local layers, one global, GQA 2, head size 16, its own softmax scale",
         "gemma3_text",
         shape(32, 4, 2, 48, 64, tied=None, head_dim=16, layers=3, hidden_act=None,
               hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=80, sliding_window=7,
               sliding_window_pattern=2, rope_theta=10000.0, rope_local_base_freq=100.0, rope_scaling=None,
               pad_token_id=0, bos_token_id=2, eos_token_id=1, attention_bias=False, attn_logit_softcapping=None,
               final_logit_softcapping=None, cache_implementation="hybrid"),
         seq_len=40, batch=8, clip=1.2),
    Case("gemma3_scaled",
         "Gemma 3: linear RoPE in the global layer, GQA 4, head size 20, packed, label mask, float32 file",
         "gemma3_text",
         shape(24, 4, 1, 40, 64, tied=True, head_dim=20, hidden_act=None, hidden_activation="gelu_pytorch_tanh",
               query_pre_attn_scalar=40, sliding_window=5, layer_types=["sliding_attention", "full_attention"],
               rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 8.0},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}),
         seq_len=44, batch=8, stored="float32", documents=True, labels=True, saved_config=True, clip=1.2),
    Case("gemma4_keys", "Gemma 4 31B: values made of keys, one global head of another size, capped logits, GQA 2",
         "gemma4_text",
         shape(24, 4, 2, 32, 48, tied=None, head_dim=8, hidden_act=None, hidden_activation="gelu_pytorch_tanh",
               global_head_dim=16, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=7,
               layer_types=["sliding_attention", "full_attention"], final_logit_softcapping=4.0,
               hidden_size_per_layer_input=0, num_kv_shared_layers=0, enable_moe_block=False, num_experts=None,
               use_bidirectional_attention="vision", use_double_wide_mlp=False, attention_bias=False,
               rope_parameters={"full_attention": {"rope_type": "proportional", "rope_theta": 1000.0,
                                                   "partial_rotary_factor": 0.25},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}),
         seq_len=40, batch=8, clip=1.05),
    Case("gemma4_values", "Gemma 4: values of their own, GQA 4 and 2, RoPE of three quarters over 2, packed, label mask",
         "gemma4_text",
         shape(20, 4, 1, 28, 40, tied=False, head_dim=10, hidden_act=None, hidden_activation="gelu_pytorch_tanh",
               global_head_dim=14, sliding_window=5, hidden_size_per_layer_input=0,
               layer_types=["sliding_attention", "full_attention"],
               rope_parameters={"full_attention": {"rope_type": "proportional", "rope_theta": 100.0, "factor": 2.0,
                                                   "partial_rotary_factor": 0.7},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}}),
         seq_len=36, batch=14, stored="float32", documents=True, labels=True, saved_config=True, clip=1.1),
    Case("gemma4_moe", "Gemma 4 26B-A4B: top 2 of 6 experts beside an MLP, values made of keys, capped logits, packed",
         "gemma4_text",
         shape(24, 4, 2, 16, 48, tied=True, head_dim=6, hidden_act=None, hidden_activation="gelu_pytorch_tanh",
               global_head_dim=12, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=6,
               layer_types=["sliding_attention", "full_attention"], final_logit_softcapping=6.0,
               hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=6, top_k_experts=2,
               moe_intermediate_size=8),
         seq_len=40, batch=8, documents=True, clip=1.2),
    Case("gemma4_e2b", "Gemma 4 E2B: two layers read keys of earlier ones and are twice as wide, inputs of layers, tied",
         "gemma4_text",
         shape(16, 4, 2, 12, 40, tied=True, layers=5, head_dim=6, hidden_act=None, hidden_activation="gelu_pytorch_tanh",
               global_head_dim=12, sliding_window=6, num_kv_shared_layers=2,
               use_double_wide_mlp=True, hidden_size_per_layer_input=8, vocab_size_per_layer_input=40,
               layer_types=["sliding_attention"] + ["sliding_attention", "full_attention"] * 2),
         seq_len=40, batch=16, clip=0.9),
    Case("gemma4_e4b", "Gemma 4 E4B: the first layers' keys are read, inputs of layers, GQA 4, packed, label mask",
         "gemma4_text",
         shape(20, 4, 1, 28, 40, tied=False, layers=4, head_dim=8, hidden_act=None, hidden_activation="gelu_pytorch_tanh",
               global_head_dim=14, sliding_window=5, num_kv_shared_layers=2, hidden_size_per_layer_input=14,
               vocab_size_per_layer_input=40, layer_types=["sliding_attention", "full_attention"] * 2),
         seq_len=36, batch=20, stored="float32", documents=True, labels=True, saved_config=True, clip=1.1),
    Case("gemma4_inputs", "Gemma 4: inputs of layers alone, values made of keys, packed", "gemma4_text",
         shape(24, 4, 2, 20, 40, tied=True, layers=3, head_dim=8, hidden_act=None, hidden_activation="gelu_pytorch_tanh",
               global_head_dim=12, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=6,
               hidden_size_per_layer_input=12, vocab_size_per_layer_input=40,
               layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
         seq_len=33, batch=16, documents=True, clip=1.0),
    Case("gemma4_unified", "Gemma 4 12B: readers of keys, of which values are made, GQA 2 and 4, packed, label mask",
         "gemma4_unified_text",
         shape(24, 4, 2, 20, 40, tied=True, layers=4, head_dim=8, hidden_act=None, hidden_activation="gelu_pytorch_tanh",
               global_head_dim=12, num_global_key_value_heads=1, attention_k_eq_v=True, sliding_window=6,
               num_kv_shared_layers=2, layer_types=["sliding_attention", "full_attention"] * 2),
         seq_len=33, batch=24, documents=True, labels=True, clip=1.0),
    Case("phi3_window", "Phi-3: fused qkv and gate_up, sliding window in every layer, every head its own key", "phi3",
         shape(32, 4, 4, 48, 64, eps=1e-5, rope_theta=10000.0, rope_scaling=None, sliding_window=9,
               original_max_position_embeddings=128, embd_pdrop=0.0, resid_pdrop=0.0, pad_token_id=63),
         seq_len=40, batch=8),
    Case("phi3_long", "Phi-4-mini: longrope with its long factors, three quarters of a head turn, GQA 3, tied", "phi3",
         shape(48, 3, 1, 48, 64, tied=True, eps=1e-5, rope_theta=100.0, rope_scaling=longrope(6),
               partial_rotary_factor=0.75, original_max_position_embeddings=24, sliding_window=262144,
               attention_bias=False, mlp_bias=False, lm_head_bias=False, full_attn_mod=1, interpolate_factor=1,
               embd_pdrop=0.0, resid_pdrop=0.0, pad_token_id=63),
         seq_len=40, batch=8, clip=1.5),
    Case("phi3_packed", "Phi-3 mini 128k: longrope by each document's length, its own attention_factor, GQA 4, packed",
         "phi3",
         shape(32, 4, 1, 48, 64, eps=1e-5,
               rope_parameters={"rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 1.0,
                                "attention_factor": 1.15,
                                **{key: longrope(4)[key] for key in ("short_factor", "long_factor")}},
               original_max_position_embeddings=12, pad_token_id=5),
         seq_len=44, batch=8, documents=True, labels=True, saved_config=True),
    Case("granite_tied", "Granite 3: multipliers of embedding, softmax, branches and logits, tied, GQA 2", "granite",
         shape(32, 4, 2, 48, 64, tied=True, eps=1e-5, rope_theta=10000.0, embedding_multiplier=12.0,
               attention_multiplier=0.2, residual_multiplier=0.22, logits_scaling=4.0, attention_bias=False,
               mlp_bias=False, pad_token_id=0),
         seq_len=32, batch=8, clip=0.15),
    Case("granite_packed", "Granite 3: the same with its own head, biases without a multiplier of branches, packed",
         "granite",
         shape(32, 8, 1, 40, 64, eps=1e-5, embedding_multiplier=0.7, attention_multiplier=0.5, logits_scaling=0.5,
               residual_multiplier=1.0, attention_bias=True, mlp_bias=True,
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         seq_len=40, batch=8, documents=True, labels=True, saved_config=True),
    Case("qwen3_5", "Qwen3.5: two delta nets of two value heads a key head, then gated attention, three chunks, GQA 2",
         "qwen3_5_text",
         shape(32, 4, 2, 40, 64, head_dim=16, layers=3, eps=5e-2, layer_types=["linear_attention", "linear_attention",
                                                                     "full_attention"],
               linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
               linear_conv_kernel_dim=4, attn_output_gate=True, output_gate_type="swish", mamba_ssm_dtype="float32",
               mtp_num_hidden_layers=1, full_attention_interval=4,
               rope_parameters={"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
                                "mrope_interleaved": True, "mrope_section": [1, 1, 0]}),
         seq_len=150, batch=2, lr=8e-3, clip=0.5),
    Case("qwen3_5_packed", "Qwen3.5: value heads twice as wide as key heads, tied, packed documents, label mask, GQA 4",
         "qwen3_5_text",
         shape(24, 4, 1, 32, 48, tied=True, head_dim=12, layers=3, eps=5e-2, linear_num_key_heads=2,
               linear_num_value_heads=4,
               layer_types=["linear_attention", "full_attention", "linear_attention"],
               linear_key_head_dim=16, linear_value_head_dim=32, linear_conv_kernel_dim=3,
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}),
         seq_len=96, batch=8, documents=True, labels=True, longest_document=70, saved_config=True, clip=0.8),
    Case("qwen3_5_heads", "Qwen3.5: three value heads a key head, every layer a delta net but the first, float32 file",
         "qwen3_5_text",
         shape(16, 2, 2, 16, 48, head_dim=8, layers=2, eps=1e-3, layer_types=["full_attention", "linear_attention"],
               linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=32, linear_value_head_dim=16,
               linear_conv_kernel_dim=2, rope_parameters={"rope_type": "default", "rope_theta": 100000.0,
                                                          "partial_rotary_factor": 1.0}),
         seq_len=65, batch=4, stored="float32", clip=0.75),
    Case("granite4", "Granite 4 H: two layers of Mamba of 4 heads in one group, then attention without RoPE, three chunks",
         "granitemoehybrid",
         shape(16, 4, 2, 20, 48, tied=True, layers=3, eps=5e-2, layer_types=["mamba", "mamba", "attention"],
               shared_intermediate_size=24, num_local_experts=0, num_experts_per_tok=0, output_router_logits=False,
               router_aux_loss_coef=0.01, position_embedding_type="nope", normalization_function="rmsnorm",
               init_method="mup", mamba_n_heads=4, mamba_n_groups=1, mamba_d_head=8, mamba_d_state=12, mamba_d_conv=4,
               mamba_expand=2, mamba_chunk_size=64, mamba_conv_bias=True, mamba_proj_bias=False, rope_theta=10000,
               rope_scaling=None, embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.5,
               logits_scaling=0.5, attention_bias=False),
         seq_len=150, batch=2, clip=2.0),
    Case("granite4_packed", "Granite 4 H with experts: top 2 of 4, two groups of heads, three taps without a bias, packed",
         "granitemoehybrid",
         shape(16, 2, 1, 6, 32, layers=2, eps=5e-2, layer_types=["attention", "mamba"], shared_intermediate_size=10,
               num_local_experts=4, num_experts_per_tok=2, position_embedding_type="nope", mamba_n_heads=4,
               mamba_n_groups=2, mamba_d_head=12, mamba_d_state=5, mamba_d_conv=3, mamba_expand=3,
               mamba_conv_bias=False, embedding_multiplier=1.5, attention_multiplier=0.3, residual_multiplier=0.7,
               logits_scaling=0.7),
         seq_len=198, batch=2, documents=True, labels=True, lengths=(1, 2, 3, 63, 64, 65), saved_config=True, clip=0.5),
    Case("granite4_rope", "Granite 4: attention with RoPE and biases, Mamba with biases and limits of the step, float32 file",
         "granitemoehybrid",
         shape(16, 2, 2, 20, 32, layers=2, eps=5e-2, layer_types=["mamba", "attention"], shared_intermediate_size=20,
               num_local_experts=0, position_embedding_type="rope", mamba_n_heads=6, mamba_n_groups=3, mamba_d_state=8,
               mamba_d_conv=2, mamba_expand=3, mamba_proj_bias=True, attention_bias=True, time_step_limit=[0.5, 1.6],
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         seq_len=65, batch=4, stored="float32"),
    Case("nemotron_h", "Nemotron 3 Nano: Mamba of two groups, experts beside a shared one, attention without RoPE, an MLP",
         "nemotron_h",
         shape(16, 4, 2, 20, 32, head_dim=6, layers=4, eps=None, hybrid_override_pattern="ME*-", layer_norm_epsilon=1e-5,
               mamba_num_heads=4, mamba_head_dim=6, n_groups=2, ssm_state_size=8, conv_kernel=4, mlp_hidden_act="relu2",
               n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=6,
               moe_shared_expert_intermediate_size=10, routed_scaling_factor=2.5, norm_topk_prob=True, n_group=1,
               topk_group=1, n_shared_experts=1, chunk_size=64, partial_rotary_factor=1.0, rope_theta=10000),
         seq_len=70, batch=2, clip=0.5),
    Case("nemotron_h_packed", "Nemotron-H: MLPs, steps of at least 0.5, three taps without a bias, packed, label mask",
         "nemotron_h",
         shape(16, 2, 1, 14, 32, head_dim=8, layers=4, eps=None, layers_block_type=[
                   "full_attention", "mlp", "linear_attention", "mlp"], layer_norm_epsilon=1e-1,
               mamba_num_heads=6, mamba_head_dim=5, n_groups=3, ssm_state_size=6, conv_kernel=3, use_conv_bias=False,
               time_step_min=0.5),
         seq_len=135, batch=2, documents=True, labels=True, lengths=(1, 2, 3, 64, 65), saved_config=True, clip=0.5),
    Case("falcon_h1", "Falcon-H1: every multiplier, Mamba with a gate and no norm beside attention, GQA 2", "falcon_h1",
         shape(16, 4, 2, 20, 32, head_dim=6, eps=1e-5, attention_in_multiplier=1.5, attention_out_multiplier=0.75,
               key_multiplier=0.5, ssm_in_multiplier=1.25, ssm_out_multiplier=0.5,
               ssm_multipliers=[0.75, 0.5, 1.25, 1.5, 0.875], mlp_multipliers=[0.875, 0.625], embedding_multiplier=1.5,
               lm_head_multiplier=0.5, mamba_d_ssm=24, mamba_n_heads=4, mamba_d_head=6, mamba_n_groups=2,
               mamba_d_state=8, mamba_d_conv=4, mamba_rms_norm=False, mamba_norm_before_gate=False, mamba_use_mlp=True,
               attn_layer_indices=None, mlp_expansion_factor=8, num_logits_to_keep=1, projectors_bias=False,
               rope_theta=1e11, rope_scaling=None),
         seq_len=70, batch=2, clip=0.5),
    Case("falcon_h1_packed", "Falcon-H1: a norm before the gate, tied, packed, label mask", "falcon_h1",
         shape(16, 2, 1, 14, 32, tied=True, eps=1e-1, mamba_d_ssm=20, mamba_n_heads=2, mamba_d_head=10, mamba_n_groups=1,
               mamba_d_state=6, mamba_d_conv=3, mamba_rms_norm=True, mamba_norm_before_gate=True, mamba_conv_bias=False,
               ssm_out_multiplier=0.5, attention_out_multiplier=0.75, lm_head_multiplier=2.0),
         seq_len=71, batch=2, documents=True, labels=True, lengths=(1, 2, 3, 65), saved_config=True, clip=0.5),
    Case("cohere", "Command R: layer norms, attention beside the MLP, RoPE in pairs, scaled logits, tied", "cohere",
         shape(16, 4, 4, 24, 32, tied=True, eps=None, layer_norm_eps=1e-5, logit_scale=0.75, use_qk_norm=False,
               rope_theta=10000.0, pad_token_id=0),
         seq_len=32, batch=8, clip=0.5),
    Case("cohere2", "Command R7B: a window and RoPE in three layers of four, neither in the fourth, GQA 2, tied", "cohere2",
         shape(16, 4, 2, 20, 32, tied=True, layers=4, eps=None, layer_norm_eps=1e-5, logit_scale=0.5, sliding_window=9,
               sliding_window_pattern=4, order_of_interleaved_layers="local_attn_first", rotary_pct=1.0,
               position_embedding_type="rope_gptj", use_embedding_sharing=True, use_gated_activation=True,
               use_parallel_block=True, use_parallel_embedding=False, layer_switch=4, rope_theta=50000, rope_scaling=None,
               pad_token_id=0),
         seq_len=32, batch=8, clip=0.5),
    Case("minimax_m2", "MiniMax M2: top 2 of 4 by a sigmoid router with a bias, norms over all heads, half a head rotates",
         "minimax_m2",
         shape(16, 4, 2, 6, 32, head_dim=8, eps=1e-6, num_local_experts=4, num_experts_per_tok=2, rotary_dim=4,
               rope_theta=5000000, attn_type_list=[1, 1], qk_norm_type="per_layer", scoring_func="sigmoid",
               use_qk_norm=True, use_routing_bias=True, shared_intermediate_size=0, num_mtp_modules=3,
               mtp_transformer_layers=1, output_router_logits=False, router_aux_loss_coef=0.001,
               router_jitter_noise=0.0),
         seq_len=32, batch=8, clip=0.5),
    Case("lfm2_packed", "LFM2: attention first, four taps with biases, its own head, packed, label mask", "lfm2",
         shape(16, 2, 1, 14, 32, eps=None, norm_eps=1e-2, block_auto_adjust_ff_dim=False, conv_L_cache=4, conv_bias=True,
               layer_types=["full_attention", "conv"]),
         seq_len=40, batch=8, documents=True, labels=True, lengths=(1, 2, 3, 15, 19), saved_config=True, clip=0.5),
    Case("gemma2_capped", "Gemma 2 as released: caps of attention's and of the final logits, a window in one layer, tied",
         "gemma2",
         shape(16, 4, 2, 20, 32, tied=True, head_dim=8, hidden_activation="gelu_pytorch_tanh", sliding_window=9,
               query_pre_attn_scalar=4, attn_logit_softcapping=2.0, final_logit_softcapping=3.0, rope_theta=10000.0,
               pad_token_id=0),
         seq_len=32, batch=8, clip=0.5),
    Case("gemma_packed", "Gemma: its own head, attention_bias, packed, label mask, float32 file", "gemma",
         shape(12, 2, 2, 14, 32, head_dim=8, hidden_act="gelu_pytorch_tanh", attention_bias=True),
         seq_len=40, batch=8, stored="float32", documents=True, labels=True, lengths=(1, 2, 3, 15, 19), clip=0.5),
    Case("arcee_packed", "Arcee: biases of attention and the MLP, tied, packed, label mask", "arcee",
         shape(12, 2, 1, 16, 32, tied=True, eps=1e-2, hidden_act="relu2", attention_bias=True, mlp_bias=True),
         seq_len=40, batch=8, documents=True, labels=True, lengths=(1, 2, 3, 15, 19), saved_config=True, clip=0.5),
    Case("ernie4_5", "ERNIE 4.5: RoPE in pairs, heads wider than hidden, tied, GQA 2", "ernie4_5",
         shape(12, 4, 2, 20, 32, tied=True, head_dim=6, eps=1e-5, use_bias=False, rope_theta=500000.0),
         seq_len=32, batch=8, clip=0.5),
    Case("olmoe", "OLMoE: top 2 of 4 by a softmax over all, norms over all heads", "olmoe",
         shape(16, 4, 4, 8, 32, eps=1e-5, num_experts=4, num_experts_per_tok=2, norm_topk_prob=False, clip_qkv=None,
               rope_theta=10000.0, router_aux_loss_coef=0.01, output_router_logits=False, pad_token_id=1),
         seq_len=32, batch=8, clip=0.5),
    Case("olmo2", "OLMo 2: norms behind the branches alone, q/k norm over all heads, every head its own key", "olmo2",
         shape(16, 4, 4, 24, 32, eps=1e-6, rope_theta=500000.0, rope_scaling=None, attention_bias=False,
               pad_token_id=1),
         seq_len=32, batch=8),
    Case("olmo2_packed", "OLMo 2: the same with attention_bias, GQA 4, tied, packed, label mask", "olmo2",
         shape(16, 4, 1, 20, 32, tied=True, attention_bias=True,
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         seq_len=40, batch=8, documents=True, labels=True, saved_config=True),
    Case("olmo3", "OLMo 3 as released: a window in three of four layers, yarn RoPE in the fourth, GQA 2", "olmo3",
         shape(16, 4, 2, 20, 32, layers=4, rope_theta=500000.0, sliding_window=7, pad_token_id=1, attention_bias=False,
               rope_scaling={"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64,
                             "attention_factor": 1.2079441541679836, "beta_fast": 32.0, "beta_slow": 1.0}),
         seq_len=40, batch=8),
    Case("olmo3_packed", "OLMo 3: a rope_theta of its own for each kind of layer, head size 6, packed, label mask",
         "olmo3",
         shape(18, 3, 1, 20, 32, sliding_window=5, layer_types=["full_attention", "sliding_attention"],
               rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0},
                                "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}),
         seq_len=36, batch=8, documents=True, labels=True, saved_config=True),
    Case("smollm3", "SmolLM3: a layer without RoPE, tied, GQA 2, fields as in the release", "smollm3",
         shape(16, 4, 2, 24, 32, tied=True, rope_theta=10000.0, rope_scaling=None, pad_token_id=3,
               no_rope_layers=[1, 0], no_rope_layer_interval=4, use_sliding_window=False, sliding_window=None,
               max_window_layers=28, layer_types=["full_attention"] * 2, pretraining_tp=2, attention_bias=False,
               mlp_bias=False),
         seq_len=32, batch=8),
    Case("smollm3_packed",
         "SmolLM3: no_rope_layer_interval alone, a window where there is no RoPE, yarn, mlp_bias, packed",
         "smollm3",
         shape(24, 4, 1, 20, 32, no_rope_layer_interval=2, use_sliding_window=True, sliding_window=6, mlp_bias=True,
               pad_token_id=3,
               rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0,
                                "original_max_position_embeddings": 32}),
         seq_len=40, batch=8, documents=True, labels=True, saved_config=True),
    Case("seed_oss", "Seed-OSS: q/k/v bias without o bias, heads wider than hidden, GQA 2", "seed_oss",
         shape(16, 4, 2, 24, 32, head_dim=6, rope_theta=10000.0, rope_scaling={"rope_type": "default"},
               attention_bias=True, attention_out_bias=False, mlp_bias=False, residual_dropout=0.0, pad_token_id=1),
         seq_len=32, batch=8),
    Case("seed_oss_packed", "Seed-OSS: biases of o and the MLP, tied, GQA 4, packed, label mask", "seed_oss",
         shape(16, 4, 1, 20, 32, tied=True, head_dim=8, attention_bias=False, attention_out_bias=True, mlp_bias=True,
               residual_dropout=0.0, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
         seq_len=40, batch=8, documents=True, labels=True, saved_config=True),
    Case("ministral3", "Ministral 3: yarn RoPE, queries that grow beyond 8 positions, GQA 2", "ministral3",
         shape(16, 4, 2, 24, 32, head_dim=8, eps=1e-5, pad_token_id=11,
               rope_parameters={"type": "yarn", "rope_type": "yarn", "rope_theta": 100.0, "factor": 16.0,
                                "original_max_position_embeddings": 8, "max_position_embeddings": 128,
                                "beta_fast": 1.0, "beta_slow": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0,
                                "llama_4_scaling_beta": 0.3}),
         seq_len=40, batch=8),
    Case("ministral3_packed", "Ministral 3: window, tied, GQA 4, packed, label mask", "ministral3",
         shape(16, 4, 1, 24, 32, tied=True, head_dim=8, eps=1e-5, sliding_window=9,
               rope_parameters={"rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0,
                                "original_max_position_embeddings": 10, "beta_fast": 1.0, "beta_slow": 0.1,
                                "llama_4_scaling_beta": 0.2}),
         seq_len=44, batch=8, documents=True, labels=True, saved_config=True),
    Case("glm4", "GLM-4 0414: RoPE in pairs on half of the head, norms around the branches, fused gate_up, GQA 2",
         "glm4",
         shape(16, 4, 2, 24, 32, head_dim=8, eps=1e-5, rope_theta=10000.0, partial_rotary_factor=0.5,
               attention_bias=False, pad_token_id=3),
         seq_len=32, batch=8),
    Case("glm4_packed", "GLM-4: q/k/v bias, three quarters of a head turn, tied, GQA 4, packed, label mask", "glm4",
         shape(16, 4, 1, 24, 32, tied=True, head_dim=8, eps=1e-5, attention_bias=True, pad_token_id=3,
               rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0,
                                "partial_rotary_factor": 0.75}),
         seq_len=40, batch=8, documents=True, labels=True, saved_config=True),
    Case("glm", "GLM-4 9B chat: the same without norms behind the branches, a quarter of the head turns, GQA 2", "glm",
         shape(16, 4, 2, 24, 32, head_dim=8, eps=1e-5, rope_theta=100.0, partial_rotary_factor=0.25,
               attention_bias=True, pad_token_id=3),
         seq_len=32, batch=8),
    Case("exaone4", "EXAONE 4 as released: llama3 RoPE in the layers with a window, none in every fourth, GQA 2",
         "exaone4",
         shape(16, 4, 2, 28, 32, layers=4, head_dim=6, eps=1e-5, sliding_window=7, sliding_window_pattern="LLLG",
               layer_types=["sliding_attention"] * 3 + ["full_attention"], rope_theta=500.0,
               rope_scaling={"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                             "original_max_position_embeddings": 64, "rope_type": "llama3"}),
         seq_len=40, batch=8),
    Case("exaone4_packed", "EXAONE 4 without windows, so RoPE in every layer, tied, GQA 4, packed, label mask",
         "exaone4",
         shape(16, 4, 1, 20, 32, tied=True, head_dim=8, eps=1e-5, layer_types=["full_attention"] * 2,
               rope_parameters={"rope_type": "default", "rope_theta": 1000.0}) | {"sliding_window": None},
         seq_len=40, batch=8, documents=True, labels=True, saved_config=True),
    Case("gemma2", "Gemma 2 without a cap in attention: a window in every second layer, capped logits, GQA 2", "gemma2",
         shape(16, 4, 2, 20, 32, tied=None, head_dim=8, hidden_act="gelu_pytorch_tanh",
               hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=20, sliding_window=7, rope_theta=10000.0,
               pad_token_id=0, attention_bias=False, final_logit_softcapping=3.0, cache_implementation="hybrid")
         | {"attn_logit_softcapping": None},
         seq_len=40, batch=8),
    Case("qwen3_5_moe", "Qwen3.5-MoE as released: fused experts, top 2 of 5, a gated shared expert, a delta net, GQA 2",
         "qwen3_5_moe_text",
         shape(16, 2, 1, None, 48, head_dim=8, layers=2, eps=5e-2, layer_types=["linear_attention", "full_attention"],
               linear_num_key_heads=1, linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
               linear_conv_kernel_dim=4, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=6,
               shared_expert_intermediate_size=10, output_router_logits=False, router_aux_loss_coef=0.001,
               rope_parameters={"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.5}),
         seq_len=80, batch=4, lr=6e-3, clip=0.5, fused=True),
    Case("qwen3_5_moe_packed", "Qwen3.5-MoE: experts one by one, top 3 of 4, packed documents, label mask",
         "qwen3_5_moe_text",
         shape(16, 4, 2, None, 32, head_dim=8, layers=2, eps=5e-2, layer_types=["full_attention", "linear_attention"],
               linear_num_key_heads=2, linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16,
               linear_conv_kernel_dim=3, num_experts=4, num_experts_per_tok=3, moe_intermediate_size=10,
               shared_expert_intermediate_size=6,
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}),
         seq_len=70, batch=4, lr=6e-3, clip=0.5, documents=True, labels=True, longest_document=66, saved_config=True),
    Case("qwen3_next", "Qwen3-Next as released: projections by key head, two value heads each, top 2 of 5, a gated shared "
         "expert, GQA 2", "qwen3_next",
         shape(16, 2, 1, 24, 48, head_dim=8, layers=2, eps=5e-2, full_attention_interval=2,
               linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16,
               linear_conv_kernel_dim=4, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=6,
               shared_expert_intermediate_size=10, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
               output_router_logits=False, router_aux_loss_coef=0.001, partial_rotary_factor=0.5, rope_scaling=None,
               rope_theta=10000000),
         seq_len=80, batch=4, lr=6e-3, clip=0.5),
    Case("qwen3_next_packed", "Qwen3-Next: value heads twice as wide as key heads, top 3 of 4, not normalised, a dense "
         "layer, tied, packed documents, label mask", "qwen3_next",
         shape(16, 4, 2, 20, 32, tied=True, head_dim=8, layers=2, eps=5e-2,
               layer_types=["full_attention", "linear_attention"], linear_num_key_heads=2, linear_num_value_heads=2,
               linear_key_head_dim=16, linear_value_head_dim=32, linear_conv_kernel_dim=3, num_experts=4,
               num_experts_per_tok=3, moe_intermediate_size=10, shared_expert_intermediate_size=6,
               norm_topk_prob=False, mlp_only_layers=[0],
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}),
         seq_len=70, batch=4, lr=6e-3, clip=0.5, documents=True, labels=True, longest_document=66, saved_config=True),
    Case("qwen3_next_heads", "Qwen3-Next: three value heads a key head, every second layer dense, whole heads turn, "
         "float32 file", "qwen3_next",
         shape(16, 2, 2, 16, 32, head_dim=8, layers=2, eps=1e-2, layer_types=["full_attention", "linear_attention"],
               linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=16, linear_value_head_dim=16,
               linear_conv_kernel_dim=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=6,
               shared_expert_intermediate_size=6, norm_topk_prob=True, decoder_sparse_step=2,
               rope_parameters={"rope_type": "default", "rope_theta": 100000.0, "partial_rotary_factor": 1.0}),
         seq_len=65, batch=4, stored="float32", clip=0.5),
    Case("qwen3_moe", "Qwen3-MoE: top 2 of 8, normalised, GQA 2, three shards", "qwen3_moe",
         shape(32, 4, 2, 48, 64, head_dim=8, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=12,
               norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rope_theta=10000.0,
               use_sliding_window=False, max_window_layers=2, output_router_logits=False, router_aux_loss_coef=0.001),
         seq_len=32, batch=8, shards=3, clip=0.7),
    Case("qwen3_moe_dense", "Qwen3-MoE: top 8 of 16, not normalised, a dense layer by mlp_only_layers, attention_bias",
         "qwen3_moe",
         shape(32, 4, 2, 24, 64, head_dim=8, num_experts=16, num_experts_per_tok=8, moe_intermediate_size=10,
               norm_topk_prob=False, mlp_only_layers=[0], attention_bias=True,
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         seq_len=32, batch=8, saved_config=True, clip=0.7),
    Case("qwen3_moe_top1", "Qwen3-MoE: top 1 of 6, not normalised, every second layer dense, tied, packed", "qwen3_moe",
         shape(16, 4, 1, 16, 48, tied=True, head_dim=4, layers=2, num_experts=6, num_experts_per_tok=1,
               moe_intermediate_size=8, norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[],
               rope_theta=10000.0),
         seq_len=40, batch=8, documents=True, clip=1.2),
    Case("qwen3_moe_skew", "Qwen3-MoE: top 3 of 8 of which three experts have no token, float32 file", "qwen3_moe",
         shape(16, 2, 2, 16, 48, head_dim=8, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=6,
               norm_topk_prob=True, rope_theta=10000.0),
         seq_len=32, batch=8, stored="float32", idle=[1, 4, 7], clip=0.65),
    Case("qwen3_moe_aux", "Qwen3-MoE: top 2 of 6 with the loss that balances them, a dense layer between", "qwen3_moe",
         shape(24, 4, 2, 16, 48, head_dim=6, layers=3, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=8,
               norm_topk_prob=False, mlp_only_layers=[1], rope_theta=10000.0, output_router_logits=True,
               router_aux_loss_coef=0.4),
         seq_len=24, batch=4, aux_loss=0.4),
    Case("qwen2_moe", "Qwen2-MoE: top 2 of 5, not normalised, a gated shared expert, GQA 2", "qwen2_moe",
         shape(16, 2, 1, 24, 48, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=6,
               shared_expert_intermediate_size=20, norm_topk_prob=False, decoder_sparse_step=1, rope_theta=10000.0,
               use_sliding_window=False, sliding_window=32768, max_window_layers=2, output_router_logits=False,
               router_aux_loss_coef=0.001),
         seq_len=32, batch=8, clip=0.5),
    Case("qwen2_moe_packed",
         "Qwen2-MoE: top 3 of 5, normalised, a shared expert as narrow as the others, a dense layer, "
         "the loss that balances, no qkv_bias, packed", "qwen2_moe",
         shape(16, 4, 2, 10, 32, layers=3, num_experts=5, num_experts_per_tok=3, moe_intermediate_size=8,
               shared_expert_intermediate_size=8, norm_topk_prob=True, mlp_only_layers=[1], qkv_bias=False,
               output_router_logits=False, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         seq_len=32, batch=4, documents=True, labels=True, saved_config=True, aux_loss=0.3),
    Case("glm4_moe",
         "GLM 4.5 Air: a dense layer, then top 2 of 6 by sigmoids with a bias, one shared expert, half a head "
         "turns, q/k/v bias, GQA 2", "glm4_moe",
         shape(16, 2, 1, 24, 48, head_dim=8, eps=1e-5, attention_bias=True, n_routed_experts=6, num_experts_per_tok=2,
               n_shared_experts=1, moe_intermediate_size=6, routed_scaling_factor=1.0, norm_topk_prob=True, n_group=1,
               topk_group=1, first_k_dense_replace=1, use_qk_norm=False, partial_rotary_factor=0.5,
               num_nextn_predict_layers=1, rope_theta=1000.0, rope_scaling=None),
         seq_len=32, batch=8, clip=0.5),
    Case("glm4_moe_norm", "GLM 4.5: q/k norm, two shared experts, top 2 of the better of two groups of 3, a factor, "
         "packed", "glm4_moe",
         shape(16, 2, 2, 16, 32, head_dim=12, eps=1e-5, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
               moe_intermediate_size=6, routed_scaling_factor=2.5, n_group=2, topk_group=1, first_k_dense_replace=0,
               use_qk_norm=True,
               rope_parameters={"rope_type": "default", "rope_theta": 1000.0, "partial_rotary_factor": 0.5}),
         seq_len=32, batch=4, documents=True, labels=True, saved_config=True, clip=0.5),
    Case("glm4_moe_whole", "GLM 4.5: top 2 of 5, all of a head turns, float32 file, shuffled order", "glm4_moe",
         shape(16, 4, 2, 16, 32, eps=1e-5, attention_bias=True, n_routed_experts=5, num_experts_per_tok=2,
               moe_intermediate_size=8, routed_scaling_factor=1.8, first_k_dense_replace=1, partial_rotary_factor=1.0,
               rope_theta=1000.0),
         seq_len=24, batch=8, stored="float32", order=True, clip=0.5),
    Case("glm4_moe_lite", "GLM 4.7 Flash: latent attention with narrow queries, keys as wide as values, pairs turn",
         "glm4_moe_lite",
         shape(16, 2, 2, 24, 48, eps=1e-5, q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=4,
               v_head_dim=10, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=6,
               routed_scaling_factor=1.8, norm_topk_prob=True, n_group=1, topk_group=1, first_k_dense_replace=1,
               rope_theta=1000.0, attention_bias=False),
         seq_len=32, batch=8, clip=0.5),
    Case("glm4_moe_lite_whole", "GLM 4.7 Flash: queries made from the input, values narrower than keys, halves turn, "
         "packed", "glm4_moe_lite",
         shape(16, 2, 2, 16, 32, eps=1e-5, kv_lora_rank=12, qk_nope_head_dim=4, qk_rope_head_dim=6,
               v_head_dim=7, n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=6,
               mlp_layer_types=["sparse", "dense"], rope_interleave=False,
               rope_parameters={"rope_type": "default", "rope_theta": 1000.0}) | {"q_lora_rank": None},
         seq_len=32, batch=4, documents=True, labels=True, saved_config=True, clip=0.5),
    Case("glm4_moe_lite_bias", "GLM 4.7 Flash: attention_bias, every layer has experts, float32 file",
         "glm4_moe_lite",
         shape(16, 4, 4, 16, 32, eps=1e-5, q_lora_rank=10, kv_lora_rank=6, qk_nope_head_dim=4,
               qk_rope_head_dim=4, v_head_dim=6, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=6,
               routed_scaling_factor=1.0, mlp_layer_types=["sparse", "sparse"], attention_bias=True, rope_theta=1000.0),
         seq_len=24, batch=8, stored="float32", clip=0.5),
    Case("deepseek_v3",
         "DeepSeek V3: latent attention with yarn and its factor for the softmax, top 3 of the better two "
         "of three groups", "deepseek_v3",
         shape(16, 2, 2, 24, 48, q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=8, v_head_dim=6,
               n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=1, moe_intermediate_size=6,
               routed_scaling_factor=2.5, norm_topk_prob=True, n_group=3, topk_group=2, first_k_dense_replace=1,
               topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1, ep_size=1, aux_loss_alpha=0.001,
               seq_aux=True, num_nextn_predict_layers=1, rope_theta=1000.0,
               rope_scaling={"type": "yarn", "factor": 8.0, "beta_fast": 8.0, "beta_slow": 1.0, "mscale": 1.0,
                             "mscale_all_dim": 1.0, "truncate": False, "original_max_position_embeddings": 64}),
         seq_len=40, batch=8, clip=0.5),
    Case("deepseek_v3_packed",
         "DeepSeek V3: unlike mscales, top 3 of 6 without groups, 3 layers of which two are dense, "
         "packed", "deepseek_v3",
         shape(16, 2, 2, 16, 32, layers=3, q_lora_rank=8, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=8,
               v_head_dim=14, n_routed_experts=6, num_experts_per_tok=3, moe_intermediate_size=6, n_group=1,
               topk_group=1, routed_scaling_factor=1.0, first_k_dense_replace=2,
               rope_parameters={"rope_type": "yarn", "rope_theta": 1000.0, "factor": 8.0, "beta_fast": 8.0,
                                "beta_slow": 1.0, "mscale": 0.7, "mscale_all_dim": 1.0, "truncate": False,
                                "original_max_position_embeddings": 64}),
         seq_len=32, batch=4, documents=True, labels=True, saved_config=True, clip=0.5),
    Case("mistral4", "Mistral Small 4: latent attention with yarn, queries that grow beyond 8 positions, top 2 of 5 by "
         "softmax, experts in two tensors", "mistral4",
         shape(16, 2, 2, 24, 48, q_lora_rank=12, kv_lora_rank=8, qk_nope_head_dim=4, qk_rope_head_dim=8, v_head_dim=6,
               n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=6,
               routed_scaling_factor=1.0, norm_topk_prob=True, n_group=1, topk_group=1, first_k_dense_replace=0,
               pad_token_id=11,
               rope_parameters={"type": "yarn", "rope_type": "yarn", "rope_theta": 100.0, "factor": 16.0,
                                "original_max_position_embeddings": 8, "max_position_embeddings": 128,
                                "beta_fast": 1.0, "beta_slow": 0.1, "mscale": 1.0, "mscale_all_dim": 1.0,
                                "llama_4_scaling_beta": 0.3}),
         seq_len=40, batch=8, clip=0.5),
    Case("mistral4_packed", "Mistral Small 4: queries made from the input, values as wide as keys, halves turn, top 2 of 6, "
         "not normalised, a factor, two shared experts, a dense layer, packed", "mistral4",
         shape(16, 2, 2, 16, 32, tied=True, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=14,
               n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=6,
               routed_scaling_factor=1.5, norm_topk_prob=False, first_k_dense_replace=1, rope_interleave=False,
               rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0,
                                "original_max_position_embeddings": 10, "beta_fast": 1.0, "beta_slow": 0.1,
                                "mscale": 0.7, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.2})
         | {"q_lora_rank": None},
         seq_len=44, batch=4, documents=True, labels=True, saved_config=True, clip=0.5),
    Case("mistral4_whole", "Mistral Small 4 with a vision tower, as released: attention_bias, float32 file", "mistral4",
         shape(16, 4, 4, 16, 32, tied=None, q_lora_rank=10, kv_lora_rank=6, qk_nope_head_dim=2, qk_rope_head_dim=8,
               v_head_dim=4, n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=6, attention_bias=True,
               rope_parameters={"type": "yarn", "rope_theta": 100.0, "factor": 16.0, "beta_fast": 1.0, "beta_slow": 0.1,
                                "original_max_position_embeddings": 8, "mscale": 1.0, "mscale_all_dim": 1.0,
                                "llama_4_scaling_beta": 0.1}),
         seq_len=32, batch=8, stored="float32", clip=0.5,
         whole={"model_type": "mistral3", "vision_config": PIXTRAL, "image_token_index": 10, "spatial_merge_size": 2,
                "multimodal_projector_bias": False, "projector_hidden_act": "gelu", "vision_feature_layer": -1,
                "tie_word_embeddings": False}),
    Case("kimi_k25", "Kimi K2.5 with a vision tower, in bfloat16: top 3 of 6 without groups, a dense layer, packed",
         "deepseek_v3",
         shape(16, 2, 2, 16, 32, tied=False, eps=1e-5, q_lora_rank=8, kv_lora_rank=12, qk_nope_head_dim=6,
               qk_rope_head_dim=8, v_head_dim=14, n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=1,
               moe_intermediate_size=6, n_group=1, topk_group=1, routed_scaling_factor=2.827, norm_topk_prob=True,
               first_k_dense_replace=1, topk_method="noaux_tc", scoring_func="sigmoid", moe_layer_freq=1, ep_size=1,
               aux_loss_alpha=0.001, seq_aux=True, num_nextn_predict_layers=0, rope_theta=1000.0,
               rope_scaling={"type": "yarn", "factor": 8.0, "beta_fast": 8.0, "beta_slow": 1.0, "mscale": 1.0,
                             "mscale_all_dim": 1.0, "original_max_position_embeddings": 64}),
         seq_len=32, batch=4, documents=True, labels=True, clip=0.5,
         whole={"model_type": "kimi_k25", "vision_config": MOON_VIT, "projection_hidden_size": 8, "ignore_index": -100,
                "media_placeholder_token_id": 29, "use_unified_vision_chunk": True, "video_placeholder": "<video>",
                "tie_word_embeddings": False}),
    Case("mixtral", "Mixtral: top 2 of 4, every head its own key, shuffled order", "mixtral",
         shape(32, 4, 4, 20, 64, eps=1e-5, num_local_experts=4, num_experts_per_tok=2, rope_theta=1000000.0,
               sliding_window=None, output_router_logits=False, router_aux_loss_coef=0.02),
         seq_len=32, batch=8, order=True),
    Case("mixtral_packed", "Mixtral: top 2 of 4, GQA 4, window, packed documents, label mask", "mixtral",
         shape(16, 4, 1, 12, 48, eps=1e-5, num_local_experts=4, num_experts_per_tok=2, sliding_window=9,
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         seq_len=40, batch=8, documents=True, labels=True, saved_config=True, clip=0.7),
    Case("mixtral_aux", "Mixtral: top 2 of 4 with both losses of the router, packed documents, some not trained",
         "mixtral",
         shape(24, 4, 2, 10, 48, eps=1e-5, num_local_experts=4, num_experts_per_tok=2, sliding_window=None,
               rope_theta=10000.0),
         seq_len=32, batch=4, documents=True, labels=True, aux_loss=0.3, z_loss=0.02),
    Case("gpt_oss", "gpt-oss: top 4 of 8, sinks, windows in every second layer, yarn that does not truncate", "gpt_oss",
         shape(32, 4, 2, 10, 64, head_dim=8, eps=1e-5, num_local_experts=8, num_experts_per_tok=4, sliding_window=7,
               layer_types=["sliding_attention", "full_attention"], attention_bias=True, rope_theta=1000.0,
               rope_scaling={"beta_fast": 8.0, "beta_slow": 1.0, "factor": 8.0, "rope_type": "yarn", "truncate": False,
                             "original_max_position_embeddings": 64},
               experts_per_token=4, initial_context_length=64, swiglu_limit=7.0, output_router_logits=False,
               router_aux_loss_coef=0.9),
         seq_len=40, batch=8, clip=0.65),
    Case("gpt_oss_mxfp4", "gpt-oss as released: top 2 of 4 with the experts in MXFP4, GQA 4, packed, label mask",
         "gpt_oss",
         shape(32, 4, 1, 32, 64, head_dim=8, eps=1e-5, num_local_experts=4, num_experts_per_tok=2, sliding_window=5,
               rope_theta=1000.0,
               rope_scaling={"beta_fast": 8.0, "beta_slow": 1.0, "factor": 8.0, "rope_type": "yarn", "truncate": False,
                             "original_max_position_embeddings": 64},
               swiglu_limit=3.5,
               quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": [
                   "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}),
         seq_len=40, batch=8, documents=True, labels=True, mxfp4=True),
    Case("gpt_oss_top1", "gpt-oss: top 1 of 5 of which two have no token, tied, no attention_bias, RoPE not scaled",
         "gpt_oss",
         shape(16, 4, 2, 10, 48, tied=True, head_dim=4, eps=1e-5, num_local_experts=5, num_experts_per_tok=1,
               sliding_window=9, layer_types=["full_attention", "sliding_attention"], attention_bias=False,
               rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
         seq_len=32, batch=8, saved_config=True, idle=[0, 3]),
    Case("qwen3_fp8", "Qwen3 as released in fp8: matrices of one block and of two of which one is partial, tied",
         "qwen3",
         shape(130, 2, 1, 12, 32, tied=True, head_dim=12, attention_bias=False, rope_theta=1000000.0,
               quantization_config={"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                    "weight_block_size": [128, 128], "modules_to_not_convert": [
                                        "lm_head", "model.layers.1.self_attn.k_proj",
                                        *(f"model.layers.{layer}.{norm}" for layer in range(2)
                                          for norm in ("input_layernorm", "post_attention_layernorm"))]}),
         seq_len=32, batch=8, clip=4.0, fp8=True),
    Case("qwen3_moe_fp8", "Qwen3-MoE as released in fp8: top 2 of 4 experts, each matrix in tensors of its own",
         "qwen3_moe",
         shape(24, 4, 2, 24, 48, head_dim=6, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=10,
               norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[], rope_theta=10000.0,
               quantization_config={"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                                    "weight_block_size": [128, 128],
                                    "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate",
                                                               "model.layers.1.mlp.gate"]}),
         seq_len=32, batch=8, clip=0.7, fp8=True),
    Case("gemma3_whole", "Gemma 3 with a vision tower, as hubs hold it: text_config with fields left out, local layers",
         "gemma3_text",
         shape(32, None, 2, 16, 32, tied=None, eps=None, head_dim=4, hidden_act=None, sliding_window=7,
               sliding_window_pattern=2, rope_scaling={"factor": 8.0, "rope_type": "linear"},
               query_pre_attn_scalar=40),
         seq_len=32, batch=8, clip=1.2,
         whole={"model_type": "gemma3", "vision_config": SIGLIP, "mm_tokens_per_image": 4, "boi_token_index": 29,
                "eoi_token_index": 30, "image_token_index": 31, "initializer_range": 0.02, "eos_token_id": [1, 28]}),
    Case("mistral3_whole", "Mistral 3 with a vision tower: its own head, modules' names, packed, float32 file",
         "mistral",
         shape(16, 4, 2, 16, 32, head_dim=8, eps=1e-5, rope_theta=1000.0, sliding_window=None),
         seq_len=36, batch=8, stored="float32", documents=True, labels=True, module_names=True,
         whole={"model_type": "mistral3", "vision_config": PIXTRAL, "image_token_index": 10, "spatial_merge_size": 2,
                "multimodal_projector_bias": False, "projector_hidden_act": "gelu", "vision_feature_layer": -1,
                "tie_word_embeddings": False}),
    Case("qwen2_5_vl", "Qwen2.5-VL: RoPE with three axes, all fields beside vision_config", "qwen2",
         shape(16, 2, 1, 16, 32, rope_theta=1000.0, use_sliding_window=False, sliding_window=16, max_window_layers=1,
               rope_scaling={"type": "mrope", "mrope_section": [1, 1, 2]}),
         seq_len=32, batch=8, clip=0.6, flat=True,
         whole={"model_type": "qwen2_5_vl", "vision_config": QWEN_TOWER | {"fullatt_block_indexes": [0]},
                "image_token_id": 28, "video_token_id": 29, "vision_start_token_id": 30, "vision_end_token_id": 31,
                "tie_word_embeddings": False}),
    Case("qwen3_vl", "Qwen3-VL: interleaved RoPE with three axes, tied, packed, two shards", "qwen3",
         shape(16, 4, 2, 16, 32, tied=True, head_dim=16, attention_bias=False, rope_theta=5000000.0,
               rope_scaling={"rope_type": "default", "mrope_interleaved": True, "mrope_section": [4, 2, 2]}),
         seq_len=36, batch=8, documents=True, shards=2,
         whole={"model_type": "qwen3_vl",
                "vision_config": QWEN_TOWER | {"deepstack_visual_indexes": [0], "num_position_embeddings": 16},
                "image_token_id": 28, "video_token_id": 29, "vision_start_token_id": 30, "vision_end_token_id": 31,
                "tie_word_embeddings": True}),
    Case("long_llama", "8K tokens in one document, yarn RoPE, GQA 2", "llama",
         shape(16, 2, 1, 24, 64, head_dim=8, max_position_embeddings=8192,
               rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                                "original_max_position_embeddings": 2048}),
         seq_len=8192, batch=1, saved_config=True, steps=2, clip=0.1),
    Case("long_qwen3", "8K tokens: q/k norm, a window of 1000 in layer 1, packed documents of up to 5000", "qwen3",
         shape(16, 2, 1, 24, 64, head_dim=8, attention_bias=False, use_sliding_window=True, sliding_window=1000,
               max_window_layers=1, layer_types=["full_attention", "sliding_attention"],
               max_position_embeddings=8192, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
         seq_len=8192, batch=1, documents=True, longest_document=5000, saved_config=True, steps=2, clip=0.1),
]


# ---- models ----------------------------------------------------------------------------------------------------------

def write_whole_config(case, directory):
    architecture, text_type = WHOLE[case.whole["model_type"]]
    text_type = case.family if case.family == "mistral4" else text_type
    fields = case.whole | {"architectures": [architecture], "torch_dtype": case.stored,
                           "transformers_version": "4.52.0"}
    if case.flat:
        fields = case.config | COMMON | {"num_hidden_layers": case.config["num_hidden_layers"]} | fields
    else:
        fields["text_config"] = case.config | {"model_type": text_type}
    (directory / "config.json").write_text(json.dumps(dict(sorted(fields.items())), indent=2) + "\n")


def write_config(case, directory):
    if case.whole:
        return write_whole_config(case, directory)
    fields = COMMON | case.config
    if "hidden_activation" in fields:
        del fields["hidden_act"]
    if case.saved_config:
        config = AutoConfig.for_model(case.family, **fields)
        config.architectures = [ARCHITECTURE[case.family]]
        config.dtype = case.stored
        config.save_pretrained(directory)
        return
    fields |= {"architectures": [ARCHITECTURE[case.family]], "model_type": case.family, "torch_dtype": case.stored,
               "transformers_version": "4.45.0"}
    if case.family == "llama":
        fields |= {"pretraining_tp": 1, "rope_scaling": case.config.get("rope_scaling")}
    (directory / "config.json").write_text(json.dumps(dict(sorted(fields.items())), indent=2) + "\n")


def draw_weight(name, tensor_shape, case, config, rng):
    """Large enough that attention is far from uniform and no gradient vanishes."""
    noise = rng.standard_normal(tensor_shape)
    if case.family.startswith("gemma4"):
        return draw_gemma4_weight(name, noise, config, rng)
    if ".linear_attn." in name and len(tensor_shape) == 1:
        if name.endswith("A_log"):
            return np.log(0.03 + 0.15 * rng.random(tensor_shape))
        return 1.0 + 0.15 * noise
    if name.endswith("conv1d.weight"):  # of one sign: no query and no key is nearly zero, which norms would enlarge
        return 0.5 + 0.15 * noise
    if re.search(r"\.(mamba|mixer)\.(A_log|dt_bias|D|conv1d\.bias|norm\.weight)$", name):
        return draw_mamba_weight(name, noise, rng)
    if has_experts(case):
        return draw_expert_weight(name, noise, case, config, rng)
    if name.endswith(("norm.weight", "norm_f.weight")):
        if config.model_type == "qwen3_5_text":  # stored less one
            return 0.15 * noise
        # stored less one; those behind a half outweigh the tied embedding
        if config.model_type in ("gemma", "gemma2", "gemma3_text"):
            return (2.0 if ".post_" in name else 0.0) + 0.15 * noise
        # else bfloat16's error grows by layers
        if config.model_type in ("olmo2", "olmo3", "exaone4") and ".layers." in name:
            return (0.4 if ".post_" in name else 0.7) + 0.08 * noise
        if config.model_type == "glm4" and re.search(r"\.post_(self_attn|mlp)_", name):
            return 0.4 + 0.08 * noise
        return 1.0 + 0.15 * noise
    if name.endswith(".bias"):
        return 0.3 * noise
    if name in ("model.embed_tokens.weight", "model.embeddings.weight"):
        tied = 0.1 if config.model_type == "phi3" else 0.25
        is_tied = case.whole.get("tie_word_embeddings", getattr(config, "tie_word_embeddings", False))
        return (tied if is_tied else 0.8) * noise
    gain = 0.6 if re.search(r"\.(o_proj|out_proj|down_proj|output_linear)\.", name) else 1.0
    return gain / math.sqrt(tensor_shape[1]) * noise


def draw_mamba_weight(name, noise, rng):
    """States that last for some tokens, and steps near one."""
    if name.endswith("A_log"):
        return np.log(0.05 + 0.25 * rng.random(noise.shape))
    if name.endswith("conv1d.bias"):
        return 0.1 * noise
    return (0.3 if name.endswith("dt_bias") else 1.0) + 0.15 * noise


CHOICE_BIAS = "e_score_correction_bias"  # a buffer, which files hold in float32
SIGMOID_FAMILIES = ("glm4_moe", "glm4_moe_lite", "deepseek_v3", "nemotron_h", "minimax_m2")
LESS_ONE = ("qwen3_5_moe_text", "qwen3_next")  # files have the weights of norms less one
STACKED = ("gpt_oss", "mistral4")  # files have all experts of a layer in one tensor
EXPERT_FAMILIES = ("qwen2_moe", *LESS_ONE, "qwen3_moe", "mistral4", "mixtral", "gpt_oss", *SIGMOID_FAMILIES, "olmoe")


def has_experts(case):
    if case.family == "nemotron_h":
        return "n_routed_experts" in case.config
    return case.family in EXPERT_FAMILIES or case.config.get("num_local_experts", 0) > 0


def experts_of(config):
    return next(getattr(config, key) for key in ("num_local_experts", "num_experts") if hasattr(config, key))


def order_of_experts(config, rng, most):
    """Of groups, some are clearly better than the others."""
    experts, groups = experts_of(config), getattr(config, "n_group", None) or 1
    while True:
        order = rng.permutation(experts) / (experts - 1)
        if groups == 1 or config.topk_group == groups:
            return order
        scores = (1 / (1 + np.exp(-most * (2 * order - 1)))).reshape(groups, -1)
        scores[:, 1] += 1.5
        sums = np.sort(np.sort(scores)[:, -2:].sum(-1))[::-1]
        if sums[config.topk_group - 1] - sums[config.topk_group] > 0.2:
            return order


def draw_expert_weight(name, noise, case, config, rng):
    """The first elements of a token's embedding order the experts, and the layers add little to them: what a router
    chooses then does not hang on rounding, which would make bfloat16 runs take other experts."""
    experts = experts_of(config)
    if name.endswith(("norm.weight", "norm_f.weight")):
        return (0.0 if case.family in LESS_ONE else 1.0) + 0.05 * noise
    if name.endswith(("embed_tokens.weight", "embeddings.weight")):
        values = (0.3 if config.tie_word_embeddings else 0.8) * noise
        most = 0.6 if config.tie_word_embeddings else 1.5
        order = np.stack([order_of_experts(config, rng, most) for _ in values])  # 0 .. 1, all apart
        values[:, :experts] = (2 * order - 1) * most
        values[:, case.idle] = -1.5 * most
        return values
    if name.endswith(CHOICE_BIAS):
        size = experts // (getattr(config, "n_group", None) or 1)  # the second expert of each group goes before the others
        return np.where(np.arange(experts) % size == 1, 1.5, 0.0)
    if re.search(r"\.(gate|router)\.weight$", name):
        return (1.0 if case.family in SIGMOID_FAMILIES else 2.5) * np.eye(*noise.shape) + 0.16 / experts * noise
    if name.endswith("router.bias"):
        return 0.02 * noise
    if name.endswith(("bias", "sinks")):
        values = 0.3 * noise
        if name.endswith("down_proj_bias") or name.endswith("o_proj.bias"):
            values[..., :experts] *= 0.02
        return values
    transposed = case.family == "gpt_oss" and name.endswith(("gate_up_proj", "down_proj"))
    gain = 0.6 if re.search(r"\.((o|out|down)_proj|output_linear)\b", name) else 1.0
    values = gain / math.sqrt(noise.shape[-2 if transposed else -1]) * noise
    if gain < 1:  # rows of the product
        (values.swapaxes(-1, -2) if transposed else values)[..., :experts, :] *= 0.02
    return values


def draw_gemma4_weight(name, noise, config, rng):
    """Attention does not divide its scores, so norms of q and k are small. With experts, the layers add little to the
    elements that order them, as above."""
    moe, deep = getattr(config, "enable_moe_block", False), config.num_hidden_layers > 2
    if name.endswith("layer_scalar"):
        return 0.9 + 0.05 * noise
    if re.search(r"[qk]_norm\.", name):
        return (0.5 if config.attention_k_eq_v and not deep else 0.7) + 0.1 * noise
    if "norm" in name:
        return ((0.2 if deep else 0.5) if "post_" in name else 1.0) + 0.05 * noise
    if name.endswith("router.scale"):
        return 1.0 + 0.05 * noise
    if name.endswith("per_expert_scale"):
        return 1.0 + 0.3 * noise
    experts = config.num_experts if moe else 0
    if name.endswith("embed_tokens.weight"):
        values = 0.25 * noise
        if moe:
            order = np.stack([rng.permutation(experts) for _ in values]) / (experts - 1)
            values[:, :experts] = (2 * order - 1) * 0.6
        return values
    if name.endswith("embed_tokens_per_layer.weight"):
        return 0.5 * noise
    if name.endswith("router.proj.weight"):
        return math.sqrt(noise.shape[1]) * (0.8 * np.eye(*noise.shape) + 0.1 / experts * noise)
    gain = 0.6 if re.search(r"\.(o|down)_proj\b", name) else 1.0
    values = gain / math.sqrt(noise.shape[-1]) * noise
    if gain < 1 and moe:
        values[..., :experts, :] *= 0.02
    return values


GRANITE_FILES = {".experts.gate_up_proj": ".input_linear.weight", ".experts.down_proj": ".output_linear.weight",
                 ".router.weight": ".router.layer.weight"}


def as_granite_files(tensors):
    """Under the names of files, from those of transformers' modules."""
    def renamed(name):
        for module, file in GRANITE_FILES.items():
            if name.endswith(module):
                return name.removesuffix(module) + file
        return name
    return {renamed(name): tensor for name, tensor in tensors.items()}


def own_tensors(case, tensors):
    """Every expert's own tensors, under the names of files that hold them so, from those of all experts together."""
    own = {}
    for name, tensor in tensors.items():
        found = re.fullmatch(r"(.*\.experts)\.(gate_up_proj|up_proj|down_proj)(_bias)?", name)
        if not found:
            own[name] = tensor
            continue
        prefix, module, bias = found.groups()
        kind = "bias" if bias else "weight"
        for expert, values in enumerate(tensor):
            if case.family == "gpt_oss" and not bias:
                values = values.T
            parts = {module: values}
            if module == "gate_up_proj":
                half = len(values) // 2
                gate, up = (values[0::2], values[1::2]) if case.family == "gpt_oss" else (values[:half], values[half:])
                parts = {"gate_proj": gate, "up_proj": up}
            own |= {f"{prefix}.{expert}.{part}.{kind}": value for part, value in parts.items()}
    if case.family == "granitemoehybrid":  # files hold its experts together, under other names
        return as_granite_files(own)
    if case.family not in ("mixtral", "minimax_m2"):
        return own
    short = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
    renamed = {re.sub(r"(experts\.\d+)\.(\w+)", lambda m: f"{m[1]}.{short[m[2]]}", name): tensor
               for name, tensor in own.items()}
    return {name.replace(".mlp.", ".block_sparse_moe."): tensor for name, tensor in renamed.items()}


def quantised(tensors, rng):
    """The experts' weights as blocks of 32 values of four bits with a scale, drawn afresh; and what they mean."""
    stored, plain = dict(tensors), dict(tensors)
    for name, tensor in tensors.items():
        if not name.endswith((".gate_up_proj", ".down_proj")):
            continue
        experts, cols, rows = tensor.shape
        blocks = torch.from_numpy(rng.integers(256, size=(experts, rows, cols // 32, 16), dtype=np.uint8))
        scales = torch.from_numpy(rng.integers(121, 124, size=(experts, rows, cols // 32), dtype=np.uint8))
        if name.endswith(".down_proj"):
            scales[:, :experts] = 119
        plain[name] = convert_moe_packed_tensors(blocks, scales)
        del stored[name]
        stored |= {name + "_blocks": blocks, name + "_scales": scales}
    return stored, plain


def spread_scales(scales, shape):
    return scales.repeat_interleave(FP8_BLOCK, 0).repeat_interleave(FP8_BLOCK, 1)[:shape[0], :shape[1]]


def in_fp8(case, tensors):
    """The layers' matrices as files in block-scaled fp8 hold them."""
    stored = {}
    exceptions = case.config["quantization_config"]["modules_to_not_convert"]
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight")
        if tensor.dim() < 2 or not name.startswith("model.layers.") or module in exceptions:
            stored[name] = tensor
            continue
        rows, cols = tensor.shape
        padded = torch.zeros(-(-rows // FP8_BLOCK) * FP8_BLOCK, -(-cols // FP8_BLOCK) * FP8_BLOCK)
        padded[:rows, :cols] = tensor
        blocks = padded.view(padded.shape[0] // FP8_BLOCK, FP8_BLOCK, -1, FP8_BLOCK)
        scales = blocks.abs().amax(dim=(1, 3)) / torch.finfo(torch.float8_e4m3fn).max
        codes = (tensor.to(FLOAT32) / spread_scales(scales, tensor.shape)).to(torch.float8_e4m3fn)
        stored |= {name: codes, name + "_scale_inv": scales}
    return stored


def write_plain_of_fp8(directory):
    """What a directory in block-scaled fp8 means in float32: the product of number and scale, rounded once. A bfloat16
    model rounds that once more. transformers' Fp8Dequantize computes it so, too, but takes the size of the blocks from
    the shape of the scales, so it is wrong where a last block is partial; its readers for a GPU are not."""
    files = load_file(directory / "model.safetensors")
    plain = {name: tensor.to(FLOAT32) for name, tensor in files.items() if not name.endswith("_scale_inv")}
    for name, tensor in plain.items():
        if name + "_scale_inv" in files:
            tensor *= spread_scales(files[name + "_scale_inv"], tensor.shape)
    remove_plain(directory)
    write_plain(directory, plain)


def remove_plain(directory):
    shutil.rmtree(plain_directory(directory), ignore_errors=True)


def check_fp8(case, directory):
    """transformers' own reader gives the same values where no matrix has more than one block in a direction."""
    files = load_file(directory / "model.safetensors")
    if any(max(tensor.shape) > 1 for name, tensor in files.items() if name.endswith("_scale_inv")):
        return
    plain = load_model(directory, FLOAT32).state_dict()
    for dtype in (FLOAT32, torch.bfloat16):
        model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor.to(dtype), plain[name].to(dtype)), (case.name, name)  # others stay bfloat16


def class_of(case):
    return auto_class(case.whole or {"model_type": case.family})


def auto_class(config):
    """transformers lists Mistral 4's text model among those that take images."""
    whole = "vision_config" in config or config["model_type"] == "mistral4"
    return AutoModelForImageTextToText if whole else AutoModelForCausalLM


def text_model(model):
    """The part with the layers."""
    return getattr(model.model, "language_model", model.model)


def text_name(name):
    """The name of a text model's tensor by itself, from that in a multimodal model."""
    return name.replace("model.language_model.", "model.")


def is_of_text(case, name):
    return not case.whole or name.startswith(("model.language_model.", "lm_head."))


def names_in_files(case, directory, tensors):
    """The tensors under the names that transformers saves them under."""
    with tempfile.TemporaryDirectory() as scratch:
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(directory))
        missing, unexpected = model.load_state_dict(tensors, strict=False)
        assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
        model.to(STORED[case.stored])
        for name in choice_biases(model):
            model.get_submodule(name.rpartition(".")[0]).register_buffer(CHOICE_BIAS, tensors[name])
        model.save_pretrained(scratch)
        saved = load_file(Path(scratch) / "model.safetensors")
        # transformers 5.23 gives Kimi K2.5's text layers the name of its vision tower's; releases do not
        return {name.replace("language_model.model.blocks.", "language_model.model.layers."): tensor
                for name, tensor in saved.items()}


def write_model(case, directory, rng):
    directory.mkdir(parents=True)
    write_config(case, directory)
    config = AutoConfig.from_pretrained(directory)
    with torch.device("meta"):
        empty = class_of(case).from_config(config)
    tensors = {}
    for name, parameter in empty.named_parameters():  # a tied head is not named twice
        if is_of_text(case, name):
            values = draw_weight(text_name(name), tuple(parameter.shape), case, config.get_text_config(), rng)
        else:
            values = 0.1 * rng.standard_normal(tuple(parameter.shape))
        tensors[name] = torch.from_numpy(values).to(STORED[case.stored])
    for name, buffer in frozen_buffers(empty).items():
        values = draw_weight(name, tuple(buffer.shape), case, config.get_text_config(), rng)
        tensors[name] = torch.from_numpy(values).to(FLOAT32 if name.endswith(CHOICE_BIAS) else STORED[case.stored])
    if case.whole and not case.module_names:
        tensors = names_in_files(case, directory, tensors)
    if case.mxfp4:  # what transformers makes of the blocks, for transformers without a GPU to read
        tensors, plain = quantised(tensors, rng)
        write_plain(directory, plain)
    elif case.family == "granitemoehybrid":
        tensors = as_granite_files(tensors)
    elif has_experts(case) and case.family not in STACKED and not case.fused:
        tensors = {name: tensor.contiguous() for name, tensor in own_tensors(case, tensors).items()}
    if case.family == "nemotron_h":
        tensors = {re.sub(r"^model\.", "backbone.", name): tensor for name, tensor in tensors.items()}
    if case.fp8:
        tensors = in_fp8(case, tensors)
    if case.extra_tensors:
        for layer in range(config.num_hidden_layers):
            size = case.config["hidden_size"] // case.config["num_attention_heads"]
            tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = (
                10000.0 ** (-torch.arange(0, size, 2, dtype=FLOAT64) / size)).to(FLOAT32)
    if case.shards == 1:
        save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
        if case.fp8:
            write_plain_of_fp8(directory)
            check_fp8(case, directory)
        return
    names, weight_map = list(tensors), {}
    for shard in range(case.shards):
        file = f"model-{shard + 1:05d}-of-{case.shards:05d}.safetensors"
        part = names[len(names) * shard // case.shards:len(names) * (shard + 1) // case.shards]
        save_file({name: tensors[name] for name in part}, directory / file, metadata={"format": "pt"})
        weight_map |= {name: file for name in part}
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def plain_directory(directory):
    return directory.parent / (directory.name + "_plain")


def write_plain(directory, tensors):
    plain = plain_directory(directory)
    plain.mkdir()
    config = json.loads((directory / "config.json").read_text())
    del config["quantization_config"]
    (plain / "config.json").write_text(json.dumps(config))
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, plain / "model.safetensors",
              metadata={"format": "pt"})


# ---- data ------------------------------------------------------------------------------------------------------------

@dataclass
class Data:
    tokens: np.ndarray
    documents: np.ndarray | None
    labels: np.ndarray | None
    order: np.ndarray | None
    files: dict = field(default_factory=dict)


def draw_data(case, rng):
    """A language one can learn: mostly the next token follows from the last, sometimes it is any token."""
    vocab, sequences = case.config["vocab_size"], case.steps * case.batch
    count = sequences * case.seq_len + case.spare_tokens
    tokens = np.empty(count, np.int64)
    tokens[0] = rng.integers(vocab)
    for i in range(1, count):
        tokens[i] = (5 * tokens[i - 1] + 3) % vocab if rng.random() < 0.6 else rng.integers(vocab)

    documents = None
    if case.lengths:
        assert sum(case.lengths) == case.seq_len
        inner = np.cumsum((0, *case.lengths[:-1]))
        documents = (np.arange(sequences)[:, None] * case.seq_len + inner).flatten().astype(np.uint64)
    elif case.documents:  # of 1 to 25 tokens mostly: some run over a sequence's end, some start with a sequence
        starts, at = [], 0
        while at < count:
            starts.append(at)
            at += int(rng.integers(1, case.longest_document + 1))
        starts = {start for start in set(starts) | {case.seq_len, 3 * case.seq_len, 7, 8} if start < count}
        documents = np.array(sorted(starts), np.uint64)

    labels = None
    if case.labels:  # a third not trained, some labels unlike their token, one sequence not trained at all
        labels = tokens.astype(np.int32)
        other = rng.random(count) < 0.1
        labels[other] = rng.integers(vocab, size=int(other.sum()))
        labels[rng.random(count) < 0.35] = -100
        labels[case.seq_len:2 * case.seq_len] = -100

    order = rng.permutation(sequences).astype(np.uint64) if case.order else None
    return Data(tokens, documents, labels, order)


def seed_of(case):
    return int.from_bytes(case.name.encode(), "little") % 2**63


def data_of(case):
    return draw_data(case, np.random.default_rng([seed_of(case), 2]))


def write_data(case, data, directory):
    def put(key, values, dtype):
        if values is not None:
            values.astype(np.dtype(dtype).newbyteorder("<")).tofile(directory / f"{key}.bin")
            data.files[key] = f"{key}.bin"

    put("tokens", data.tokens, case.token_dtype)
    put("documents", data.documents, "uint64")
    put("labels", data.labels, "int32")
    put("order", data.order, "uint64")


def step_segments(case, data, step):
    """The step's documents as (tokens, labels) groups of equal length, each (rows, length); each row is run alone."""
    size, segments = case.seq_len, []
    source = data.tokens if data.labels is None else data.labels.astype(np.int64)
    for place in range(step * case.batch, (step + 1) * case.batch):
        begin = int(data.order[place] if data.order is not None else place) * size
        inner = [] if data.documents is None else [int(d) for d in data.documents if begin < d < begin + size]
        cuts = [begin, *inner, begin + size]
        segments += [(data.tokens[a:b], source[a:b]) for a, b in zip(cuts, cuts[1:])]
    if data.documents is None:
        return [tuple(torch.from_numpy(np.stack(column)) for column in zip(*segments))]
    return [tuple(torch.from_numpy(part[None].copy()) for part in segment) for segment in segments]


# ---- the oracle ------------------------------------------------------------------------------------------------------

class RefuseFloat32(TorchDispatchMode):
    """Proves that a float64 run computes nothing in float32."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.dtype == FLOAT32:
                raise AssertionError(f"{function} made a float32 tensor in a float64 run")
        return result


@contextlib.contextmanager
def widened(dtype):
    """Inside, with dtype float64, transformers' casts to float32 (norms, softmax, RoPE) are casts to float64, and so is
    the quotient of integers."""
    if dtype != FLOAT64:
        yield
        return
    default = torch.get_default_dtype()
    torch.set_default_dtype(FLOAT64)
    with contextlib.ExitStack() as stack, mock.patch.multiple(torch, float32=FLOAT64, float=FLOAT64), \
            mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        stack.callback(torch.set_default_dtype, default)
        yield


def load_model(directory, dtype):
    if plain_directory(directory).exists():
        directory = plain_directory(directory)
    config = json.loads((directory / "config.json").read_text())
    model = auto_class(config).from_pretrained(directory, dtype=dtype, attn_implementation="eager", experts_implementation="eager")
    text = text_model(model)
    with widened(dtype):  # the frequencies are made again, in dtype float64 from the start
        rotary = getattr(text, "rotary_emb", None)
        if rotary is not None:
            rotary = text.rotary_emb = type(rotary)(text.config)
        if dtype == FLOAT64 and hasattr(getattr(text, "embed_tokens", None), "scalar_embed_scale"):
            table = text.embed_tokens
            table.embed_scale = torch.tensor(table.scalar_embed_scale, dtype=FLOAT64)
    for frequencies in rotary.buffers() if rotary is not None else ():
        assert frequencies.dtype == (FLOAT64 if dtype == FLOAT64 else FLOAT32)
    return model.train()


def without_images(case, tokens):
    return {"token_type_ids": torch.zeros_like(tokens)} if case.whole.get("model_type") == "gemma3" else {}


def loss_of_step(case, model, segments):
    """Backward of the mean over the step's trained tokens, and of the router's losses where the case has them. Returns
    (loss, trained tokens, router's losses)."""
    trained = sum(int((labels[:, 1:] != -100).sum()) for _, labels in segments)
    total, routed = 0.0, []
    for tokens, labels in segments:
        also = {"output_router_logits": True} if case.aux_loss or case.z_loss else {}
        outputs = model(input_ids=tokens, use_cache=False, **also, **without_images(case, tokens))
        logits = outputs.logits[:, :-1]
        if logits.dtype == torch.bfloat16:
            logits = logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100,
                                                 reduction="sum") / trained
        if loss.requires_grad and labels.shape[1] > 1:
            loss.backward(retain_graph="output_router_logits" in also)
        total += loss.item()
        if "output_router_logits" in also:
            counts = (labels[:, 1:] != -100).any(1, keepdim=True).expand(labels.shape)
            routed.append((counts.flatten(), outputs.router_logits))
    return total, trained, router_losses(case, model, routed) if routed else {}


def router_losses(case, model, routed):
    """Backward of the losses over all tokens of the step but those of documents in which nothing is trained, by
    transformers' own function and its mask."""
    counts = torch.cat([mask for mask, _ in routed])
    layers = tuple(torch.cat(parts) for parts in zip(*(logits for _, logits in routed)))
    module = sys.modules[type(model).__module__]
    aux = module.load_balancing_loss_func(layers, experts_of(model.config), model.config.num_experts_per_tok,
                                          counts.to(torch.int64)[None])
    z = torch.cat([torch.logsumexp(logits[counts].float(), dim=-1) ** 2 for logits in layers]).mean()
    (case.aux_loss * aux + case.z_loss * z).backward()
    return {"aux_loss": aux.item(), "z_loss": z.item()}


def text_parameters(case, model):
    return {text_name(name): parameter for name, parameter in model.named_parameters() if is_of_text(case, name)}


def train(case, data, directory, dtype, steps):
    model = load_model(directory, dtype)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    parameters = text_parameters(case, model)
    for name, parameter in parameters.items():
        parameter.requires_grad_(not any(fnmatch.fnmatchcase(name, pattern) for pattern in case.freeze))
    trained = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
    assert all(parameter.dtype == dtype for parameter in parameters.values())
    result = train_steps(case, data, model, trained, dtype, steps)
    result["final"] = {text_name(name): p.detach().clone() for name, p in (parameters | frozen_buffers(model)).items()}
    start = load_model(directory, dtype)
    result["start"] = {text_name(name): p for name, p in (text_parameters(case, start) | frozen_buffers(start)).items()}
    for key in ("grads", "final", "start"):
        result[key] = own_tensors(case, result[key])
    return result


def frozen_buffers(model):
    """What files hold and nothing trains."""
    return {name: buffer for name, buffer in model.named_buffers() if name.endswith((CHOICE_BIAS, "layer_scalar"))}


def train_steps(case, data, model, trained, dtype, steps):
    decays = {name: p.dim() >= 2 and not name.endswith("_bias") for name, p in trained.items()}
    groups = [{"params": [p for name, p in trained.items() if decays[name]], "weight_decay": 0.1},
              {"params": [p for name, p in trained.items() if not decays[name]], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=case.lr, betas=case.betas, eps=1e-3, foreach=False)
    result = {"losses": [], "grad_norms": [], "clip_factors": [], "trained_tokens": [], "router": []}
    guard = RefuseFloat32() if dtype == FLOAT64 else contextlib.nullcontext()
    for step in range(steps):
        segments = step_segments(case, data, step)
        optimizer.zero_grad()
        with widened(dtype), guard:
            loss, trained_tokens, router = loss_of_step(case, model, segments)
            if step == 0:
                result["grads"] = {name: p.grad.detach().clone() for name, p in trained.items()}
            norm = torch.nn.utils.clip_grad_norm_(trained.values(), case.clip, foreach=False).item()
        optimizer.step()
        result["losses"].append(loss)
        result["grad_norms"].append(norm)
        result["clip_factors"].append(min(1.0, case.clip / (norm + 1e-6)))
        result["trained_tokens"].append(trained_tokens)
        result["router"].append(router)
    return result


# ---- comparison ------------------------------------------------------------------------------------------------------

def role(name):
    return re.sub(r"\.\d+\.", ".", name)


def relative_errors(got, want, kind):
    """max|a-b| / max(max|b|, 1e-4 x the largest magnitude of its kind), by tensor."""
    largest = {}
    for name, tensor in want.items():
        largest[kind(name)] = max(largest.get(kind(name), 0.0), tensor.abs().max().item())
    return {name: (got[name].double() - tensor.double()).abs().max().item()
            / (max(tensor.abs().max().item(), 1e-4 * largest[kind(name)]) or 1.0) for name, tensor in want.items()}


def worst(errors):
    name = max(errors, key=errors.get)
    return errors[name], name


def number_error(got, want):
    return max(abs(a - b) / abs(b) for a, b in zip(got, want))


def cosines(got, want):
    """Of gradients that are not zero, as those of experts without tokens are."""
    want = {name: tensor for name, tensor in want.items() if tensor.any()}
    return {name: torch.nn.functional.cosine_similarity(got[name].double().flatten(), tensor.double().flatten(),
                                                        dim=0).item() for name, tensor in want.items()}


def check_rope(case, model):
    """A scaling that changes nothing, or everything alike, would prove little."""
    rotary = getattr(text_model(model), "rotary_emb", None)
    if rotary is None or isinstance(rotary.rope_type, dict):  # by kind of layer
        return
    if rotary.rope_type in ("llama3", "yarn"):
        theta = rotary.config.rope_parameters["rope_theta"]
        plain = theta ** (-torch.arange(0, 2 * len(rotary.inv_freq), 2, dtype=FLOAT64) / (2 * len(rotary.inv_freq)))
        ratio = plain / rotary.inv_freq.double()
        factor = rotary.config.rope_parameters["factor"]
        kept, divided = ratio < 1.001, ratio > 0.999 * factor
        zones = [kept.any().item(), (~kept & ~divided).any().item(), divided.any().item()]
        assert all(zones), f"{case.name}: RoPE frequencies kept, between, divided: {zones}"
    if rotary.rope_type == "longrope":
        assert rotary.attention_scaling > 1.05, case.name
        original = rotary.config.rope_parameters["original_max_position_embeddings"]
        lengths = {len(row) for tokens, _ in step_segments(case, data_of(case), 0) for row in tokens}
        long = {length > original for length in lengths}
        assert long == ({True, False} if case.documents else {True}), f"{case.name}: documents of {sorted(lengths)}"


def check_routes(case, model):
    """What bfloat16 rounds must not decide which expert a token has, and the idle experts must be idle."""
    routers = [module for name, module in model.named_modules() if type(module).__name__.lower().endswith(("topkrouter", "textrouter"))]
    assert routers, case.name
    parents = {child: module for module in model.modules() for child in module.children()}
    seen = [[] for _ in routers]
    for router, to in zip(routers, seen):
        router.register_forward_hook(lambda _, __, out, to=to: to.append(out))
    with widened(FLOAT64), torch.no_grad():
        for tokens, _ in step_segments(case, data_of(case), 0):
            model(input_ids=tokens, use_cache=False)
    for router, outputs in zip(routers, seen):
        logits = torch.cat([out[0].log() if case.family == "gemma4_text" else out[0] for out in outputs])
        chosen = torch.cat([out[2] for out in outputs])
        used = sorted(set(chosen.flatten().tolist()))
        assert used == [e for e in range(logits.shape[-1]) if e not in case.idle], (case.name, used)
        bias = getattr(router, CHOICE_BIAS, getattr(parents[router], CHOICE_BIAS, None))
        if bias is not None:
            logits = scores_for_choice(case, router, logits.sigmoid() + bias)
        top = logits.sort(descending=True).values
        margin = (top[:, chosen.shape[1] - 1] - top[:, chosen.shape[1]]) / logits[logits.isfinite()].std()
        assert margin.min() > ROUTE_MARGIN, (case.name, margin.min().item())


def scores_for_choice(case, router, scores):
    """Of a sigmoid router, without the groups that are not kept, whose choice must have its margin as well."""
    if getattr(router, "num_group", 1) == 1:
        return scores
    grouped = scores.unflatten(-1, (router.num_group, -1))
    sums = grouped.topk(2).values.sum(-1)
    if router.topk_group < router.num_group:
        top = sums.sort(descending=True).values
        margin = (top[:, router.topk_group - 1] - top[:, router.topk_group]) / sums.std()
        assert margin.min() > ROUTE_MARGIN, (case.name, "groups", margin.min().item())
    kept = torch.zeros_like(sums, dtype=torch.bool).scatter(-1, sums.topk(router.topk_group).indices, True)
    return grouped.masked_fill(~kept[..., None], -math.inf).flatten(-2)


# ---- main ------------------------------------------------------------------------------------------------------------

def make(case, out):
    directory = out / case.name
    if directory.exists():
        shutil.rmtree(directory)
    write_model(case, directory / "model", np.random.default_rng([seed_of(case), 1]))
    data = data_of(case)
    write_data(case, data, directory)

    exact = train(case, data, directory / "model", FLOAT64, case.steps)
    single = train(case, data, directory / "model", FLOAT32, case.steps)
    half = train(case, data, directory / "model", torch.bfloat16, steps=1)
    check_rope(case, load_model(directory / "model", FLOAT32))
    if has_experts(case) or case.config.get("enable_moe_block"):
        check_routes(case, load_model(directory / "model", FLOAT64))
    remove_plain(directory / "model")

    agreement = agreement_of(case, case.name, exact, single, half)
    save_file(narrow(exact["grads"]), directory / "grads.safetensors")
    save_file(narrow(exact["final"]), directory / "final.safetensors")
    expected = {
        "covers": case.covers,
        "model": "model",
        "data": data.files | {"dtype": case.token_dtype},
        **setup_of(case),
        **({"freeze": case.freeze} if case.freeze else {}),
        **({"router": {"z_loss": case.z_loss}  # and what config.json does not say
            | ({} if case.config.get("output_router_logits") else {"aux_loss": case.aux_loss}),
            "aux_losses": [losses["aux_loss"] for losses in exact["router"]],
            "z_losses": [losses["z_loss"] for losses in exact["router"]]} if exact["router"][0] else {}),
        **{key: exact[key] for key in ("losses", "grad_norms", "clip_factors", "trained_tokens")},
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    (directory / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    return size_of(directory, case.name, exact, agreement)


def setup_of(case):
    return {
        "seq_len": case.seq_len,
        "batch": case.batch,
        "steps": case.steps,
        "optim": {"lr": case.lr, "beta1": case.betas[0], "beta2": case.betas[1], "eps": 1e-3, "weight_decay": 0.1,
                  "clip": case.clip, "schedule": "constant", "warmup": 0},
    }


def narrow(tensors):
    return {name: tensor.to(FLOAT32).contiguous() for name, tensor in tensors.items()}


def agreement_of(case, name, exact, single, half):
    """How the runs in float32 and bfloat16 differ from the exact one, as a text. Refuses results that differ too much,
    hardly clip or hardly move."""
    grad_cosine = cosines(half["grads"], exact["grads"])
    moved = relative_errors(exact["start"], exact["final"], lambda name: "weight")
    assert all(moved[name] == 0 for name in moved if name not in exact["grads"])
    moved = {name: moved[name] for name, gradient in exact["grads"].items() if gradient.any()}
    low = min(grad_cosine, key=grad_cosine.get)
    report = {
        "loss": number_error(single["losses"], exact["losses"]),
        "grad_norm": number_error(single["grad_norms"], exact["grad_norms"]),
        "grads": worst(relative_errors(single["grads"], exact["grads"], lambda name: "gradient")),
        "grads_by_role": worst(relative_errors(single["grads"], exact["grads"], role)),
        "final": worst(relative_errors(single["final"], exact["final"], lambda name: "weight")),
        "final_by_role": worst(relative_errors(single["final"], exact["final"], role)),
        "bf16_loss": abs(half["losses"][0] - exact["losses"][0]) / exact["losses"][0],
        "bf16_cosine": (grad_cosine[low], low),
        "least_moved": min(moved.values()),
        "clipped_steps": sum(factor < 1.0 for factor in exact["clip_factors"]),
    }
    for key in ("loss", "grad_norm"):
        assert report[key] < TORCH_LIMIT, (name, key, report[key])
    for key in ("grads", "grads_by_role", "final", "final_by_role"):
        assert report[key][0] < TORCH_LIMIT, (name, key, report[key])
    assert report["bf16_cosine"][0] > COSINE_LIMIT, (name, report["bf16_cosine"])
    assert report["clipped_steps"] >= case.steps // 2, (name, exact["grad_norms"])
    assert report["least_moved"] > 1e-3, (name, moved)
    return (f"clipped {report['clipped_steps']}/{case.steps}  "
            f"fp32: loss {report['loss']:.1e} norm {report['grad_norm']:.1e} grads {report['grads'][0]:.1e} "
            f"(by role {report['grads_by_role'][0]:.1e} {report['grads_by_role'][1]}) final {report['final'][0]:.1e} "
            f"(by role {report['final_by_role'][0]:.1e})  bf16: loss {report['bf16_loss']:.1e} "
            f"cosine {report['bf16_cosine'][0]:.5f} {report['bf16_cosine'][1]}")


def size_of(directory, name, exact, agreement):
    """Prints a line about the folder and returns its bytes."""
    size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    parameters = sum(tensor.numel() for tensor in exact["final"].values())
    print(f"{name:15} {parameters:6} params {size:7} B  loss {exact['losses'][0]:.3f}->{exact['losses'][-1]:.3f}  "
          f"norm {exact['grad_norms'][0]:.2f}..{exact['grad_norms'][-1]:.2f} {agreement}", flush=True)
    return size


RESULTS = ("grads.safetensors", "final.safetensors", "logits.safetensors", "merged.safetensors")
VERSIONS = {"transformers_version": 0, "peft_version": 0}


def compare(made, stored):
    """Inputs must be equal byte for byte, results within rounding."""
    names = sorted(str(file.relative_to(made)) for file in made.rglob("*") if file.is_file())
    assert names == sorted(str(file.relative_to(stored)) for file in stored.rglob("*") if file.is_file()), "file lists"
    for name in names:
        a, b = made / name, stored / name
        if a.name in RESULTS:
            error, tensor = worst(relative_errors(load_file(a), load_file(b), lambda _: "any"))
            assert error < 1e-6, f"{name}: {tensor} differs by {error:.1e}"
        elif a.name == "expected.json":
            x, y = json.loads(a.read_text()), json.loads(b.read_text())
            for key in {"losses", "grad_norms", "clip_factors", "aux_losses", "z_losses"} & set(x):
                assert number_error(x.pop(key), y.pop(key)) < 1e-6, f"{name}: {key}"
            assert {**x, "made_with": 0} == {**y, "made_with": 0}, name
        elif a.name in ("config.json", "adapter_config.json"):
            x, y = json.loads(a.read_text()), json.loads(b.read_text())
            assert {**x, **VERSIONS} == {**y, **VERSIONS}, name
        else:
            assert a.read_bytes() == b.read_bytes(), name


def main(about=__doc__, folder="goldens", cases=CASES, make=make, size_limit=SIZE_LIMIT):
    arguments = argparse.ArgumentParser(description=about.splitlines()[0])
    arguments.add_argument("--out", type=Path, default=Path(__file__).parent / folder)
    arguments.add_argument("--only", nargs="*", default=[case.name for case in cases])
    arguments.add_argument("--check", action="store_true")
    options = arguments.parse_args()

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")

    cases = [case for case in cases if case.name in options.only]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) if options.check else options.out
        total = sum(make(case, out) for case in cases)
        if options.check:
            for case in cases:
                compare(out / case.name, options.out / case.name)
            print("the stored goldens are what this script makes")
    stored = sum(file.stat().st_size for file in options.out.rglob("*") if file.is_file())
    print(f"{len(cases)} cases, {total} bytes; {stored} bytes in {options.out}")
    assert stored < size_limit, f"the limit is {size_limit}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
