#!/usr/bin/env python3
"""A small model trained from scratch to tell a value that it read a whole context earlier.

    bench/gpu/retrieval.py [--size h200|tiny] [--program build/cuda/megatrain] --out DEST

A sequence is random letters among which pairs stand, a value and the key that it belongs to; at its end the keys are
asked for, each followed by its value. Keys and values are single tokens, drawn anew for every sequence, and only the
values at the end are trained. The stages (tokens of a sequence : sequences of a step : steps : learning rate) train the
same model at growing lengths, each from the directory that the one before it exported: what finds a key forms within
two or three pairs, and is then stretched.

Then `megatrain eval` asks --questions unseen sequences of the last stage's length for one key each. The prompt is the
whole context but one token; the value stands in its first sixteenth, so at least 30,720 tokens before the question
where the context is 32,768.

DEST gets retrieval-STAGE.jsonl of each stage (step and loss), retrieval.json (the summary), retrieval.md (the summary
as a table, also printed) and retrieval.log. The exit code is 1 when a run fails, or when less than --least of the
answers are right.
"""

import concurrent.futures
import json
import random
import shutil
import string
import sys
import time
from array import array
from pathlib import Path

from setting import call, conclude, make_folders, markdown, parse_sized, parser_of, say, write_lines

SIZES = {
    "h200": {"stages": "16:512:1200:2e-3,32:256:800:2e-3,96:128:600:2e-3,256:64:500:2e-3,1024:32:400:1.5e-3,"
                       "4096:16:300:1e-3,16384:8:150:1e-3,32768:8:250:1e-3",
             "hidden": 256, "layers": 2, "heads": 4, "head_dim": 64, "theta": 1e8, "pairs": 32, "keys": 128, "values": 256,
             "questions": 200, "device": "cuda", "precision": "bf16"},
    "tiny": {"stages": "12:256:700:4e-3,24:128:500:4e-3,48:64:300:3e-3,128:32:200:3e-3,512:8:300:3e-3,512:8:250:2e-3",
             "hidden": 64, "layers": 2, "heads": 4, "head_dim": 32, "theta": 1e8, "pairs": 8, "keys": 32, "values": 128,
             "questions": 200, "device": "cpu", "precision": "fp32"},
}
LETTERS = string.ascii_letters.encode()
FILLER = bytes(LETTERS[i % len(LETTERS)] for i in range(256))  # a random byte to a random letter
END, FIRST = 256, 257  # ids: a byte is itself, then the end token, the keys and the values


def parse():
    parser = parser_of(__doc__, "retrieval")
    parser.add_argument("--program", type=Path, default=Path("build/cuda/megatrain"))
    parser.add_argument("--least", type=float, default=0.95)
    parser.add_argument("--threads", type=int, default=0, help="CPU threads; 0: all")
    parser.add_argument("--keep", action="store_true", help="leave the work folder, with the models, where it is")
    return parse_sized(parser, SIZES)


def stages_of(options):
    for words in options.stages.split(","):
        length, batch, steps, lr = words.split(":")
        yield {"seq_len": int(length), "batch": int(batch), "steps": int(steps), "lr": float(lr)}


