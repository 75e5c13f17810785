"""What the scripts of this folder share: shapes, running megatrain, timing of parts."""

import argparse
import contextlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import corpus

# hidden, ff, layers, heads, kv heads, tied table; from src/megatrain/model/presets.cc
SHAPES = {"qwen2.5-0.5b": (896, 4864, 24, 14, 2, True), "qwen2.5-7b": (3584, 18944, 28, 28, 4, False),
          "tiny": (64, 160, 2, 4, 2, True), "tiny-untied": (64, 160, 2, 4, 2, False)}


def model_config(shape, vocab, precision):
    hidden, ff, layers, heads, kv_heads, tied = SHAPES[shape]
    return {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_act": "silu", "hidden_size": hidden,
            "intermediate_size": ff, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "vocab_size": vocab, "tie_word_embeddings": tied, "rope_theta": 1e6,
            "rms_norm_eps": 1e-6, "max_position_embeddings": 32768, "initializer_range": 0.02,
            "attention_dropout": 0.0, "use_sliding_window": False, "eos_token_id": 0,
            "torch_dtype": {"bf16": "bfloat16", "fp32": "float32"}[precision]}


def gpt_oss_config(o):
    """gpt-oss in the sizes of parsed options."""
    return {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": o.vocab,
            "hidden_size": o.hidden, "intermediate_size": o.hidden, "num_hidden_layers": o.layers,
            "num_attention_heads": o.heads, "num_key_value_heads": o.kv_heads, "head_dim": o.head_dim,
            "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "initializer_range": 0.02,
            "attention_bias": True, "rope_theta": 150000, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
            "num_local_experts": o.experts, "num_experts_per_tok": 4, "sliding_window": 128, "swiglu_limit": 7.0,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                             "truncate": False, "original_max_position_embeddings": 4096}}


def parser_of(about, name):
    """A parser with the options that all have; `about` is the module's text, its work folder build/NAME."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("build") / name, help="emptied before and after")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--roots", type=Path, nargs="+", default=corpus.default_roots())
    return parser


def make_folders(options, name):
    """Empties the work folder, makes the one of the results, and returns the path of a new log there."""
    shutil.rmtree(options.work, ignore_errors=True)
    options.work.mkdir(parents=True)
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / f"{name}.log"
    log.unlink(missing_ok=True)
    return log


def parse_sized(parser, sizes):
    """The options, with one for every setting of a size; --size gives those that are not named."""
    parser.add_argument("--size", choices=sizes, default="h200", help="where the options below start from")
    for name, value in sizes["tiny"].items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(value))
    options = parser.parse_args()
    for name, value in sizes[options.size].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def markdown(heads, rows):
    """A table; `heads` is its first line between the outer bars, each of `rows` a further one."""
    return "\n".join([f"| {heads} |", "|" + "---|" * (heads.count(" | ") + 1), *(f"| {row} |" for row in rows)]) + "\n"


def say(text):
    print(text, file=sys.stderr, flush=True)


@contextlib.contextmanager
def part(name, seconds):
    """Says what begins, and keeps how long it took in seconds[name]."""
    say(f"== {name}")
    start = time.perf_counter()
    yield
    seconds[name] = round(time.perf_counter() - start, 1)
    say(f"   {seconds[name]} s")


def call(log, *words):
    """Standard output of a program; its standard error goes to the end of the file `log`."""
    with open(log, "a") as errors:
        print("$", *words, file=errors, flush=True)
        done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=errors, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit code {done.returncode}\n" + "".join(open(log).readlines()[-10:]))
    return done.stdout


def conclude(options, name, summary, text):
    """Writes DEST/NAME.json and NAME.md, prints the latter and returns the exit code: 1 where the summary does not hold."""
    (options.out / f"{name}.json").write_text(json.dumps(summary, indent=1) + "\n")
    (options.out / f"{name}.md").write_text(text)
    print(text, end="")
    return 0 if summary["holds"] else 1


def answer_speeds(program, model, prompt, tokens, options, log, seconds):
    """tokens/s of one answer, its prompt included: all weights on the device, and within options.small of its memory."""
    found = {}
    for name, extra, most in (("whole", (), tokens), ("small", ("--memory.gpu", options.small), 16)):
        with part(f"megatrain: speed, {name} device", seconds):
            answer = json.loads(call(log, program, "generate", model, "--prompt", prompt, "--max-tokens", most, "--json",
                                     "--device", options.device, *extra))
        found[name] = {key: answer[key] for key in ("prompt_tokens", "tokens", "seconds", "tokens_per_s")}
    return found


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
