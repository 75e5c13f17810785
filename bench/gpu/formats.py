#!/usr/bin/env python3
"""One model trained from scratch on one text with each state format: what fewer bytes of state cost in loss.

    bench/gpu/formats.py [--size h200|tiny] [--only NAME…] [--steps N] [--program build/cuda/megatrain] --out DEST

Formats: docs/numerics.md section 9. Text and tokenizer: corpus.py. All runs load one export of random weights and read the
same sequences in the same order. Two more runs in the exact format show how far apart runs are anyway: `sums` adds the
gradient of the output matrix up in more parts, which changes its rounding alone; `order` reads the text in another order.

DEST gets formats-NAME.jsonl of each run (step, loss and grad_norm of every step), formats.json (the summary), formats.md
(the summary as a table, also printed) and formats.log. The exit code is 1 when a run fails; megatrain itself ends a run
whose loss is not finite.
"""

import json
import shutil
import statistics
import sys
import time
from pathlib import Path

import corpus
from setting import call, make_folders, markdown, model_config, parse_sized, parser_of, part, say, write_lines

SIZES = {
    "h200": {"shape": "qwen2.5-0.5b", "vocab": 32768, "megabytes": 16.0, "held_out": 48, "steps": 600, "batch": 8,
             "seq_len": 512, "lr": 5e-4, "warmup": 50, "device": "cuda"},
    "tiny": {"shape": "tiny", "vocab": 1024, "megabytes": 0.5, "held_out": 4, "steps": 30, "batch": 8,
             "seq_len": 64, "lr": 2e-3, "warmup": 5, "device": "cpu"},
}
# name: state.moments, state.master
FORMATS = {"fp32": ("fp32", "fp32"), "bf16": ("bf16", "fp32"), "int8": ("int8", "fp32"),
           "int8-stochastic": ("int8", "stochastic"), "fp32-stochastic": ("fp32", "stochastic"),
           "sums": ("fp32", "fp32"), "order": ("fp32", "fp32")}
REFERENCE = "fp32"
BYTES_OF_MOMENTS = {"fp32": 8, "bf16": 4, "int8": 2 + 2 * 4 / 256}  # of m and v; int8 has an fp32 scale for every 256
BYTES_OF_MASTER = {"fp32": 4, "stochastic": 2}
LAST = 50  # steps


def parse():
    parser = parser_of(__doc__, "formats")
    parser.add_argument("--program", type=Path, default=Path("build/cuda/megatrain"))
    parser.add_argument("--only", nargs="+", choices=FORMATS, default=list(FORMATS), metavar="NAME",
                        help=f"these runs, beside {REFERENCE}: " + ", ".join(FORMATS))
    return parse_sized(parser, SIZES)


def prepare(options, log, seconds):
    """Leaves the initial weights in WORK/start/model, WORK/run.yaml and the tokenised text; returns what was read."""
    work = options.work
    with part("text", seconds):
        text = corpus.collect(options.roots, work / "text", int(options.megabytes * 1e6))
        (work / "held-out").mkdir()
        for path in sorted((work / "text").glob("*.txt"))[-options.held_out:]:
            path.rename(work / "held-out" / path.name)
    with part("tokenizer", seconds):
        vocab = corpus.train_tokenizer(work / "text", work / "tokenizer", options.vocab, 16_000_000)
    (work / "model.json").write_text(json.dumps(model_config(options.shape, -(-vocab // 64) * 64, "bf16")))
    (work / "start.yaml").write_text(f"""
model: {{config: {work}/model.json}}
seed: 1
device: {options.device}
steps: 0
run_dir: {work}/start
""")
    (work / "run.yaml").write_text(f"""
model: {{path: {work}/start/model}}
device: {options.device}
data: {{train: {work}/text, eval: {work}/held-out, tokenizer: {work}/tokenizer, cache: {work}/cache}}
seq_len: {options.seq_len}
batch: {options.batch}
steps: {options.steps}
optim:
  lr: {options.lr}
  min_lr: {options.lr / 10}
  schedule: cosine
  warmup: {options.warmup}
  weight_decay: 0.1
  clip: 1.0
run_dir: {work}/run
""")
    with part("initial weights", seconds):
        call(log, options.program, "train", work / "start.yaml")
    with part("tokenising", seconds):
        prepared = json.loads(call(log, options.program, "prepare", work / "run.yaml", "--json"))
    return {"tokenizer_vocab": vocab, "text": text, "data": prepared["train"], "held_out": prepared["eval"],
            "epochs": options.steps / prepared["epoch_steps"]}


def train(options, log, name):
    """One run; writes its curve and returns its part of the summary."""
    moments, master = FORMATS[name]
    words = [f"--state.moments={moments}", f"--state.master={master}", f"--seed={2 if name == 'order' else 1}"]
    if name == "sums":
        words.append(f"--head_chunk={options.batch * options.seq_len // 4}")
    start = time.perf_counter()
    done = json.loads(call(log, options.program, "train", options.work / "run.yaml", *words, "--json"))
    elapsed = time.perf_counter() - start
    rows = [json.loads(line) for line in open(options.work / "run/metrics.jsonl")]
    shutil.rmtree(options.work / "run")
    write_lines(options.out / f"formats-{name}.jsonl",
                [{"step": row["step"], "loss": round(row["loss"], 5), "grad_norm": round(row["grad_norm"], 4)}
                 for row in rows])
    result = {"moments": moments, "master": master,
              "bytes_a_parameter": round(BYTES_OF_MOMENTS[moments] + BYTES_OF_MASTER[master], 2),
              "loss": statistics.fmean(row["loss"] for row in rows[-LAST:]), "held_out_loss": done["eval_loss"],
              "tokens_per_s": statistics.median(row["tokens_per_s"] for row in rows[1:]),
              "seconds": round(elapsed, 1)}
    say(f"{name}: loss {result['loss']:.4f}, held-out {result['held_out_loss']:.4f}, "
        f"{result['tokens_per_s']:.0f} tokens/s, {elapsed:.1f} s")
    return result


def table(runs):
    return markdown(f"run | `state.moments` | `state.master` | bytes a parameter | loss, mean of the last {LAST} steps "
                    "| less fp32's | held-out loss | less fp32's | tokens/s",
                    (f"{name} | {run['moments']} | {run['master']} | {run['bytes_a_parameter']:g} "
                     f"| {run['loss']:.4f} | {run['difference']:+.4f} "
                     f"| {run['held_out_loss']:.4f} | {run['held_out_difference']:+.4f} | {run['tokens_per_s']:,.0f}"
                     for name, run in runs.items()))


def main():
    options = parse()
    seconds = {}
    log = make_folders(options, "formats")
    read = prepare(options, log, seconds)
    runs = {name: train(options, log, name) for name in FORMATS if name in (REFERENCE, *options.only)}
    shutil.rmtree(options.work)

    reference = runs[REFERENCE]
    for run in runs.values():
        run["difference"] = run["loss"] - reference["loss"]
        run["held_out_difference"] = run["held_out_loss"] - reference["held_out_loss"]
    settings = {name: getattr(options, name) for name in SIZES[options.size]}
    summary = {"runs": runs, "settings": settings} | read | {"seconds": seconds}
    (options.out / "formats.json").write_text(json.dumps(summary, indent=1) + "\n")
    (options.out / "formats.md").write_text(table(runs))
    print(table(runs), end="")


if __name__ == "__main__":
    main()
