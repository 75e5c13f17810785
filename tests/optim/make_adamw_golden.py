#!/usr/bin/env python3
"""Makes goldens/adamw_fp32.json: 1,000 steps of PyTorch's fp32 AdamW over the gradients of adamw_recording.h.

    python3 tests/optim/make_adamw_golden.py
"""
import json
import pathlib

import numpy as np
import torch

WEIGHTS, STEPS = 512, 1000
OPTIONS = dict(lr=1e-6, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)


def bits(x):
    x = np.asarray(x, dtype=np.uint32)
    x = x * np.uint32(0x9E3779B1) + np.uint32(0x7F4A7C15)
    x = (x ^ (x >> np.uint32(15))) * np.uint32(0x85EBCA6B)
    x = (x ^ (x >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    return (x ^ (x >> np.uint32(16))).astype(np.int64)


def weights():
    i = np.arange(WEIGHTS, dtype=np.uint32)
    total = sum((bits(4 * i + part) >> 16) - 32768 for part in range(4))
    return total.astype(np.float32) * np.float32(2.0**-21)


def gradient(step):
    i = np.arange(WEIGHTS, dtype=np.uint32)
    noise = (bits(np.uint32(0x40000000 + step * WEIGHTS) + i) >> 16) - 32768
    mean = (bits(np.uint32(0x20000000) + i) >> 18) - 8192
    return (noise + mean).astype(np.float32) * np.float32(2.0**-24)


def main():
    w = torch.nn.Parameter(torch.from_numpy(weights()))
    optimizer = torch.optim.AdamW([w], foreach=False, fused=False, **OPTIONS)
    for step in range(STEPS):
        w.grad = torch.from_numpy(gradient(step))
        optimizer.step()
    hexes = [f'"{int(b):08x}"' for b in w.detach().numpy().view(np.uint32)]
    rows = ",\n  ".join(", ".join(hexes[i : i + 8]) for i in range(0, WEIGHTS, 8))
    made_by = f"torch {torch.__version__.split('+')[0]}, tests/optim/make_adamw_golden.py"
    path = pathlib.Path(__file__).parent / "goldens" / "adamw_fp32.json"
    path.write_text(
        f'{{"made_by": {json.dumps(made_by)},\n'
        f' "first_gradients": {json.dumps([float(g) for g in gradient(0)[:4]])},\n'
        f' "weights": [\n  {rows}\n]}}\n'
    )
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
