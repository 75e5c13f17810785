#!/usr/bin/env python3
"""A model trained for some steps and exported by megatrain, loaded in transformers: the same logits, losses and answers.

    bench/gpu/serve.py [--size h200|tiny] [--programs build/cuda] [--work DIR] --out DEST

The judge is transformers in float32 with the exported weights. megatrain's logits (tests/write_logits: prompt passes and
one-by-one passes of `megatrain generate`) and transformers' in the export's precision each have an error against it:

    logits    the root mean square of the error, and 1 less the least cosine of a position with float32's, are at most
              --more times those of transformers in the same precision
    argmax    equal wherever float32's best two logits are further apart than twice transformers' largest error
    loss      of `megatrain eval` (the training step's own forward) within --loss of transformers'
    answers   every token `megatrain generate` chose greedily has, in float32, a logit within twice transformers' largest
              error of the best one; how many answers are equal to transformers' `generate` is reported (in fp32: all)

DEST gets serve.json (the summary, also printed) and serve.log. The exit code is 1 when one of these does not hold, or
transformers missed a tensor or found one too many.
"""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, GenerationConfig

import corpus
from setting import answer_speeds, call, make_folders, model_config, parse_sized, parser_of, part, write_lines

SIZES = {
    "h200": {"shape": "qwen2.5-7b", "vocab": 152064, "megabytes": 16.0, "bpe": 32768, "steps": 10, "batch": 8,
             "seq_len": 1024, "lr": 1e-5, "prompts": 6, "prompt_tokens": 320, "answer_tokens": 48, "device": "cuda",
             "precision": "bf16", "small": "6GiB"},
    "tiny": {"shape": "tiny-untied", "vocab": 1088, "megabytes": 0.5, "bpe": 1024, "steps": 60, "batch": 8,
             "seq_len": 128, "lr": 3e-3, "prompts": 6, "prompt_tokens": 60, "answer_tokens": 24, "device": "cpu",
             "precision": "fp32", "small": "16MiB"},
}


def parse():
    parser = parser_of(__doc__, "serve")
    parser.add_argument("--programs", type=Path, default=Path("build/cuda"),
                        help="folder of megatrain and tests/write_logits")
    parser.add_argument("--more", type=float, default=1.25)
    parser.add_argument("--loss", type=float, default=0.01)
    return parse_sized(parser, SIZES)


def export_model(options, log, seconds):
    """Trains and exports; returns the model's directory."""
    work = options.work
    (work / "model.json").write_text(json.dumps(model_config(options.shape, options.vocab, options.precision)))
    (work / "run.yaml").write_text(f"""
model: {{config: {work}/model.json}}
seed: 1
device: {options.device}
precision: {options.precision}
data: {{train: {work}/text, tokenizer: {work}/tokenizer, cache: {work}/cache}}
seq_len: {options.seq_len}
batch: {options.batch}
steps: {options.steps}
optim: {{lr: {options.lr}, warmup: 3}}
run_dir: {work}/run
""")
    with part("training and export", seconds):
        call(log, options.programs / "megatrain", "train", work / "run.yaml")
    model = work / "run/model"
    for file in (work / "tokenizer").iterdir():
        if not (model / file.name).exists():
            shutil.copy(file, model)
    return model


def choose_prompts(options):
    """Pieces from the middle of texts, with the ids that a tokenizer makes of them."""
    tokenizer = Tokenizer.from_file(str(options.work / "tokenizer/tokenizer.json"))
    prompts = []
    for path in sorted((options.work / "text").glob("*.txt"), reverse=True):
        ids = tokenizer.encode(path.read_text(encoding="utf-8")).ids
        middle = len(ids) // 3
        if len(prompts) == options.prompts or len(ids) < middle + options.prompt_tokens:
            continue
        text = tokenizer.decode(ids[middle:middle + options.prompt_tokens])
        prompts.append({"prompt": text, "ids": tokenizer.encode(text).ids})
    if len(prompts) < options.prompts:
        sys.exit(f"only {len(prompts)} texts have {options.prompt_tokens} tokens behind their first third")
    return prompts