def byte_names():
    """How tokenizer.json writes bytes: as themselves where they can be seen, else as letters from 256 on."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {byte: chr(byte) for byte in shown} | {byte: chr(256 + i) for i, byte in enumerate(hidden)}


def names_of(options):
    """The texts of the tokens from END on."""
    return ["<end>", *(f"<k{i}>" for i in range(options.keys)), *(f"<v{i}>" for i in range(options.values))]


def write_model(options, folder):
    """A directory with config.json and a tokenizer: bytes, and a token for every key and value."""
    folder.mkdir()
    names = names_of(options)
    added = [{"id": END + i, "content": name, "lstrip": False, "rstrip": False, "normalized": False,
              "single_word": False, "special": i == 0} for i, name in enumerate(names)]
    bytes_only = {"type": "BPE", "vocab": {name: byte for byte, name in byte_names().items()}, "merges": [],
                  "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": bytes_only}))
    (folder / "tokenizer_config.json").write_text(json.dumps(
        {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": names[0]}))
    vocab = -(-(END + len(names)) // 64) * 64
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "vocab_size": vocab,
        "hidden_size": options.hidden, "intermediate_size": options.hidden, "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads, "num_key_value_heads": options.heads, "head_dim": options.head_dim,
        "rope_theta": options.theta,
        "max_position_embeddings": max(stage["seq_len"] for stage in stages_of(options)), "rms_norm_eps": 1e-6,
        "initializer_range": options.hidden ** -0.5, "tie_word_embeddings": True, "eos_token_id": END,
        "torch_dtype": {"bf16": "bfloat16", "fp32": "float32"}[options.precision]}))


def pairs_of(options, length):
    return min(length // 6, options.pairs)


def context(options, draw, length):
    """Letters with pairs before the part for the questions, half of the pairs in the first sixteenth as far as they fill
    half of it. Returns the ids and the pairs as (position, value, key), one of the first sixteenth first."""
    ids = array("H", bytes(2 * length))
    memoryview(ids).cast("B")[0::2] = draw.randbytes(length).translate(FILLER)
    count = pairs_of(options, length)
    places = (length - 3 * count) // 2  # of two tokens each
    first = max(1, length // 32)
    early = max(1, min(count // 2, first // 2))
    chosen = draw.sample(range(first), early) + draw.sample(range(first, places), count - early)
    keys = draw.sample(range(FIRST, FIRST + options.keys), count)
    values = draw.choices(range(FIRST + options.keys, FIRST + options.keys + options.values), k=count)
    pairs = [(2 * place, value, key) for place, value, key in zip(chosen, values, keys)]
    for position, value, key in pairs:
        ids[position:position + 2] = array("H", (value, key))
    return ids, pairs


def write_training(options, stage, stem, seed):
    """Sequences with all of their pairs asked for at the end, a letter before each key, and labels that train the values
    there."""
    length, draw = stage["seq_len"], random.Random(seed)
    none = array("i", [-100]) * length
    with open(f"{stem}.tokens", "wb") as tokens, open(f"{stem}.labels", "wb") as labels:
        for _ in range(stage["batch"] * stage["steps"]):
            ids, pairs = context(options, draw, length)
            wanted = none[:]
            draw.shuffle(pairs)
            for position, (_, value, key) in zip(range(length - 2, 0, -3), pairs):
                ids[position:position + 2] = array("H", (key, value))
                wanted[position + 1] = value
            ids.tofile(tokens)
            wanted.tofile(labels)


def write_questions(options, draw, length, path):
    """One question a line: a context that ends with the key of a pair of its first sixteenth. Returns the least number
    of tokens from a value to its question."""
    texts = dict(enumerate(names_of(options), END))
    rows, nearest = [], length
    for _ in range(options.questions):
        ids, pairs = context(options, draw, length)
        position, value, key = pairs[0]
        ids[-2:] = array("H", [key])
        rows.append({"prompt": "".join(texts.get(i) or chr(i) for i in ids), "completion": texts[value]})
        nearest = min(nearest, length - 2 - position)
    write_lines(path, rows)
    return nearest


def train(options, log, stage, data, source, name):
    """One stage, when its data are there; writes its curve and returns its part of the summary."""
    work = options.work
    start = time.perf_counter()
    data.result()
    made = time.perf_counter()
    (work / f"{name}.yaml").write_text(f"""
