#!/usr/bin/env python3
"""A model trained from scratch on text by megatrain, and the same run in PyTorch: two loss curves beside each other.

    bench/gpu/pretrain.py [--size h200|tiny] [--program build/cuda/megatrain] [--work DIR] --out DEST

Text and tokenizer: corpus.py, so nothing has to be brought along. Both runs load one export of random weights and read the
sequences that `megatrain prepare --out` writes in the order of the run. PyTorch: transformers' model, a mask of (S, S)
for every sequence so that a document sees itself alone, positions that restart, bf16 weights with float32 masters, AdamW.

--each bounds the relative difference of every step's loss; none: it is not looked at.

DEST gets pretrain-megatrain.jsonl and pretrain-torch.jsonl (one object a step), pretrain.json (the summary, also printed)
and pretrain.log. The exit code is 1 when the mean losses of the last steps differ by more than --tolerance, or the loss of
any step by more than --each.
"""

import json
import math
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

import corpus
from setting import call, make_folders, model_config, parse_sized, parser_of, part, say, write_lines

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/parity"))
from r1_reference import MasterWeights, head_backward  # noqa: E402

SIZES = {
    "h200": {"shape": "qwen2.5-0.5b", "vocab": 32768, "megabytes": 48.0, "steps": 300, "batch": 32, "seq_len": 1024,
             "micro_batch": 8, "lr": 5e-4, "warmup": 30, "device": "cuda", "precision": "bf16",
             "each": None},
    "tiny": {"shape": "tiny", "vocab": 1024, "megabytes": 0.5, "steps": 30, "batch": 8, "seq_len": 128,
             "micro_batch": 4, "lr": 2e-3, "warmup": 5, "device": "cpu", "precision": "fp32",
             "each": 1e-5},
}
BETA1, BETA2, EPS, WEIGHT_DECAY, CLIP = 0.9, 0.95, 1e-8, 0.1, 1.0
LAST, WINDOW = 20, 20  # steps


def parse():
    parser = parser_of(__doc__, "pretrain")
    parser.add_argument("--program", type=Path, default=Path("build/cuda/megatrain"))
    parser.add_argument("--tolerance", type=float, default=0.01, help="of the final losses, relative")
    return parse_sized(parser, SIZES)


def learning_rate(options, step):
    """Warmup, then half a cosine down to a tenth. Steps count from 1."""
    if step <= options.warmup:
        return options.lr * step / options.warmup
    done = (step - 1 - options.warmup) / (options.steps - options.warmup)
    return options.lr * (0.1 + 0.9 * (1 + math.cos(math.pi * done)) / 2)


def train_megatrain(options, vocab, seconds):
    """Leaves the initial weights in WORK/start/model and the sequences in WORK/prepared; returns a row for each step."""
    work, log = options.work, options.out / "pretrain.log"
    (work / "model.json").write_text(json.dumps(model_config(options.shape, vocab, options.precision)))
    (work / "start.yaml").write_text(f"""
model: {{config: {work}/model.json}}
seed: 1
device: {options.device}
precision: {options.precision}
steps: 0
run_dir: {work}/start
""")
    (work / "run.yaml").write_text(f"""
model: {{path: {work}/start/model}}
seed: 1
device: {options.device}
precision: {options.precision}
data: {{train: {work}/text, tokenizer: {work}/tokenizer, cache: {work}/cache}}
seq_len: {options.seq_len}
batch: {options.batch}
micro_batch: {options.micro_batch}
steps: {options.steps}
optim:
  lr: {options.lr}
  min_lr: {options.lr / 10}
  schedule: cosine
  warmup: {options.warmup}
  beta1: {BETA1}
  beta2: {BETA2}
  eps: {EPS}
  weight_decay: {WEIGHT_DECAY}
  clip: {CLIP}
run_dir: {work}/run
""")
    with part("initial weights", seconds):
        call(log, options.program, "train", work / "start.yaml")
    with part("tokenising", seconds):
        prepared = json.loads(call(log, options.program, "prepare", work / "run.yaml", "--out", work / "prepared", "--json"))
    with part("megatrain", seconds):
        call(log, options.program, "train", work / "run.yaml")
    keys = ("step", "loss", "grad_norm", "lr", "trained_tokens", "seconds")
    rows = [{key: row[key] for key in keys} for row in map(json.loads, open(work / "run/metrics.jsonl"))]
    return prepared, rows


class Sequences:
    """The sequences of the run: tokens, the label each position predicts, positions and documents, each (N, S)."""

    def __init__(self, folder, seq_len):
        tokens = np.fromfile(folder / "tokens.bin", "<u4").astype(np.int64)
        labels = np.fromfile(folder / "labels.bin", "<i4").astype(np.int64)
        begins = np.fromfile(folder / "documents.bin", "<u8").astype(np.int64)
        first = np.zeros(len(tokens), bool)
        first[begins] = True
        first[::seq_len] = True
        document = np.cumsum(first)
        place = np.arange(len(tokens))
        positions = place - np.maximum.accumulate(np.where(first, place, 0))
        predicts = np.full_like(labels, -100)
        predicts[:-1] = np.where(first[1:], -100, labels[1:])
        shaped = [torch.from_numpy(values).view(-1, seq_len) for values in (tokens, predicts, positions, document)]
        self.tokens, self.predicts, self.positions, self.document = shaped

    def take(self, begin, end, device):
        return [values[begin:end].to(device) for values in
                (self.tokens, self.predicts, self.positions, self.document)]


