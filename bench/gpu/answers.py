#!/usr/bin/env python3
"""One answer of a model of gpt-oss-20b's shape with random weights in bf16: tokens/s of `megatrain generate`.

    bench/gpu/answers.py [--size h200|tiny] [--program build/cuda/megatrain] --out DEST

transformers makes the model, saves it, and answers the same prompt with it beside megatrain: greedily, one prompt, the
weights of both on the device. megatrain answers within --small of the device's memory too, where it fetches the experts
that a token's routers choose.

DEST gets answers.json (the summary, also printed) and answers.log. The exit code is 1 when a program fails.
"""

import json
import multiprocessing
import shutil
import sys
import time
from pathlib import Path

from setting import answer_speeds, make_folders, parse_sized, parser_of, part

EXAMPLE = Path("examples/chat/model")
SIZES = {
    "h200": {"layers": 24, "hidden": 2880, "heads": 64, "kv_heads": 8, "experts": 32, "vocab": 201088, "tokens": 128,
             "prompt_words": 60, "device": "cuda", "small": "8GiB"},
    "tiny": {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "experts": 4, "vocab": 512, "tokens": 16,
             "prompt_words": 10, "device": "cpu", "small": "16MiB"},
}


def parse():
    parser = parser_of(__doc__, "answers")
    parser.add_argument("--program", type=Path, default=Path("build/cuda/megatrain"))
    return parse_sized(parser, SIZES)


def save_model(options, folder, prompt, found):
    """Makes the model, times its answer and saves it; runs in a process of its own, which frees the device."""
    import torch
    from transformers import GptOssConfig, GptOssForCausalLM, PreTrainedTokenizerFast

    config = GptOssConfig(num_hidden_layers=options.layers, hidden_size=options.hidden, intermediate_size=options.hidden,
                          num_attention_heads=options.heads, num_key_value_heads=options.kv_heads, head_dim=64,
                          num_local_experts=options.experts, vocab_size=options.vocab, eos_token_id=0, pad_token_id=0)
    torch.manual_seed(1)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(options.device):
        model = GptOssForCausalLM(config).eval()
    ids = PreTrainedTokenizerFast(tokenizer_file=str(EXAMPLE / "tokenizer.json"))(prompt, return_tensors="pt").input_ids
    ids = ids.to(options.device)
    kinds = {"attention_mask": torch.ones_like(ids), "do_sample": False, "max_new_tokens": options.tokens}
    for _ in range(2):  # the first loads kernels
        start = time.perf_counter()
        out = model.generate(ids, **kinds)
        seconds = time.perf_counter() - start
    found.update({"prompt_tokens": ids.shape[1], "tokens": out.shape[1] - ids.shape[1], "seconds": seconds,
                  "tokens_per_s": (out.shape[1] - ids.shape[1]) / seconds, "torch": torch.__version__})
    model.save_pretrained(folder)


def main():
    options = parse()
    seconds, result = {}, {}
    log = make_folders(options, "answers")
    folder = options.work / "model"
    prompt = " ".join(f"number {i}" for i in range(options.prompt_words))
    with part("transformers: model, answer", seconds), multiprocessing.Manager() as manager:
        found = manager.dict()
        child = multiprocessing.get_context("spawn").Process(target=save_model, args=(options, folder, prompt, found))
        child.start()
        child.join()
        if child.exitcode:
            sys.exit("transformers could not make the model")
        result["transformers"] = dict(found)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(EXAMPLE / name, folder)
    result |= answer_speeds(options.program, folder, prompt, options.tokens, options, log, seconds)
    shutil.rmtree(options.work)
    result |= {"settings": {name: getattr(options, name) for name in SIZES[options.size]}, "seconds": seconds}
    (options.out / "answers.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
