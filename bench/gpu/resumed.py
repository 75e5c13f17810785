#!/usr/bin/env python3
"""Adapters on gpt-oss-120b, all layers of it: a run that is killed and resumed ends with the hash of one that is not.

    bench/gpu/resumed.py [--size h200|tiny] [--program build/cuda/megatrain] [--work DIR] --out DEST

The base is drawn from the seed with its experts in MXFP4, since its files would exceed the drive. Adapters on attention
and all experts are trained on one text, repeated. The second run gets SIGKILL at a step after its first checkpoint, and
is resumed. Losses of the two must be equal to the last digit, and fall.

DEST gets resumed.json (the summary, also printed) and resumed.log. The exit code is 1 when one of these does not hold.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from setting import call, conclude, gpt_oss_config, make_folders, markdown, parse_sized, parser_of, part

SIZES = {
    "h200": {"layers": 36, "hidden": 2880, "experts": 128, "heads": 64, "kv_heads": 8, "head_dim": 64, "vocab": 201088,
             "batch": 4, "micro_batch": 4, "seq_len": 1024, "steps": 40, "every": 15, "kill_at": 22, "rank": 16,
             "lr": 2e-3, "device": "cuda"},
    "tiny": {"layers": 3, "hidden": 64, "experts": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocab": 1088,
             "batch": 2, "micro_batch": 2, "seq_len": 64, "steps": 12, "every": 4, "kill_at": 6, "rank": 4, "lr": 1e-2,
             "device": "cpu"},
}
PERIOD = 61  # tokens of the repeated text


def write_setting(o, name):
    path = o.work / f"{name}.yaml"
    path.write_text(f"""
model: {{config: {o.work}/config.json}}
seed: 7
device: {o.device}
data: {{tokens: {o.work}/tokens.bin, dtype: uint32}}
seq_len: {o.seq_len}
batch: {o.batch}
micro_batch: {o.micro_batch}
steps: {o.steps}
optim: {{lr: {o.lr}, warmup: 4}}
adapter: {{rank: {o.rank}, alpha: {o.rank}, target_parameters: [mlp.experts.gate_up_proj, mlp.experts.down_proj]}}
checkpoint: {{every: {o.every}, keep: 1}}
run_dir: {o.work}/{name}
""")
    return path


def steps_of(run):
    path = run / "metrics.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def train_and_kill(o, config, run, log):
    """Starts a run, and kills it at a step after its first checkpoint. Returns the last step that it reported."""
    with open(log, "a") as errors:
        process = subprocess.Popen([o.program, "train", config], stdout=errors, stderr=errors)
        while process.poll() is None and len(steps_of(run)) < o.kill_at:
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        code = process.wait()
    if code != -signal.SIGKILL:
        sys.exit(f"the run ended with {code} before it could be killed; see {log}")
    return len(steps_of(run))


def main():
    parser = parser_of(__doc__, "resumed")
    parser.add_argument("--program", type=Path, default=Path("build/cuda/megatrain"))
    o = parse_sized(parser, SIZES)
    log, seconds = make_folders(o, "resumed"), {}
    config = {**gpt_oss_config(o), "quantization_config": {"quant_method": "mxfp4"}}
    (o.work / "config.json").write_text(json.dumps(config))
    text = np.random.default_rng(5).integers(0, o.vocab, PERIOD, dtype=np.uint32)
    np.resize(text, o.steps * o.batch * o.seq_len).tofile(o.work / "tokens.bin")

    hashes, runs = {}, {}
    with part("a run that is not killed", seconds):
        call(log, o.program, "train", write_setting(o, "whole"))
    hashes["whole"] = json.loads(call(log, o.program, "hash", o.work / "whole", "--json"))
    runs["whole"] = steps_of(o.work / "whole")
    plan = json.loads((o.work / "whole" / "memory.json").read_text())
    shutil.rmtree(o.work / "whole")
    config = write_setting(o, "killed")
    with part("a run that is killed", seconds):
        killed_at = train_and_kill(o, config, o.work / "killed", log)
    with part("its resume", seconds):
        call(log, o.program, "train", config, "--resume")
    hashes["killed"] = json.loads(call(log, o.program, "hash", o.work / "killed", "--json"))
    runs["killed"] = steps_of(o.work / "killed")
    shutil.rmtree(o.work)

    losses = {name: [step["loss"] for step in steps] for name, steps in runs.items()}
    same_loss = losses["whole"] == losses["killed"] and len(losses["whole"]) == o.steps
    falls = losses["whole"][-1] < 0.9 * losses["whole"][0]
    usual = sorted(step["seconds"] for step in runs["whole"])[o.steps // 2]
    counted = {name: {**parts, "tensors": len(parts["tensors"])} for name, parts in hashes.items()}  # there are 50,000
    summary = {"hashes": counted, "equal": hashes["whole"] == hashes["killed"], "equal_losses": same_loss,
               "falls": falls, "killed_at": killed_at, "losses": losses["whole"], "median_s": usual,
               "memory": plan, "seconds": seconds,
               "setting": {key: str(value) for key, value in vars(o).items()}}
    summary["holds"] = summary["equal"] and same_loss and falls
    rows = [f"{i + 1} | {losses['whole'][i]:.4f} | {losses['killed'][i]:.4f}" for i in range(0, o.steps, 3)]
    table = markdown("step | loss | loss of the killed run", rows)
    table += f"\nOne hash: {summary['equal']}. Killed at step {killed_at}. A step took {usual:.2f} s.\n"
    return conclude(o, "resumed", summary, table)


if __name__ == "__main__":
    sys.exit(main())