model: {{{source}}}
data: {{tokens: {work}/{name}.tokens, labels: {work}/{name}.labels}}
seed: 7
device: {options.device}
precision: {options.precision}
threads: {options.threads}
seq_len: {stage['seq_len']}
batch: {stage['batch']}
micro_batch: {max(1, min(stage['batch'], 65536 // stage['seq_len']))}
steps: {stage['steps']}
optim: {{lr: {stage['lr']}, beta2: 0.98, weight_decay: 0, schedule: wsd, decay: 0.3, warmup: 20}}
run_dir: {work}/{name}
""")
    call(log, options.program, "train", work / f"{name}.yaml", "--json")
    done = time.perf_counter()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(work / "model" / file, work / name / "model")
    for kind in ("tokens", "labels"):
        (work / f"{name}.{kind}").unlink()
    rows = [json.loads(line) for line in open(work / name / "metrics.jsonl")]
    write_lines(options.out / f"retrieval-{name}.jsonl", [{key: row[key] for key in ("step", "loss")} for row in rows])
    last = rows[-20:]
    result = stage | {"pairs": pairs_of(options, stage["seq_len"]), "first_loss": rows[0]["loss"],
                      "loss": sum(row["loss"] for row in last) / len(last), "data_seconds": round(made - start, 1),
                      "seconds": round(done - made, 1)}
    say(f"{name}: loss {result['loss']:.4f}, {result['seconds']} s (waited for data {result['data_seconds']} s)")
    return result


def ask(options, log, draw, length, run):
    """Questions of that length to a run's model."""
    path = options.work / "questions.jsonl"
    nearest = write_questions(options, draw, length, path)
    start = time.perf_counter()
    told = json.loads(call(log, options.program, "eval", run, path, "--max-tokens", 1, "--seq-len", length,
                           f"--device={options.device}", f"--threads={options.threads}",
                           "--data.cache", options.work / "cache", "--json"))
    result = {"exact_match": told["exact_match"], "right": told["right"], "count": told["count"], "distance": nearest,
              "mismatches": [{key: row[key] for key in ("expected", "got")} for row in told["mismatches"]],
              "ask_seconds": round(time.perf_counter() - start, 1)}
    say(f"{result['right']} of {result['count']} right, values at least {nearest} tokens away, {result['ask_seconds']} s")
    return result


def table(summary):
    text = markdown("tokens of a sequence | pairs | batch | steps | lr | loss, last 20 steps | seconds (waiting for data)",
                    (f"{run['seq_len']} | {run['pairs']} | {run['batch']} | {run['steps']} | {run['lr']:g} "
                     f"| {run['loss']:.4f} | {run['seconds']:g} ({run['data_seconds']:g})" for run in summary["stages"]))
    return text + (f"\n{summary['parameters']:,} parameters: {summary['right']} of {summary['count']} unseen sequences of "
                   f"{summary['context']} tokens answered exactly, each with one of {summary['settings']['values']} values "
                   f"that stands at least {summary['distance']} tokens earlier; {summary['seconds']:g} s in all.\n")


def main():
    options = parse()
    log = make_folders(options, "retrieval")
    start = time.perf_counter()
    write_model(options, options.work / "model")
    source, runs = f"config: {options.work}/model/config.json", []
    stages = {f"{i}-{stage['seq_len']}": stage for i, stage in enumerate(stages_of(options), 1)}
    with concurrent.futures.ProcessPoolExecutor() as pool:  # the data of later stages while the first ones train
        made = [pool.submit(write_training, options, stage, options.work / name, f"train {name}")
                for name, stage in stages.items()]
        for (name, stage), data in zip(stages.items(), made):
            runs.append(train(options, log, stage, data, source, name))
            source = f"path: {options.work}/{name}/model"
    length = runs[-1]["seq_len"]
    told = ask(options, log, random.Random("ask"), length, options.work / name)
    parameters = json.loads(call(log, options.program, "inspect", options.work / name, "--json"))["parameters"]
    if not options.keep:
        shutil.rmtree(options.work)
    summary = {"holds": told["exact_match"] >= options.least, "context": length} | told | {
        "parameters": parameters, "seconds": round(time.perf_counter() - start, 1), "stages": runs,
        "settings": {name: getattr(options, name) for name in SIZES[options.size]}}
    return conclude(options, "retrieval", summary, table(summary))


if __name__ == "__main__":
    sys.exit(main())