def ask_megatrain(options, model, prompts, log, seconds):
    """Logits of the second half of every prompt, the loss over all prompts, the answers."""
    work, where = options.work, ("--device", options.device)
    write_lines(work / "ids.jsonl", [{"ids": prompt["ids"]} for prompt in prompts])
    write_lines(work / "prompts.jsonl", [{"prompt": prompt["prompt"]} for prompt in prompts])
    write_lines(work / "texts.jsonl", [{"text": prompt["prompt"]} for prompt in prompts])
    with part("megatrain: logits", seconds):
        call(log, options.programs / "tests/write_logits", model, work / "ids.jsonl", work / "logits.bin", *where)
    with part("megatrain: loss", seconds):
        loss = json.loads(call(log, options.programs / "megatrain", "eval", model, work / "texts.jsonl", "--loss-only",
                               "--data.cache", work / "cache", "--seq-len", 2 * options.prompt_tokens, "--json", *where))
    with part("megatrain: answers", seconds):
        lines = call(log, options.programs / "megatrain", "generate", model, "--prompt-file", work / "prompts.jsonl",
                     "--max-tokens", options.answer_tokens, "--json", *where).splitlines()
    rows = np.fromfile(work / "logits.bin", np.float32).reshape(-1, options.vocab)
    sizes = [len(prompt["ids"]) - len(prompt["ids"]) // 2 + 1 for prompt in prompts]
    if sum(sizes) != len(rows):
        sys.exit(f"write_logits wrote {len(rows)} rows where {sum(sizes)} were due")
    logits = np.split(rows, np.cumsum(sizes)[:-1])
    return logits, loss, [json.loads(line)["ids"] for line in lines]


@torch.no_grad()
def logits_of(model, ids, begin):
    """float32 (len(ids) - begin, V): the logits of every position from `begin` on."""
    hidden = model.model(input_ids=torch.tensor([ids], device=model.device), use_cache=False).last_hidden_state
    return model.lm_head(hidden[0, begin:]).float()


def loss_of(model, texts):
    """The mean over all predicted tokens of texts that stand alone."""
    total = count = 0
    for ids in texts:
        logits = logits_of(model, ids, 0)[:-1]
        labels = torch.tensor(ids[1:], device=logits.device)
        total += torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()
        count += len(labels)
    return total / count, count


class Error:
    """Of logits against the judge's, over all rows that were added."""

    def __init__(self):
        self.squares = self.of_judge = 0.0
        self.largest, self.cosine, self.elements = 0.0, 1.0, 0

    def add(self, logits, judge):
        difference = (logits - judge).double()
        self.squares += difference.square().sum().item()
        self.of_judge += judge.double().square().sum().item()
        self.largest = max(self.largest, difference.abs().max().item())
        cosines = torch.nn.functional.cosine_similarity(logits.double(), judge.double(), dim=1)
        self.cosine = min(self.cosine, cosines.min().item())
        self.elements += judge.numel()

    def rms(self):
        return (self.squares / self.elements) ** 0.5

    def summary(self):
        return {"least_cosine": self.cosine, "largest": self.largest, "rms": self.rms(),
                "relative_rms": (self.squares / self.of_judge) ** 0.5}


def compare(options, directory, prompts, logits, loss, answers, seconds):
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[options.precision]
    halves = [len(prompt["ids"]) // 2 - 1 for prompt in prompts]
    texts = [prompt["ids"] + [0] for prompt in prompts]  # eval ends a text with the end token
    with part("transformers: loading", seconds):
        model, info = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="sdpa",
                                                           output_loading_info=True)
        model = model.to(options.device).eval()
    with part("transformers: logits, loss, answers", seconds):
        same = [logits_of(model, prompt["ids"], half).cpu() for prompt, half in zip(prompts, halves)]
        their_loss, loss_tokens = loss_of(model, texts)
        greedy = GenerationConfig(do_sample=False, max_new_tokens=options.answer_tokens, eos_token_id=0, pad_token_id=0)
        their_answers = []
        for prompt in prompts:
            ids = torch.tensor([prompt["ids"]], device=options.device)
            out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=greedy)
            their_answers.append(out[0, ids.shape[1]:].tolist())
    with part("transformers in float32", seconds):
        model = model.float()
        ours, theirs = Error(), Error()
        judged = []
        for prompt, half, mine, other in zip(prompts, halves, logits, same):
            judge = logits_of(model, prompt["ids"], half)
            ours.add(torch.from_numpy(mine).to(judge.device), judge)
            theirs.add(other.to(judge.device), judge)
            judged.append(judge.topk(2))
        noise = max(2 * theirs.largest, 1e-3)
        clear = agree = rows = agree_all = 0
        for top, mine in zip(judged, logits):
            apart = (top.values[:, 0] - top.values[:, 1]).cpu().numpy() > noise
            equal = mine.argmax(1) == top.indices[:, 0].cpu().numpy()
            rows, agree_all = rows + len(equal), agree_all + int(equal.sum())
            clear, agree = clear + int(apart.sum()), agree + int((apart & equal).sum())
        behind = 0.0  # of the token chosen, below the best one
        for prompt, answer in zip(prompts, answers):
            judge = logits_of(model, prompt["ids"] + answer[:-1], len(prompt["ids"]) - 1)
            chosen = judge.gather(1, torch.tensor(answer, device=judge.device)[:, None])[:, 0]
            behind = max(behind, (judge.max(1).values - chosen).max().item())

    same_answers = sum(a == b for a, b in zip(answers, their_answers))
    checks = {
        "tensors": not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")),
        "logits": ours.rms() <= max(options.more * theirs.rms(), 1e-5)
                  and 1 - ours.cosine <= max(options.more * (1 - theirs.cosine), 1e-9),
        "argmax": agree == clear,
        "loss": abs(loss["loss"] / their_loss - 1) <= options.loss and loss["loss_tokens"] == loss_tokens,
        "answers": behind <= noise and (options.precision != "fp32" or same_answers == len(answers))}
    return {"holds": all(checks.values()), "checks": checks,
            "logits": {"rows": rows, "megatrain": ours.summary(), f"transformers_{options.precision}": theirs.summary()},
            "argmax": {"equal": agree_all, "of": rows, "clear_equal": agree, "clear_of": clear},
            "loss": {"megatrain": loss["loss"], "transformers": their_loss, "ratio": loss["loss"] / their_loss,
                     "tokens": loss_tokens},
            "answers": {"equal": same_answers, "of": len(answers), "furthest_below_the_best_logit": behind,
                        "allowed": noise, "first_difference": [next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)
                                                                for a, b in zip(answers, their_answers)]}}


