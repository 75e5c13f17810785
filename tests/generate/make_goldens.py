#!/usr/bin/env python3
"""Makes goldens.json: what transformers generates greedily, in float32, from the tiny models of tests/parity/goldens.

    make_goldens.py            write goldens.json beside this file
    make_goldens.py --check    make them again and compare

Every answer is found twice: by model.generate with its cache, and by running the whole text through the model for each
token. Both must agree, and the best token must lead the second by MARGIN, so that no rounding decides.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

HERE = Path(__file__).parent
MODELS = HERE.parent / "parity" / "goldens"
# In the order they were added: a model's place decides its prompts.
NAMES = ["llama_bias", "llama_head64", "llama_linear", "llama_llama3", "llama_mha", "llama_packed", "llama_yarn",
         "mistral_packed", "mistral_window", "qwen2_tied", "qwen2_window", "qwen2_yarn", "qwen3_norm", "qwen3_window",
         "qwen3_yarn", "phi3_window", "phi3_long", "phi3_packed", "gemma3_local", "gemma3_scaled",
         "qwen3_moe", "qwen3_moe_dense", "mixtral", "gpt_oss", "granite_tied", "granite_packed",
         "qwen3_moe_fp8", "qwen2_moe", "gemma3_whole", "mistral3_whole", "qwen2_5_vl", "qwen3_vl", "glm4_moe",
         "glm4_moe_lite", "glm4_moe_lite_whole", "deepseek_v3", "qwen3_5", "qwen3_5_packed", "qwen3_5_moe",
         "olmo2_packed", "olmo3", "olmo3_packed", "smollm3", "smollm3_packed", "seed_oss", "ministral3",
         "ministral3_packed", "glm4", "glm4_packed", "exaone4", "exaone4_packed", "gemma2",
         "qwen3_next", "qwen3_next_packed", "mistral4", "mistral4_packed", "kimi_k25",
         "gemma4_values", "gemma4_moe", "gemma4_e2b", "gemma4_e4b", "gemma4_unified", "granite4", "granite4_packed",
         "nemotron_h", "falcon_h1", "falcon_h1_packed", "cohere", "cohere2", "minimax_m2", "lfm2_packed",
         "gemma2_capped", "gemma_packed", "arcee_packed", "ernie4_5", "olmoe"]
PROMPT_TOKENS = [1, 5, 17, 40]
NEW_TOKENS = 48
MARGIN = 1e-4


def rounded(logits):
    return [float(f"{x:.6g}") for x in logits.tolist()]


def greedy(model, prompt):
    """Ids, the first step's logits and the last step's, by whole forward passes."""
    ids, rows = list(prompt), []
    for _ in range(NEW_TOKENS):
        with torch.no_grad():
            logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        best = torch.topk(logits, 2)
        margin = float(best.values[0] - best.values[1])
        if margin < MARGIN:
            return None, None, None
        rows.append(logits)
        ids.append(int(best.indices[0]))
    return ids[len(prompt):], rounded(rows[0]), rounded(rows[-1])


def make_case(name, rng):
    config = json.loads((MODELS / name / "model" / "config.json").read_text())
    whole = "vision_config" in config or config["model_type"] == "mistral4"  # which transformers lists among them
    auto = AutoModelForImageTextToText if whole else AutoModelForCausalLM
    model = auto.from_pretrained(MODELS / name / "model", dtype=torch.float32,
                                 attn_implementation="eager", experts_implementation="eager").eval()
    model = model.float()  # of fp8 only the dequantised weights are
    vocab, answers = model.config.get_text_config().vocab_size, []
    for count in PROMPT_TOKENS:
        while True:
            prompt = rng.integers(3, vocab, size=count).tolist()
            ids, first, last = greedy(model, prompt)
            if ids is not None:
                break
        cached = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, count, dtype=torch.long),
                                do_sample=False, max_new_tokens=NEW_TOKENS, eos_token_id=None, pad_token_id=0)
        if cached[0, count:].tolist() != ids:
            sys.exit(f"{name}: transformers' cache disagrees with its whole forward pass")
        answers.append({"prompt": prompt, "ids": ids, "first_logits": first, "last_logits": last})
    return answers


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    goldens = {}
    for index, name in enumerate(NAMES):
        goldens[name] = make_case(name, np.random.default_rng(1000 + index))
        print(name, len({token for answer in goldens[name] for token in answer["ids"]}), "distinct tokens")
    text = json.dumps(goldens, separators=(",", ":")).replace('{"prompt"', '\n{"prompt"') + "\n"
    path = HERE / "goldens.json"
    if not arguments.check:
        path.write_text(text)
        return
    old = json.loads(path.read_text())
    for name, answers in goldens.items():
        for mine, theirs in zip(answers, old[name], strict=True):
            assert mine["ids"] == theirs["ids"], name
            for key in ("first_logits", "last_logits"):
                assert np.allclose(mine[key], theirs[key], rtol=0, atol=1e-4), (name, key)
    print("equal")


if __name__ == "__main__":
    main()
