#!/usr/bin/env python3
"""The products of experts in megatrain beside PyTorch's grouped kernel, in TFLOP/s.

    bench/gpu/experts.py [--program build/cuda/megatrain] [--models NAME…] [--micro-batch M] [--seq-len S] --out DEST

`megatrain bench ops MODEL` times every call of a layer alone, each expert having the same number of rows: the forward
product, the gradient of its input, and the gradient of its weight added to an fp32 sum. The same shapes run in
`torch._grouped_mm` on bf16: over rows (M, K) by (E, K, N), and for the weight gradient over ragged K, (N, M) by (M, K),
whose bf16 result is then added to an fp32 sum. Biases are part of megatrain's calls and not of PyTorch's.

DEST gets experts.json, experts.md (a table, also printed) and experts.log. Nothing fails below the threshold that is
shown.
"""

import argparse
import json
import re
import statistics
import sys
import time
from pathlib import Path

import torch

from setting import call, markdown, say

MODELS = ("gpt-oss-20b", "gpt-oss-120b", "qwen3-30b-a3b")
THRESHOLD = 0.85  # of PyTorch's rate
SAMPLES = 21
SAMPLE_S = 2e-3  # of calls that are timed together
CALL = re.compile(r"experts (?:grad (?P<grad>input|weight) )?(?P<rows>\d+) rows of (?P<experts>\d+) experts "
                  r"(?:by|to) (?P<n>\d+)x(?P<k>\d+) (?:bf16|fp32)(?: \+ bias| and bias)?(?P<added>, added)?")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=Path("build/cuda/megatrain"))
    parser.add_argument("--models", nargs="+", default=MODELS, help="presets, config.json files or model directories")
    parser.add_argument("--micro-batch", type=int, default=16)
    parser.add_argument("--seq-len", type=int, default=1024)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def expert_products(ops):
    """The products of experts among the calls of `bench ops --json`, with their shapes; n and k are of the weight."""
    found = []
    for row in ops["calls"]:
        match = CALL.fullmatch(row["call"])
        if not match:
            continue
        if match["grad"] == "weight" and not match["added"]:
            sys.exit(f"'{row['call']}' adds to nothing; a gradient that is added to a sum was expected")
        found.append({"product": match["grad"] or "forward", "tflops": row["tflops"]}
                     | {key: int(match[key]) for key in ("rows", "experts", "n", "k")})
    if sorted(product["product"] for product in found) != sorted(["forward", "input", "weight"] * 2):
        sys.exit(f"{len(found)} products of experts were found where two of each kind were expected: {found}")
    return found


def grouped_product(product, device):
    """A function that makes the same product in PyTorch."""
    rows, experts, n, k = (product[key] for key in ("rows", "experts", "n", "k"))
    if rows % experts:
        sys.exit(f"{rows} rows cannot be the same number for each of {experts} experts")
    make = {"dtype": torch.bfloat16, "device": device}
    offs = torch.arange(1, experts + 1, dtype=torch.int32, device=device) * (rows // experts)
    if product["product"] == "forward":
        x, weight = torch.randn(rows, k, **make), torch.randn(experts, n, k, **make)
        return lambda: torch._grouped_mm(x, weight.transpose(-2, -1), offs=offs)  # (rows, n)
    if product["product"] == "input":
        grad_out, weight = torch.randn(rows, n, **make), torch.randn(experts, n, k, **make)
        return lambda: torch._grouped_mm(grad_out, weight, offs=offs)  # (rows, k)
    grad_out, x = torch.randn(rows, n, **make), torch.randn(rows, k, **make)
    total = torch.zeros(experts, n, k, dtype=torch.float32, device=device)
    return lambda: total.add_(torch._grouped_mm(grad_out.t(), x, offs=offs))  # (experts, n, k)


def seconds_of(function, device, calls):
    """Of one call, of so many one after another."""
    if device == "cpu":
        start = time.perf_counter()
        for _ in range(calls):
            function()
        return (time.perf_counter() - start) / calls
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(calls):
        function()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1e3 / calls


def median_seconds(function, device):
    seconds_of(function, device, 1)
    calls = max(1, min(20, int(SAMPLE_S / seconds_of(function, device, 1))))
    return statistics.median(seconds_of(function, device, calls) for _ in range(SAMPLES))


def compare(options, log, model):
    say(f"== {model}")
    ops = json.loads(call(log, options.program, "bench", "ops", model, "--layers", 1, "--seq-len", options.seq_len,
                          "--micro-batch", options.micro_batch, f"--device={options.device}", "--json"))
    rows = []
    for product in expert_products(ops):
        function = grouped_product(product, options.device)
        flops = 2 * product["rows"] * product["n"] * product["k"]
        theirs = flops / median_seconds(function, options.device) * 1e-12
        del function
        if options.device == "cuda":
            torch.cuda.empty_cache()
        rows.append({"model": model} | product | {"torch_tflops": theirs, "ratio": product["tflops"] / theirs})
    return rows


def table(rows):
    def line(row):
        name = "forward" if row["product"] == "forward" else f"{row['product']} gradient"
        below = "" if row["ratio"] >= THRESHOLD else ", below"
        return (f"{row['model']} | {name} | {row['experts']} x {row['rows'] // row['experts']} | {row['n']} x {row['k']} "
                f"| {row['tflops']:.4g} | {row['torch_tflops']:.4g} | {row['ratio']:.0%}{below}")

    return markdown(f"model | product | experts x rows | weight | TFLOP/s | PyTorch's | of it (at least {THRESHOLD:.0%})",
                    map(line, rows))


def main():
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "experts.log"
    log.unlink(missing_ok=True)
    rows = [row for model in options.models for row in compare(options, log, model)]
    summary = {"rows": rows, "threshold": THRESHOLD, "least_ratio": min(row["ratio"] for row in rows),
               "tokens": options.micro_batch * options.seq_len, "torch": torch.__version__,
               "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu"}
    (options.out / "experts.json").write_text(json.dumps(summary, indent=1) + "\n")
    (options.out / "experts.md").write_text(table(rows))
    print(table(rows), end="")


if __name__ == "__main__":
    main()
