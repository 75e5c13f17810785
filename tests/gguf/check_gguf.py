#!/usr/bin/env python3
"""Exports tiny models of every family with `megatrain export --gguf` and reads the files with the public gguf package:
every tensor against one made here from the weights, q8_0 against gguf's own quantisation bit for bit, the metadata.
With llama.cpp it compares tokens, logits and greedy answers too. tools/check_gguf calls it.

    check_gguf.py BUILD FOLDER [--probe PROGRAM] [--vocabularies FOLDER] [--only FAMILY ...]

BUILD has megatrain, tests/tokenize_lines and tests/write_logits. FOLDER receives the models. PROGRAM is tools/llama_probe.cc,
linked with llama.cpp. --vocabularies has the files of tests/tokenizer/real_vocabularies.py, which then stand in for the small
tokenizers of tests/tokenizer/goldens.
"""
import argparse
import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, quants

ROOT = Path(__file__).resolve().parents[2]
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "torch_dtype": "float32",
         "tie_word_embeddings": False, "hidden_act": "silu"}
# name: (llama.cpp's architecture, tokenizer, bos, eos, config)
FAMILIES = {
    "llama": ("llama", "llama3", "<|begin_of_text|>", "<|eot_id|>",
              {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "rope_theta": 500000.0,
               "rope_scaling": LLAMA3_ROPE}),
    "llama_bias": ("llama", "llama2", "<s>", "</s>",
                   {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": True,
                    "mlp_bias": True, "rope_theta": 10000.0}),
    "mistral": ("llama", "mistral", "<s>", "</s>",
                {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": None,
                 "head_dim": 32, "rope_theta": 10000.0}),
    "mixtral": ("llama", "mistral", "<s>", "</s>",
                {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "num_local_experts": 4,
                 "num_experts_per_tok": 2, "rope_theta": 10000.0}),
    "qwen2": ("qwen2", "qwen", None, "<|im_end|>",
              {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "tie_word_embeddings": True,
               "rope_theta": 10000.0}),
    "qwen3": ("qwen3", "qwen", None, "<|im_end|>",
              {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 32, "rope_theta": 10000.0,
               "rope_scaling": YARN}),
    "qwen3_moe": ("qwen3moe", "qwen", None, "<|im_end|>",
                  {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 32,
                   "num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 32, "norm_topk_prob": True,
                   "decoder_sparse_step": 1, "mlp_only_layers": [], "rope_theta": 10000.0}),
    "gemma3": ("gemma3", "gemma", "<s>", "</s>",
               {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 32, "hidden_act": None,
                "hidden_activation": "gelu_pytorch_tanh", "num_hidden_layers": 7, "query_pre_attn_scalar": 32,
                "sliding_window": 8, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
                "tie_word_embeddings": True, "pad_token_id": 0}),
    "phi3": ("phi3", "llama2", "<s>", "</s>",
             {"architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "pad_token_id": 0, "rope_theta": 10000.0,
              "original_max_position_embeddings": 256, "sliding_window": None}),
    "gpt_oss": ("gpt-oss", "gpt4o", "<|startoftext|>", "<|return|>",
                {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": 16, "attention_bias": True,
                 "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 16, "swiglu_limit": 7.0,
                 "rope_theta": 150000.0,
                 "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
                                  "truncate": True, "original_max_position_embeddings": 64}}),
}
REAL = {"llama3": "llama3", "llama2": "mistral_v1", "mistral": "mistral_v3", "qwen": "qwen2", "gpt4o": "llama4",
        "gemma": "mistral_v3"}
TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
TEXTS = ["Hello world", " two  spaces\tand\ttabs\n\n\nlines ", "It's 2026: 12345.678 + 3 = naïve Ünïcödé", "日本語 русский عربي 🚀🦙",
         "def f(x):\n    return x ** 2  # code", "I'VE we'll CamelCaseWords ALLCAPS x1y2", "", "a", "!!!???...---===",
         "line\r\nline\r\n", "    indented\n\t\ttabs", "12 123 1234 12345 1234567"]


