#!/usr/bin/env python3
"""What being watched costs a run: its steps while `watch --http` serves the live page to a reader, beside those without.

    bench/gpu/watched.py [--size h200|tiny] [--program build/cuda/megatrain] --out DEST

One run trains a model from random weights on random tokens. By turns of --turn steps it is left alone and watched: a
`megatrain watch --http` follows it, and a client reads the page and every event, as a browser does. The run writes
live.json every two seconds in both. Steps in which a watch begins or ends count for neither.

DEST gets watched.jsonl (step, seconds, watched), watched.json (the summary), watched.md (also printed) and watched.log.
The exit code is 1 when the run fails, when a tenth of the watched steps were not told, or when the median of the watched
steps is more than 0.5% above that of the others.
"""

import json
import random
import shutil
import statistics
import struct
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

from setting import conclude, make_folders, markdown, model_config, parse_sized, parser_of, part, write_lines

SIZES = {
    "h200": {"shape": "qwen2.5-0.5b", "vocab": 32768, "seq_len": 1024, "batch": 16, "steps": 600, "turn": 50,
             "device": "cuda", "precision": "bf16"},
    "tiny": {"shape": "tiny", "vocab": 512, "seq_len": 64, "batch": 8, "steps": 600, "turn": 50, "device": "cpu",
             "precision": "fp32"},
}
MOST = 1.005


def parse():
    parser = parser_of(__doc__, "watched")
    parser.add_argument("--program", type=Path, default=Path("build/cuda/megatrain"))
    return parse_sized(parser, SIZES)


def write_run(options):
    (options.work / "config.json").write_text(
        json.dumps(model_config(options.shape, options.vocab, options.precision)))
    chance = random.Random(1)
    tokens = 64 * options.batch * options.seq_len  # several epochs
    (options.work / "tokens.bin").write_bytes(
        struct.pack(f"<{tokens}H", *(chance.randrange(options.vocab) for _ in range(tokens))))
    config = options.work / "watched.yaml"
    config.write_text(f"""model: {{config: {options.work}/config.json}}
data: {{tokens: {options.work}/tokens.bin, dtype: uint16}}
seq_len: {options.seq_len}
batch: {options.batch}
steps: {options.steps}
run_dir: {options.work}/run
device: {options.device}
precision: {options.precision}
""")
    return config


class Watch:
    """A watch and a client that reads what it serves."""

    def __init__(self, options, errors):
        self.process = subprocess.Popen([options.program, "watch", options.work / "run", "--http", "0"],
                                        stdout=subprocess.PIPE, stderr=errors, text=True)
        self.url = self.process.stdout.readline().strip()
        urllib.request.urlopen(self.url).read()
        self.told = set()  # steps
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        try:
            for line in urllib.request.urlopen(self.url + "events"):
                if line.startswith(b"data:"):
                    self.told.update(json.loads(line[5:]).get("rows", {}).get("step", ()))
        except OSError:
            pass  # the watch was ended

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.reader.join()


def steps_done(options):
    metrics = options.work / "run" / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def follow(options, run, errors):
    """Watches the run by turns until it ends. Returns the watches and what each step was: alone, watched, or neither."""
    watches, kinds, watch, since = [], {}, None, options.turn // 2  # the first steps warm up
    while run.poll() is None:
        time.sleep(0.02)
        step = steps_done(options)
        if (step // options.turn % 2 == 1) == (watch is not None):
            continue
        kinds.update({one: "alone" if watch is None else "watched" for one in range(since + 2, step + 1)})
        if watch is None:
            watch = Watch(options, errors)
            watches.append(watch)
        else:
            watch.end()
            watch = None
        since = steps_done(options)
    if watch is not None:
        watch.end()
    return watches, kinds


def main():
    options = parse()
    log = make_folders(options, "watched")
    config = write_run(options)
    seconds = {}
    with open(log, "a") as errors, part("run", seconds):
        run = subprocess.Popen([options.program, "train", config], stdout=errors, stderr=errors)
        watches, kinds = follow(options, run, errors)
    if run.returncode:
        sys.exit(f"the run ended with exit code {run.returncode}: see {log}")
    rows = [json.loads(line) for line in open(options.work / "run" / "metrics.jsonl")]
    kept = [{"step": row["step"], "seconds": row["seconds"], "watched": kinds[row["step"]] == "watched"}
            for row in rows if row["step"] in kinds]
    write_lines(options.out / "watched.jsonl", kept)
    groups = {name: [row["seconds"] for row in kept if row["watched"] == which]
              for name, which in (("alone", False), ("watched", True))}
    found = {name: {"steps": len(times), "median_s": statistics.median(times), "mean_s": statistics.mean(times),
                    "longest_s": max(times)} for name, times in groups.items()}
    ratio = found["watched"]["median_s"] / found["alone"]["median_s"]
    told = set().union(*(watch.told for watch in watches))
    missed = sum(row["watched"] and row["step"] not in told for row in kept)
    summary = {**found, "ratio": ratio, "ratio_of_means": found["watched"]["mean_s"] / found["alone"]["mean_s"],
               "watches": len(watches), "missed": missed,
               "holds": ratio <= MOST and missed <= found["watched"]["steps"] / 10,
               "settings": {name: getattr(options, name) for name in SIZES["tiny"]}, "seconds": seconds}
    shutil.rmtree(options.work)
    text = markdown("steps | count | median, s | mean, s | longest, s",
                    (f"{name} | {one['steps']} | {one['median_s']:.5f} | {one['mean_s']:.5f} | {one['longest_s']:.4f}"
                     for name, one in found.items()))
    return conclude(options, "watched", summary,
                    text + f"\nA watched step takes {100 * (ratio - 1):+.2f}% (median), "
                           f"{100 * (summary['ratio_of_means'] - 1):+.2f}% (mean); "
                           f"{len(watches)} watches, {missed} watched steps were not told before the watch ended.\n")


if __name__ == "__main__":
    sys.exit(main())
