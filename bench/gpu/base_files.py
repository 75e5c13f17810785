#!/usr/bin/env python3
"""Adapters over a base that stays in its own files: how much of the drive's read rate a training step reaches.

    bench/gpu/base_files.py [--size h200|tiny] [--program build/cuda/megatrain] [--work DIR] --out DEST

Writes a gpt-oss model in bf16 with random weights as a Hugging Face directory. Its files are read once past the page
cache by plain threads, which gives the drive's rate. Then adapters on attention are trained over it; what memory does
not hold stays in the files (`memory.base: auto`). A step's rate is `bytes.disk_read` over `seconds` of metrics.jsonl.
`counted_bytes` is what the drive's own counters say (/sys/dev/block).

DEST gets base_files.json (the summary, also printed) and base_files.log. The exit code is 1 when a run fails, or when
the files differ afterwards.
"""

import json
import mmap
import os
import shutil
import struct
import sys
import threading
import time
from pathlib import Path

import numpy as np

from setting import call, conclude, gpt_oss_config, make_folders, markdown, parse_sized, parser_of, part

GIB = 1 << 30
SIZES = {
    "h200": {"layers": 24, "hidden": 2880, "experts": 32, "heads": 64, "kv_heads": 8, "head_dim": 64, "vocab": 201088,
             "batch": 256, "micro_batch": 16, "seq_len": 1024, "steps": 2, "gpu": "24GiB", "host": "16GiB",
             "device": "cuda"},
    "tiny": {"layers": 3, "hidden": 64, "experts": 4, "heads": 4, "kv_heads": 2, "head_dim": 16, "vocab": 1088,
             "batch": 4, "micro_batch": 2, "seq_len": 64, "steps": 3, "gpu": "64MiB", "host": "128MiB",
             "device": "cpu"},
}
BLOCK = 1 << 20
THREADS = 16


def layer_tensors(o, layer):
    h, e, q, kv = o.hidden, o.experts, o.heads * o.head_dim, o.kv_heads * o.head_dim
    p = f"model.layers.{layer}."
    shapes = {"input_layernorm.weight": [h], "post_attention_layernorm.weight": [h], "self_attn.sinks": [o.heads],
              "self_attn.o_proj.weight": [h, q], "self_attn.o_proj.bias": [h], "mlp.router.weight": [e, h],
              "mlp.router.bias": [e], "mlp.experts.gate_up_proj": [e, h, 2 * h],
              "mlp.experts.gate_up_proj_bias": [e, 2 * h], "mlp.experts.down_proj": [e, h, h],
              "mlp.experts.down_proj_bias": [e, h]}
    for name, rows in (("q", q), ("k", kv), ("v", kv)):
        shapes[f"self_attn.{name}_proj.weight"] = [rows, h]
        shapes[f"self_attn.{name}_proj.bias"] = [rows]
    return {p + name: shape for name, shape in shapes.items()}


def write_shard(path, shapes, table):
    """safetensors of bf16 values taken from places of `table` that differ from tensor to tensor."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for index, shape in enumerate(shapes.values()):
            left = 2 * int(np.prod(shape))
            begin = 2 * (index * 7919 % 4096)
            while left:
                count = min(left, len(table) - begin)
                file.write(table[begin:begin + count])
                left -= count
        file.flush()
        os.fsync(file.fileno())


def write_model(o, directory):
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(gpt_oss_config(o), indent=1))
    rng = np.random.default_rng(1)
    values = (0.02 * rng.standard_normal(1 << 24, dtype=np.float32)).view(np.uint32)
    table = memoryview((values >> 16).astype(np.uint16).tobytes())
    shards = [layer_tensors(o, layer) for layer in range(o.layers)]
    shards.append({"model.embed_tokens.weight": [o.vocab, o.hidden], "model.norm.weight": [o.hidden],
                   "lm_head.weight": [o.vocab, o.hidden]})
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    writers = [threading.Thread(target=write_shard, args=(directory / name, shard, table))
               for name, shard in zip(names, shards)]
    for begin in range(0, len(writers), 4):
        for writer in writers[begin:begin + 4]:
            writer.start()
        for writer in writers[begin:begin + 4]:
            writer.join()
    index = {tensor: name for name, shard in zip(names, shards) for tensor in shard}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return [directory / name for name in names]


def drive_read_bytes(path):
    """Bytes that the drive below a path has read so far, by the kernel's counter; None if it has none."""
    number = os.stat(path).st_dev
    stat = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}/stat")
    return int(stat.read_text().split()[2]) * 512 if stat.exists() else None


