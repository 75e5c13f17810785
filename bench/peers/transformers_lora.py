#!/usr/bin/env python3
"""transformers with a base in bf16 on the GPU and PEFT's LoRA adapters, every block recomputed.

    bench/peers/transformers_lora.py --model qwen3_5_text --batch 32 --micro-batch 4
    bench/peers/transformers_lora.py --model gemma4_text --set hidden_size=5376 --set num_hidden_layers=60 …

The model is the one that transformers makes of the model type without a file, with the fields of --set. Needs Python with
torch, transformers and peft. The line also says which kernels of flash-linear-attention and causal-conv1d there are.
"""

import argparse
import importlib.util
import json

import torch

import harness


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the model_type of a text model")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=JSON")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--targets", default="all-linear", help="PEFT's target_modules: a word, or names and commas")
    parser.add_argument("--target-parameters", default="", help="names and commas")
    for name, value in (("batch", 32), ("seq-len", 1024), ("micro-batch", 4)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("-r", "--steps", type=int, default=3, help="the first one warms up")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    arguments = parser.parse_args()
    if arguments.batch % arguments.micro_batch:
        parser.error("--micro-batch must divide --batch")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device; --device cpu with small sizes checks that the script runs")
    return arguments


def make_model(arguments):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = dict(field.split("=", 1) for field in arguments.set)
    config = AutoConfig.for_model(arguments.model, **{name: json.loads(text) for name, text in fields.items()})
    arguments.vocab = config.vocab_size
    with torch.device(arguments.device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.config.use_cache = False
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    targets = arguments.targets if "," not in arguments.targets else arguments.targets.split(",")
    parameters = [name for name in arguments.target_parameters.split(",") if name] or None
    model = get_peft_model(model, LoraConfig(r=arguments.rank, lora_alpha=arguments.rank, target_modules=targets,
                                             target_parameters=parameters, task_type="CAUSAL_LM"))
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()
    return model.train()


def main():
    arguments = parse()
    torch.manual_seed(1)
    model = make_model(arguments)
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.01, fused=arguments.device == "cuda")

    def step(number):
        total = 0
        for tokens in harness.micro_batches(arguments, number):
            with torch.autocast(arguments.device, dtype=torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss * (len(tokens) / arguments.batch)
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return total

    kernels = [name for name in ("fla", "causal_conv1d", "flash_attn") if importlib.util.find_spec(name)]
    harness.report(f"transformers and PEFT, {arguments.model}, rank {arguments.rank}, every block recomputed, "
                   f"kernels: {', '.join(kernels) or 'its own'}", arguments, step)


if __name__ == "__main__":
    main()