def micro_batch_loss(model, rows, trained, chunk=4096):
    """Backward of a micro-batch's part of the step's mean; returns the sum of its token losses."""
    tokens, predicts, positions, document = rows
    size = tokens.shape[1]
    causal = torch.ones(size, size, dtype=torch.bool, device=tokens.device).tril()
    mask = (document[:, None, :, None] == document[:, None, None, :]) & causal  # (B, 1, S, S)
    hidden = model.model(input_ids=tokens, position_ids=positions, attention_mask=mask,
                         use_cache=False).last_hidden_state.flatten(0, 1)
    return head_backward(model, hidden, predicts.flatten(), trained, chunk)


def train_torch(options):
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[options.precision]
    model = AutoModelForCausalLM.from_pretrained(options.work / "start/model", dtype=dtype, attn_implementation="sdpa")
    model = model.to(options.device).train()
    masters = MasterWeights(model, argparse.Namespace(lr=options.lr, beta1=BETA1, beta2=BETA2, eps=EPS,
                                                      weight_decay=WEIGHT_DECAY))
    data = Sequences(options.work / "prepared", options.seq_len)
    rows, lines = [], open(options.out / "pretrain-torch.jsonl", "w", buffering=1)
    for step in range(1, options.steps + 1):
        start = time.perf_counter()
        lr = learning_rate(options, step)
        for group in masters.optimizer.param_groups:
            group["lr"] = lr
        begin, end = (step - 1) * options.batch, step * options.batch
        trained = int((data.predicts[begin:end] >= 0).sum())
        total = sum(micro_batch_loss(model, data.take(at, at + options.micro_batch, options.device), trained)
                    for at in range(begin, end, options.micro_batch))
        norm = masters.step(CLIP)
        rows.append({"step": step, "loss": total.item() / trained, "grad_norm": norm, "lr": lr,
                     "trained_tokens": trained, "seconds": time.perf_counter() - start})
        print(json.dumps(rows[-1]), file=lines)
        if step % 20 == 0 or step == 1:
            say(f"   PyTorch: step {step}  loss {rows[-1]['loss']:.4f}  {rows[-1]['seconds']:.3f} s")
    return rows


def smoothed(rows):
    losses = np.array([row["loss"] for row in rows])
    return np.convolve(losses, np.ones(WINDOW) / WINDOW, "valid")


def compare(ours, theirs):
    """Every difference is relative to PyTorch's. The curves are smoothed over WINDOW steps."""
    for a, b in zip(ours, theirs, strict=True):
        if a["trained_tokens"] != b["trained_tokens"] or abs(a["lr"] / b["lr"] - 1) > 1e-9:
            sys.exit(f"the runs are not the same: {a} and {b}")
    final = [float(np.mean([row["loss"] for row in rows[-LAST:]])) for rows in (ours, theirs)]
    apart = np.abs(np.array([a["loss"] / b["loss"] - 1 for a, b in zip(ours, theirs)]))
    curves = np.abs(smoothed(ours) / smoothed(theirs) - 1) if len(ours) >= WINDOW else np.zeros(1)
    return {"first_loss": [ours[0]["loss"], theirs[0]["loss"]], "final_loss": final, "final_ratio": final[0] / final[1],
            "largest_difference_smoothed": float(curves.max()), "largest_difference_of_a_step": float(apart.max()),
            "largest_difference_of_the_first_10_steps": float(apart[:10].max()),
            "median_s": [float(np.median([row["seconds"] for row in rows[1:]])) for rows in (ours, theirs)]}


def main():
    options = parse()
    seconds = {}
    make_folders(options, "pretrain")
    with part("text", seconds):
        text = corpus.collect(options.roots, options.work / "text", int(options.megabytes * 1e6))
    with part("tokenizer", seconds):
        vocab = corpus.train_tokenizer(options.work / "text", options.work / "tokenizer", options.vocab, 16_000_000)
    prepared, ours = train_megatrain(options, -(-vocab // 64) * 64, seconds)
    write_lines(options.out / "pretrain-megatrain.jsonl", ours)
    with part("PyTorch", seconds):
        theirs = train_torch(options)
    shutil.rmtree(options.work)

    result = compare(ours, theirs)
    within = abs(result["final_ratio"] - 1) <= options.tolerance
    if options.each is not None:
        within = within and result["largest_difference_of_a_step"] <= options.each
    settings = {name: getattr(options, name) for name in SIZES[options.size]}
    summary = {"within": within, "tolerance": options.tolerance} | result | {
        "settings": settings, "tokenizer_vocab": vocab, "text": text, "data": prepared["train"],
        "epochs": options.steps / prepared["epoch_steps"], "torch": torch.__version__, "seconds": seconds}
    (options.out / "pretrain.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary, indent=1))
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
