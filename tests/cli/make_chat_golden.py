#!/usr/bin/env python3
"""Golden of the end-to-end chat test: what transformers says to the test's questions, from a model that megatrain trained.

    tests/cli/make_chat_golden.py BUILD tests/cli/goldens/chat_answers.json

Writes the test's data with BUILD/tests/write_chat_set, trains on the CPU with BUILD/megatrain, loads RUN/model with
transformers and answers greedily. The test expects `megatrain generate` to say the same, letter for letter.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

SEED, ASKED = 1, 40


def main():
    build, golden = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([build / "tests/write_chat_set", str(SEED), folder], check=True)
        subprocess.run([build / "megatrain", "train", folder / "chat.yaml"], check=True, stderr=subprocess.DEVNULL)
        tokenizer = AutoTokenizer.from_pretrained(folder / "run/model")
        model = AutoModelForCausalLM.from_pretrained(folder / "run/model", dtype=torch.float32)
        answers, right = [], 0
        for line in open(folder / "test.jsonl").readlines()[:ASKED]:
            row = json.loads(line)
            ids = tokenizer.apply_chat_template([{"role": "user", "content": row["question"]}],
                                                add_generation_prompt=True, return_tensors="pt", return_dict=True)
            out = model.generate(**ids, max_new_tokens=24, do_sample=False)
            text = tokenizer.decode(out[0, ids["input_ids"].shape[1]:], skip_special_tokens=True)
            right += text == row["answer"]
            answers.append({"question": row["question"], "text": text})
        print(f"{right} of {ASKED} right")
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(json.dumps({"seed": SEED, "answers": answers}, indent=1) + "\n")


if __name__ == "__main__":
    main()