def main():
    options = parse()
    seconds = {}
    log = make_folders(options, "serve")
    with part("text and tokenizer", seconds):
        text = corpus.collect(options.roots, options.work / "text", int(options.megabytes * 1e6))
        corpus.train_tokenizer(options.work / "text", options.work / "tokenizer", options.bpe, 16_000_000)
    prompts = choose_prompts(options)
    directory = export_model(options, log, seconds)
    losses = [json.loads(line)["loss"] for line in open(options.work / "run/metrics.jsonl")]
    exported = sum(file.stat().st_size for file in directory.glob("*.safetensors"))
    logits, loss, answers = ask_megatrain(options, directory, prompts, log, seconds)
    speed = answer_speeds(options.programs / "megatrain", directory, prompts[0]["prompt"], 128, options, log, seconds)
    result = compare(options, directory, prompts, logits, loss, answers, seconds)
    shutil.rmtree(options.work)
    summary = result | {"speed": speed, "settings": {name: getattr(options, name) for name in SIZES[options.size]},
                        "training_loss": losses, "export_bytes": exported,
                        "prompt_tokens": [len(prompt["ids"]) for prompt in prompts], "text": text,
                        "torch": torch.__version__, "seconds": seconds}
    (options.out / "serve.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary, indent=1))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
