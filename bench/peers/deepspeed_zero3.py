#!/usr/bin/env python3
"""DeepSpeed ZeRO-3 with parameters and optimizer in RAM, world size 1: fp32 master and moments, bf16 compute."""

import importlib.util
import os
import sys

import torch

import harness
from model import Decoder


def main():
    arguments = harness.parse(__doc__)
    if importlib.util.find_spec("deepspeed") is None:
        print("deepspeed is not installed: nothing was measured", file=sys.stderr)
        return
    import deepspeed

    os.environ.setdefault("LOCAL_RANK", "0")  # DeepSpeed reads it, also where a process group exists
    harness.single_process_group(arguments.device)
    config = {
        "train_batch_size": arguments.batch,
        "train_micro_batch_size_per_gpu": arguments.micro_batch,
        "gradient_accumulation_steps": arguments.batch // arguments.micro_batch,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "weight_decay": 0.01}},
        "zero_optimization": {
            "stage": 3,
            "offload_param": {"device": "cpu", "pin_memory": True},
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
            "overlap_comm": True,
            "contiguous_gradients": True,
        },
    }
    torch.set_default_dtype(torch.bfloat16)
    with deepspeed.zero.Init(config_dict_or_path=config):
        model = Decoder(arguments, recompute=True)
    for name, parameter in model.named_parameters():
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0), torch.no_grad():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.02)
            else:
                parameter.fill_(1 if "norm" in name else 0)
    engine, *_ = deepspeed.initialize(model=model, config=config, dist_init_required=False)

    def run_step(step):
        total = 0
        for tokens in harness.micro_batches(arguments, step):
            # the engine divides by the number of micro-batches
            loss = engine(tokens) * (arguments.batch // arguments.micro_batch) / harness.trained_tokens(arguments)
            engine.backward(loss)
            engine.step()
            total += loss.detach() / (arguments.batch // arguments.micro_batch)
        return total

    harness.report("DeepSpeed ZeRO-3, all on the CPU", arguments, run_step)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