def tokenizer_of(kind, folder, bos, eos):
    """tokenizer.json of one kind, with bos and eos in it."""
    if folder:
        data = json.loads((folder / f"{REAL[kind]}.json").read_text())
    else:
        name = {"gemma": "mistral", "gpt4o": "llama3"}.get(kind, kind)
        data = json.loads((ROOT / f"tests/tokenizer/goldens/{name}.tokenizer.json").read_text())
    if kind == "gpt4o" and not folder:
        sys.path.insert(0, str(ROOT / "tests/tokenizer"))
        pattern = re.search(r"LLAMA4 = \((.*?)\)\n", (ROOT / "tests/tokenizer/real_vocabularies.py").read_text(), re.S).group(1)
        names = {"CONTRACTIONS": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)", "SPACES": r"\s*[\r\n]+|\s+(?!\S)|\s+"}
        data["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = eval("(" + pattern + ")", names)
        data["model"]["ignore_merges"] = False
    if kind == "gemma":
        data["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
        data["normalizer"] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    if data["model"]["byte_fallback"]:
        list_all_merges(data["model"])
    vocab, added = data["model"]["vocab"], data["added_tokens"]
    known = {**vocab, **{t["content"]: t["id"] for t in added}}
    for text in (bos, eos):
        if text and not any(t["content"] == text for t in added):
            added.append({"id": known.get(text, max(known.values()) + 1), "content": text, "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": False, "special": True})
            known[text] = added[-1]["id"]
    data["post_processor"] = None
    if bos:
        data["post_processor"] = {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": bos, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {bos: {"id": bos, "ids": [known[bos]], "tokens": [bos]}}}
    return data, max(known.values()) + 1


def list_all_merges(model):
    """Every way to make a token of two others, in the order of the tokens: SentencePiece's."""
    vocab = model["vocab"]
    order = {}
    for merge in model["merges"]:
        order.setdefault("".join(merge if isinstance(merge, list) else merge.split(" ")), len(order))
    found = []
    for token in sorted(vocab, key=lambda t: order.get(t, len(order) + vocab[t])):
        if re.fullmatch(r"<.*>", token):
            continue
        found += [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in vocab and token[i:] in vocab]
    model["merges"] = [list(pair) for pair in found]


def shapes_of(c):
    """Hugging Face's tensors of a configuration."""
    h, ff, heads, kv = c["hidden_size"], c["intermediate_size"], c["num_attention_heads"], c["num_key_value_heads"]
    dim, kind = c.get("head_dim") or h // heads, c["model_type"]
    shapes = {"model.embed_tokens.weight": (c["vocab_size"], h), "model.norm.weight": (h,)}
    if not c["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (c["vocab_size"], h)
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        norms = ["input_layernorm", "post_attention_layernorm"]
        if kind == "gemma3_text":
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        shapes |= {f"{p}{n}.weight": (h,) for n in norms}
        if kind == "phi3":
            shapes |= {p + "self_attn.qkv_proj.weight": ((heads + 2 * kv) * dim, h), p + "mlp.gate_up_proj.weight": (2 * ff, h),
                       p + "mlp.down_proj.weight": (h, ff)}
        else:
            bias = c.get("attention_bias") or kind == "qwen2"
            for name, n in (("q", heads), ("k", kv), ("v", kv)):
                shapes[f"{p}self_attn.{name}_proj.weight"] = (n * dim, h)
                if bias:
                    shapes[f"{p}self_attn.{name}_proj.bias"] = (n * dim,)
        shapes[p + "self_attn.o_proj.weight"] = (h, heads * dim)
        if c.get("attention_bias"):
            shapes[p + "self_attn.o_proj.bias"] = (h,)
        if kind in ("qwen3", "qwen3_moe", "gemma3_text"):
            shapes |= {f"{p}self_attn.{n}_norm.weight": (dim,) for n in "qk"}
        if kind == "gpt_oss":
            e = c["num_local_experts"]
            shapes |= {p + "self_attn.sinks": (heads,), p + "mlp.router.weight": (e, h), p + "mlp.router.bias": (e,),
                       p + "mlp.experts.gate_up_proj": (e, h, 2 * ff), p + "mlp.experts.gate_up_proj_bias": (e, 2 * ff),
                       p + "mlp.experts.down_proj": (e, ff, h), p + "mlp.experts.down_proj_bias": (e, h)}
        elif kind in ("mixtral", "qwen3_moe"):
            mixtral = kind == "mixtral"
            part, names = ("block_sparse_moe", "w1 w3 w2") if mixtral else ("mlp", "gate_proj up_proj down_proj")
            e, f = (c["num_local_experts"], ff) if mixtral else (c["num_experts"], c["moe_intermediate_size"])
            shapes[f"{p}{part}.gate.weight"] = (e, h)
            for i in range(e):
                for name, shape in zip(names.split(), ((f, h), (f, h), (h, f))):
                    shapes[f"{p}{part}.experts.{i}.{name}.weight"] = shape
        elif kind != "phi3":
            for name, shape in (("gate", (ff, h)), ("up", (ff, h)), ("down", (h, ff))):
                shapes[f"{p}mlp.{name}_proj.weight"] = shape
                if c.get("mlp_bias"):
                    shapes[f"{p}mlp.{name}_proj.bias"] = shape[:1]
    return shapes


def weights_of(c, seed):
    random = np.random.default_rng(seed)
    weights = {}
    for name, shape in shapes_of(c).items():
        scale = 1.0 if "embed" in name else 0.3 if "bias" in name or "sinks" in name else 1.5 / np.sqrt(shape[-1])
        values = random.normal(size=shape) * scale
        if name.endswith("norm.weight"):
            values = random.normal(size=shape) * 0.1 + (0 if c["model_type"] == "gemma3_text" else 1)
        weights[name] = values.astype(np.float32)
    return weights


def save_safetensors(path, weights):
    header, at = {}, 0
    for name, values in weights.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in weights.values():
            file.write(values.tobytes())


def turned(values, heads):
    """Llama's pairs: those of a head stand side by side."""
    per = values.shape[0] // heads
    order = [h * per + i + half * (per // 2) for h in range(heads) for i in range(per // 2) for half in (0, 1)]
    return values[order]


def expected_tensors(c, architecture, weights):
    """GGUF's tensors by name, and whether each stays f32."""
    want = {}
    names = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    parts = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
             "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv", "mlp.gate_proj": "ffn_gate",
             "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
             "mlp.router": "ffn_gate_inp", "block_sparse_moe.gate": "ffn_gate_inp",
             "post_attention_layernorm": "post_attention_norm" if architecture in ("gemma3", "gpt-oss") else "ffn_norm",
             "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
    experts = {"w1": "gate", "w3": "up", "w2": "down", "gate_proj": "gate", "up_proj": "up", "down_proj": "down"}
    for name, values in weights.items():
        if c["model_type"] == "gemma3_text" and name.endswith("norm.weight"):
            values = values + np.float32(1)
        layer = re.match(r"model\.layers\.(\d+)\.(.*)", name)
        if not layer:
            want[names[name.removesuffix(".weight")] + ".weight"] = values
            continue
        number, rest = layer.groups()
        p = f"blk.{number}."
        expert = re.match(r".*experts\.(\d+)\.(\w+)\.(weight|bias)", rest)
        if expert:
            want.setdefault(f"{p}ffn_{experts[expert[2]]}_exps.{expert[3]}", []).append(values)
        elif rest.endswith("gate_up_proj"):
            want[p + "ffn_gate_exps.weight"] = values.transpose(0, 2, 1)[:, ::2]
            want[p + "ffn_up_exps.weight"] = values.transpose(0, 2, 1)[:, 1::2]
        elif rest.endswith("gate_up_proj_bias"):
            want[p + "ffn_gate_exps.bias"], want[p + "ffn_up_exps.bias"] = values[:, ::2], values[:, 1::2]
        elif rest.endswith("experts.down_proj"):
            want[p + "ffn_down_exps.weight"] = values.transpose(0, 2, 1)
        elif rest.endswith("experts.down_proj_bias"):
            want[p + "ffn_down_exps.bias"] = values
        elif rest.endswith("sinks"):
            want[p + "attn_sinks.weight"] = values
        else:
            module, kind = rest.rsplit(".", 1)
            if architecture == "llama" and module.endswith(("q_proj", "k_proj")):
                values = turned(values, c["num_attention_heads" if module.endswith("q_proj") else "num_key_value_heads"])
            want[f"{p}{parts[module]}.{kind}"] = values
    return {name: np.stack(v) if isinstance(v, list) else np.ascontiguousarray(v) for name, v in want.items()}


def check(truth, what):
    if not truth:
        sys.exit(f"FAILED: {what}")


def compare(path, type_name, c, architecture, weights, tokens):
    reader = GGUFReader(path)
    kinds = {"f32": GGMLQuantizationType.F32, "f16": GGMLQuantizationType.F16, "bf16": GGMLQuantizationType.BF16,
             "q8_0": GGMLQuantizationType.Q8_0}
    want = expected_tensors(c, architecture, weights)
    seen = {tensor.name: tensor for tensor in reader.tensors}
    extra = set(seen) - set(want)
    check(extra <= {"rope_freqs.weight"} and set(want) <= set(seen), f"{path}: tensors {set(want) ^ set(seen)}")
    for name, values in want.items():
        tensor = seen[name]
        kept = values.ndim == 1 or "ffn_gate_inp" in name or name.endswith(".bias")
        kind = GGMLQuantizationType.F32 if kept else kinds[type_name]
        check(tensor.tensor_type == kind, f"{path}: {name} is {tensor.tensor_type}")
        check(list(tensor.shape) == list(values.shape[::-1]), f"{path}: {name} has the shape {tensor.shape}")
        made = quants.quantize(values, kind)
        check(np.array_equal(np.asarray(tensor.data).view(np.uint8).ravel(), np.ascontiguousarray(made).view(np.uint8).ravel()),
              f"{path}: {name} has other bytes than gguf's quantisation")

    def field(key):
        check(key in reader.fields, f"{path}: no {key}")
        return reader.fields[key].contents()

    check(field("general.architecture") == architecture, f"{path}: architecture")
    check(field(f"{architecture}.block_count") == c["num_hidden_layers"], f"{path}: block_count")
    check(field(f"{architecture}.attention.head_count_kv") == c["num_key_value_heads"], f"{path}: head_count_kv")
    check(field(f"{architecture}.context_length") == c["max_position_embeddings"], f"{path}: context_length")
    check(abs(field(f"{architecture}.rope.freq_base") - c["rope_theta"]) < 1e-3, f"{path}: rope.freq_base")
    check(field("tokenizer.chat_template") == TEMPLATE, f"{path}: chat_template")
    check(len(field("tokenizer.ggml.tokens")) == c["vocab_size"], f"{path}: tokens")
    check(len(field("tokenizer.ggml.token_type")) == c["vocab_size"], f"{path}: token_type")
    check(field("tokenizer.ggml.eos_token_id") == tokens, f"{path}: eos_token_id")


def run(*words, **options):
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, **options).stdout


def megatrain_ids(build, model, texts, folder):
    (folder / "texts").write_bytes(b"".join(text.encode() + b"\0" for text in texts))
    run(build / "tests/tokenize_lines", model / "tokenizer.json", folder / "texts", folder / "ids")
    data, at, ids = (folder / "ids").read_bytes(), 0, []
    for _ in texts:
        (count,) = struct.unpack_from("<i", data, at)
        ids.append(list(struct.unpack_from(f"<{count}i", data, at + 4)))
        at += 4 + 4 * count
        at += 4 + struct.unpack_from("<i", data, at)[0]
    return ids


def check_llama(build, probe, model, files, vocab, folder, experts):
    """Tokens of all texts, then logits and greedy answers of one sequence, in each type."""
    ids = megatrain_ids(build, model, TEXTS, folder)
    (folder / "sequence.jsonl").write_text(json.dumps({"ids": [i % vocab for i in range(3, 43)]}) + "\n")
    sequence = json.loads((folder / "sequence.jsonl").read_text())["ids"]
    run(build / "tests/write_logits", model, folder / "sequence.jsonl", folder / "logits", "--device", "cpu", "--precision",
        "fp32", stderr=subprocess.DEVNULL)
    own = np.fromfile(folder / "logits", np.float32).reshape(-1, vocab)
    answer = json.loads(run(build / "megatrain", "generate", model, "--prompt", "Hello world", "--max-tokens", "24", "--device",
                            "cpu", "--precision", "fp32", "--json", stderr=subprocess.DEVNULL))
    metaspace = (json.loads((model / "tokenizer.json").read_text())["pre_tokenizer"] or {}).get("type") == "Metaspace"
    line = []
    for type_name, path in files.items():
        asked = {"texts": TEXTS, "ids": sequence, "from": len(sequence) // 2 - 1, "prompt": ids[0], "answer": 24}
        (folder / "asked.json").write_text(json.dumps(asked))
        told = json.loads(run(probe, path, folder / "asked.json", stderr=subprocess.DEVNULL))
        for text, mine, theirs in zip(TEXTS, ids, told["tokens"]):
            if metaspace and text.startswith(" "):  # export says that it differs there
                continue
            check(mine == theirs, f"{path}: {text!r} is {mine} here and {theirs} in llama.cpp")
        logits = np.array(told["logits"], np.float32).reshape(own.shape)
        apart = float(np.sqrt(np.mean((logits - own) ** 2) / np.mean(own ** 2)))
        # In the narrow types a token may be routed to another expert, as in any program.
        most = {"f32": 1e-4, "bf16": 5e-2, "f16": 1e-2, "q8_0": 0.1}[type_name] * (5 if experts and type_name != "f32" else 1)
        check(apart < most, f"{path}: logits are {apart:.2g} apart")
        if type_name == "f32":
            check(told["answer"][:len(answer["ids"])] == answer["ids"], f"{path}: answers {told['answer']} and {answer['ids']}")
        line.append(f"{type_name} {apart:.1e}")
    return "llama.cpp: same tokens, same greedy answer in f32; logits apart by (rms) " + ", ".join(line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--probe", type=Path)
    parser.add_argument("--vocabularies", type=Path)
    parser.add_argument("--only", nargs="*", choices=list(FAMILIES), default=list(FAMILIES))
    given = parser.parse_args()
    for number, (name, (architecture, kind, bos, eos, own)) in enumerate(FAMILIES.items()):
        if name not in given.only:
            continue
        tokenizer, vocab = tokenizer_of(kind, given.vocabularies, bos, eos)
        model = given.folder / name
        model.mkdir(parents=True, exist_ok=True)
        config = {k: v for k, v in {**SMALL, **own, "vocab_size": vocab + 5}.items() if v is not None or k == "sliding_window"}
        weights = weights_of(config, number)
        (model / "config.json").write_text(json.dumps(config))
        (model / "tokenizer.json").write_text(json.dumps(tokenizer))
        named = {"eos_token": eos, "chat_template": TEMPLATE} | ({"bos_token": bos} if bos else {})
        (model / "tokenizer_config.json").write_text(json.dumps(named))
        save_safetensors(model / "model.safetensors", weights)
        files = {}
        for type_name in ("f32", "bf16", "f16", "q8_0"):
            files[type_name] = model / f"{type_name}.gguf"
            files[type_name].unlink(missing_ok=True)
            run(given.build / "megatrain", "export", model, "--gguf", type_name, "--out", files[type_name],
                stderr=subprocess.DEVNULL if type_name != "f32" else None)
            end = next(t["id"] for t in tokenizer["added_tokens"] if t["content"] == eos)
            compare(files[type_name], type_name, config, architecture, weights, end)
        print(f"{name}: gguf reads f32, bf16, f16 and q8_0 back, every tensor as it should be", flush=True)
        if given.probe:
            print(f"{name}: " + check_llama(given.build, given.probe, model, files, vocab + 5, given.folder, "num_experts_per_tok" in config), flush=True)


if __name__ == "__main__":
    main()
