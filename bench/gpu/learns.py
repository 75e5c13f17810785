#!/usr/bin/env python3
"""A small mixture of experts trained from scratch on the chat example, beside the dense model of equal active size.

    bench/gpu/learns.py [--size h200|tiny] [--program build/cuda/megatrain] --out DEST

The mixture has 8 experts in every layer and 2 of them for a token, each half as wide as the dense model's MLP: but for
its router it computes as much on a token. All runs read the same conversations (examples/chat) in the same order for as
many steps. The mixture is trained with moe.aux_loss 0 and with 0.01.

DEST gets learns-NAME.jsonl of each run (step, loss and the router's figures of every step), learns.json (the summary),
learns.md (the summary as a table, also printed) and learns.log. The exit code is 1 when a run fails, or when the loss
of a mixture over the test questions is more than --more above the dense model's.
"""

import json
import shutil
import sys
import time
from pathlib import Path

from setting import call, conclude, make_folders, markdown, parse_sized, parser_of, say, write_lines

SIZES = {
    "h200": {"epochs": 9.0, "batch": 8, "lr": 1.5e-3, "device": "cuda", "precision": "bf16"},
    "tiny": {"epochs": 5.0, "batch": 8, "lr": 1.5e-3, "device": "cpu", "precision": "fp32"},
}
EXPERTS, CHOSEN = 8, 2
EXAMPLE = Path("examples/chat")


def parse():
    parser = parser_of(__doc__, "learns")
    parser.add_argument("--program", type=Path, default=Path("build/cuda/megatrain"))
    parser.add_argument("--more", type=float, default=0.1)
    return parse_sized(parser, SIZES)


def model_configs():
    """The shape of the example's model as Qwen3 has it, dense and with experts."""
    base = json.loads((EXAMPLE / "model/config.json").read_text())
    base["head_dim"] = base["hidden_size"] // base["num_attention_heads"]
    dense = base | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}
    mixture = base | {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": EXPERTS,
                      "num_experts_per_tok": CHOSEN, "moe_intermediate_size": base["intermediate_size"] // CHOSEN,
                      "norm_topk_prob": True, "output_router_logits": False}
    return {"dense": dense, "experts": mixture}


# name: (model, options of the command line)
RUNS = {"dense": ("dense", ()), "experts": ("experts", ("--moe.aux_loss=0",)),
        "experts-aux": ("experts", ("--moe.aux_loss=0.01",))}


def train(options, log, name, model, words):
    """One run; writes its curve and returns its part of the summary."""
    work = options.work
    run = work / name
    start = time.perf_counter()
    done = json.loads(call(log, options.program, "train", work / f"{model}.yaml", f"--run_dir={run}", *words, "--json"))
    seconds = time.perf_counter() - start
    rows = [json.loads(line) for line in open(run / "metrics.jsonl")]
    write_lines(options.out / f"learns-{name}.jsonl",
                [{key: row[key] for key in ("step", "loss", "experts") if key in row} for row in rows])
    told = json.loads(call(log, options.program, "inspect", run, "--json"))
    asked = json.loads(call(log, options.program, "eval", run, EXAMPLE / "test.jsonl", f"--device={options.device}",
                            "--data.cache", work / "cache", "--json"))
    result = {"parameters": told["parameters"], "active_parameters": told["active_parameters"], "steps": len(rows),
              "tokens": sum(row["tokens"] for row in rows), "loss": rows[-1]["loss"],
              "held_out_loss": done["eval_loss"], "test_loss": asked["loss"],
              "exact_match": asked["exact_match"], "right": asked["right"], "count": asked["count"],
              "router": rows[-1].get("experts", {}), "seconds": round(seconds, 1)}
    say(f"{name}: held-out loss {result['held_out_loss']:.4f}, {result['right']} of {result['count']} right, "
        f"{seconds:.1f} s")
    return result


def figures(router):
    return ", ".join(f"{name} {value:.3g}" for name, value in router.items()) if router else ""


def table(runs):
    return markdown("run | parameters (active) | steps | held-out loss | test loss | exact match | router, last step "
                    "| seconds",
                    (f"{name} | {run['parameters']:,} ({run['active_parameters']:,}) | {run['steps']} "
                     f"| {run['held_out_loss']:.5f} | {run['test_loss']:.5f} | {run['right']} of {run['count']} "
                     f"| {figures(run['router'])} | {run['seconds']:g}" for name, run in runs.items()))


def main():
    options = parse()
    log = make_folders(options, "learns")
    work = options.work
    for name, config in model_configs().items():
        (work / f"{name}.json").write_text(json.dumps(config))
        (work / f"{name}.yaml").write_text(f"""
model: {{config: {work}/{name}.json}}
data: {{train: {EXAMPLE}/train.jsonl, eval_split: 50, tokenizer: {EXAMPLE}/model, cache: {work}/cache}}
seed: 7
device: {options.device}
precision: {options.precision}
seq_len: 256
batch: {options.batch}
epochs: {options.epochs}
optim: {{lr: {options.lr}, beta2: 0.98, weight_decay: 0, schedule: wsd, decay: 0.3, warmup: 20}}
""")
    runs = {name: train(options, log, name, model, words) for name, (model, words) in RUNS.items()}
    shutil.rmtree(work)
    worst = max(run["test_loss"] for name, run in runs.items() if name != "dense") - runs["dense"]["test_loss"]
    summary = {"holds": worst <= options.more, "most_above_dense": worst, "runs": runs,
               "settings": {name: getattr(options, name) for name in SIZES[options.size]}}
    return conclude(options, "learns", summary, table(runs))


if __name__ == "__main__":
    sys.exit(main())
