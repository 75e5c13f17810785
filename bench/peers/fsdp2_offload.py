#!/usr/bin/env python3
"""PyTorch's FSDP2 with CPU offload, world size 1: fp32 master, gradients and moments in RAM, bf16 compute."""

import torch
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

import harness
from model import Decoder, fill_randomly


def main():
    arguments = harness.parse(__doc__)
    harness.single_process_group(arguments.device)
    mesh = torch.distributed.init_device_mesh(arguments.device, (1,))
    with torch.device("meta"):
        model = Decoder(arguments, recompute=True)
    options = {"mesh": mesh, "offload_policy": CPUOffloadPolicy(pin_memory=arguments.device == "cuda"),
               "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)}
    for block in model.blocks:
        fully_shard(block, **options)
    fully_shard(model, **options)
    model.to_empty(device="cpu")
    fill_randomly(model, arguments.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)

    harness.report("FSDP2, CPU offload, fp32 master and moments in RAM", arguments,
                   lambda step: harness.train_step(model, optimizer, arguments, step))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