def read_directly(paths):
    """Seconds to read all files past the page cache with THREADS threads, and their bytes."""
    blocks = [(path, at) for path in paths for at in range(0, path.stat().st_size, BLOCK)]
    lock, place, counts = threading.Lock(), iter(blocks), []
    files = {path: os.open(path, os.O_RDONLY | os.O_DIRECT) for path in paths}

    def work():
        buffer = mmap.mmap(-1, BLOCK)
        while True:
            with lock:
                block = next(place, None)
            if block is None:
                return
            counts.append(os.preadv(files[block[0]], [buffer], block[1]))

    start = time.perf_counter()
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    for file in files.values():
        os.close(file)
    return seconds, sum(counts)


def main():
    parser = parser_of(__doc__, "base_files")
    parser.add_argument("--program", type=Path, default=Path("build/cuda/megatrain"))
    o = parse_sized(parser, SIZES)
    log, seconds, work = make_folders(o, "base_files"), {}, o.work
    with part("writing the model", seconds):
        paths = write_model(o, work / "model")
    before = [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    tokens = np.random.default_rng(2).integers(0, o.vocab, o.steps * o.batch * o.seq_len, dtype=np.uint32)
    tokens.tofile(work / "tokens.bin")
    with part("reading the files directly", seconds):
        counter = drive_read_bytes(work)
        plain_s, plain_bytes = read_directly(paths)
        counted = drive_read_bytes(work)
    drive = {"bytes": plain_bytes, "seconds": plain_s, "bytes_per_s": plain_bytes / plain_s,
             "counted_bytes": None if counter is None else counted - counter}
    (work / "run.yaml").write_text(f"""
model: {{path: {work}/model}}
device: {o.device}
data: {{tokens: {work}/tokens.bin, dtype: uint32}}
seq_len: {o.seq_len}
batch: {o.batch}
micro_batch: {o.micro_batch}
steps: {o.steps}
adapter: {{rank: 16, alpha: 16}}
memory: {{base: auto, gpu: {o.gpu}, host: {o.host}}}
run_dir: {work}/run
""")
    with part("training", seconds):
        counter = drive_read_bytes(work)
        call(log, o.program, "train", work / "run.yaml")
        counted = drive_read_bytes(work)
    steps = [json.loads(line) for line in open(work / "run/metrics.jsonl")]
    rows = [{"step": s["step"], "seconds": s["seconds"], "tokens_per_s": s["tokens_per_s"], "loss": s["loss"],
             "read": s["bytes"]["disk_read"], "read_per_s": s["bytes"]["disk_read"] / s["seconds"],
             "bound_by": s["bound_by"], "hbm_peak": s["hbm_peak"], "host_peak": s["host_peak"]} for s in steps]
    last = rows[-1]
    summary = {
        "drive": drive, "steps": rows, "counted_bytes": None if counter is None else counted - counter,
        "percent_of_drive": 100 * last["read_per_s"] / drive["bytes_per_s"],
        "unchanged": before == [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths],
        "model_bytes": sum(size for size, _ in before), "seconds": seconds,
        "setting": {k: str(v) for k, v in vars(o).items()}}
    summary["holds"] = summary["unchanged"] and len(rows) == o.steps
    text = markdown("step | s | tokens/s | read, GB | GB/s | % of the drive", [
        f"{r['step']} | {r['seconds']:.2f} | {r['tokens_per_s']:,.0f} | {r['read'] / 1e9:.1f} | "
        f"{r['read_per_s'] / 1e9:.2f} | {100 * r['read_per_s'] / drive['bytes_per_s']:.1f}" for r in rows])
    text += f"\nThe drive read the files at {drive['bytes_per_s'] / 1e9:.2f} GB/s.\n"
    shutil.rmtree(work, ignore_errors=True)
    return conclude(o, "base_files", summary, text)


if __name__ == "__main__":
    sys.exit(main())
