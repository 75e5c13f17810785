#!/usr/bin/env python3
"""The speed of packed documents of unequal length beside that of equal sequences of 1024 tokens, step by step.

    bench/gpu/packed.py [--size h200|tiny] [--program build/cuda/megatrain] --out DEST

Both runs train one model from random weights on the same random tokens, as many a step. One has sequences of
--seq-len tokens full of documents whose lengths are log-normal (mean --mean, at most a sequence), the other sequences
of --equal tokens without a cut.

DEST gets packed-NAME.jsonl of each run (step, seconds, tokens/s of every step), packed.json (the summary), packed.md
(the summary as a table, also printed) and packed.log. From step 3 on the median of tokens/s counts. The exit code is 1
when a run fails, when packed documents have less than 90% of the other run's speed, or when a step from the third on
takes more than twice the median.
"""

import json
import math
import random
import shutil
import statistics
import struct
import sys
from pathlib import Path

from setting import call, conclude, make_folders, markdown, model_config, parse_sized, parser_of, part, write_lines

SIZES = {
    "h200": {"shape": "qwen2.5-0.5b", "vocab": 32768, "seq_len": 32768, "sequences": 4, "equal": 1024, "mean": 500,
             "steps": 30, "device": "cuda", "precision": "bf16"},
    "tiny": {"shape": "tiny", "vocab": 512, "seq_len": 512, "sequences": 2, "equal": 64, "mean": 40, "steps": 5,
             "device": "cpu", "precision": "fp32"},
}
SPREAD = 1.0  # of the lengths' logarithms


def parse():
    parser = parser_of(__doc__, "packed")
    parser.add_argument("--program", type=Path, default=Path("build/cuda/megatrain"))
    return parse_sized(parser, SIZES)


def document_begins(options, chance):
    """First tokens of documents that fill every sequence; the last of a sequence is cut where the sequence ends."""
    middle = options.mean / math.exp(SPREAD ** 2 / 2)
    begins = []
    for sequence in range(options.steps * options.sequences):
        at = 0
        while at < options.seq_len:
            begins.append(sequence * options.seq_len + at)
            at += min(options.seq_len, max(2, round(chance.lognormvariate(0, SPREAD) * middle)))
    return begins


def write_data(options):
    """Tokens and documents; returns the mean length of these and their pairs of tokens over those of equal sequences."""
    chance = random.Random(1)
    tokens = options.steps * options.sequences * options.seq_len
    (options.work / "tokens.bin").write_bytes(
        struct.pack(f"<{tokens}H", *(chance.randrange(options.vocab) for _ in range(tokens))))
    begins = document_begins(options, chance)
    (options.work / "documents.bin").write_bytes(struct.pack(f"<{len(begins)}Q", *begins))
    lengths = [end - begin for begin, end in zip(begins, begins[1:] + [tokens])]
    return {"mean_document": tokens / len(begins),
            "pairs": sum(length ** 2 for length in lengths) / (tokens * options.equal)}


def train(options, log, name, seq_len, extra):
    run = options.work / name
    config = options.work / f"{name}.yaml"
    config.write_text(f"""model: {{config: {options.work}/config.json}}
data: {{tokens: {options.work}/tokens.bin, dtype: uint16}}
seq_len: {seq_len}
batch: {options.sequences * options.seq_len // seq_len}
micro_batch: {options.seq_len // seq_len}
steps: {options.steps}
run_dir: {run}
device: {options.device}
precision: {options.precision}
""")
    call(log, options.program, "train", config, *extra)
    rows = [json.loads(line) for line in open(run / "metrics.jsonl")]
    write_lines(options.out / f"packed-{name}.jsonl",
                [{key: row[key] for key in ("step", "seconds", "tokens_per_s", "tokens")} for row in rows])
    later = [row["seconds"] for row in rows[2:]]
    middle = statistics.median(later)
    return {"tokens_per_s": rows[-1]["tokens"] / middle, "median_s": middle, "first_s": rows[0]["seconds"],
            "second_s": rows[1]["seconds"], "longest_s": max(later), "longest_over_median": max(later) / middle}


def main():
    options = parse()
    log = make_folders(options, "packed")
    (options.work / "config.json").write_text(
        json.dumps(model_config(options.shape, options.vocab, options.precision)))
    seconds = {}
    with part("data", seconds):
        data = write_data(options)
    runs = {}
    for name, seq_len, extra in (("equal", options.equal, ()),
                                 ("documents", options.seq_len, (f"--data.documents={options.work}/documents.bin",))):
        with part(name, seconds):
            runs[name] = train(options, log, name, seq_len, extra)
    ratio = runs["documents"]["tokens_per_s"] / runs["equal"]["tokens_per_s"]
    even = runs["documents"]["longest_over_median"]
    summary = {"runs": runs, **data, "ratio": ratio, "holds": ratio >= 0.9 and even <= 2,
               "settings": {name: getattr(options, name) for name in SIZES["tiny"]}, "seconds": seconds}
    shutil.rmtree(options.work)
    text = markdown("run | tokens/s | median step, s | first | second | longest from the third on",
                    (f"{name} | {run['tokens_per_s']:,.0f} | {run['median_s']:.3f} | {run['first_s']:.2f} "
                     f"| {run['second_s']:.2f} | {run['longest_s']:.3f}" for name, run in runs.items()))
    return conclude(options, "packed", summary,
                    text + f"\nDocuments of {data['mean_document']:.0f} tokens on average, with {data['pairs']:.2f} times the pairs "
                           f"of tokens, have {100 * ratio:.1f}% of the speed.\n")


if __name__ == "__main__":
    sys.exit(main())
