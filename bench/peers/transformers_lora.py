#!/usr/bin/env python3
"""transformers with a base in bf16 on the GPU and PEFT's LoRA adapters in fp32, every block recomputed.

    bench/peers/transformers_lora.py --model qwen3_5_text --batch 32 --micro-batch 4
    bench/peers/transformers_lora.py --model qwen3_5_text --set hidden_size=5120 --set num_hidden_layers=64 …

The model is the one that transformers makes of a model type, with the fields of --set. Weights are random. Needs Python
with torch, transformers and peft. The line names flash-linear-attention (fla) and causal_conv1d if they are installed.
"""

import argparse
import importlib.util
import json

import torch

import harness


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the model_type of a text model")
    parser.add_argument("--set", action="append", default=[], type=field, metavar="FIELD=JSON",
                        help="a field of its configuration")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--targets", default="all-linear", help="all-linear, or names of modules with commas")
    parser.add_argument("--target-parameters", default="", help="names of parameters with commas")
    harness.add_step(parser, micro_batch=4, steps=3)
    arguments = harness.checked(parser)
    try:
        arguments.config = config_of(arguments.model, dict(arguments.set))
    except ValueError as error:
        parser.error(str(error))
    arguments.vocab = arguments.config.vocab_size
    return arguments


def field(text):
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}' is not FIELD=JSON")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        raise argparse.ArgumentTypeError(f"'{value}' of {name} is not JSON; a text needs quotes") from None


def config_of(model, fields):
    """The model type's configuration. transformers itself would keep an unknown field and not obey it."""
    from transformers import AutoConfig

    known = AutoConfig.for_model(model)
    unknown = [name for name in fields if not hasattr(known, name)]
    if unknown:
        raise ValueError(f"--set: {model} has no field {', '.join(unknown)}")
    return AutoConfig.for_model(model, **fields)


def names(text):
    return [name for name in text.split(",") if name]


def make_model(arguments):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    with torch.device(arguments.device):
        model = AutoModelForCausalLM.from_config(arguments.config, dtype=torch.bfloat16)
    model.config.use_cache = False
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    targets = arguments.targets if arguments.targets == "all-linear" else names(arguments.targets)
    model = get_peft_model(model, LoraConfig(r=arguments.rank, lora_alpha=arguments.rank, target_modules=targets,
                                             target_parameters=names(arguments.target_parameters) or None,
                                             task_type="CAUSAL_LM"))
    for weight in model.parameters():
        if weight.requires_grad:
            weight.data = weight.data.float()
    return model.train()


class SummedLoss(torch.nn.Module):
    """The model as harness.train_step() calls it: tokens to the sum of their losses."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            return self.model(input_ids=tokens, labels=tokens).loss * (tokens.numel() - len(tokens))


def main():
    arguments = parse()
    torch.manual_seed(1)
    model = SummedLoss(make_model(arguments))
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, weight_decay=0.01, fused=arguments.device == "cuda")

    kernels = [name for name in ("fla", "causal_conv1d") if importlib.util.find_spec(name)]
    harness.report(f"transformers and PEFT, {arguments.model}, rank {arguments.rank}, every block recomputed, "
                   f"installed: {', '.join(kernels) or 'no kernels'}", arguments,
                   lambda step: harness.train_step(model, optimizer, arguments, step))


if __name__ == "__main__":
    main()
