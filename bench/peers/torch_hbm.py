#!/usr/bin/env python3
"""PyTorch with everything on the GPU: weights, gradients and both moments in bf16, SDPA, fused AdamW."""

import torch

import harness
from model import Decoder, fill_randomly


def main():
    arguments = harness.parse(__doc__)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device(arguments.device):
        model = Decoder(arguments, arguments.recompute)
    fill_randomly(model, arguments.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)

    kept = "every block recomputed" if arguments.recompute else "nothing recomputed"
    harness.report(f"PyTorch, everything in HBM in bf16, {kept}", arguments,
                   lambda step: harness.train_step(model, optimizer, arguments, step))


if __name__ == "__main__":
    main()
