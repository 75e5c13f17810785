#!/usr/bin/env python3
"""Writes goldens/preferences.json: samples of preferences in the forms people have them, the jq filter that megatrain
prints for each, what jq makes of the sample with it, and the conversation that has to come out.

Needs jq, 1.6 or later.

The test reads the file alone: it compares the filters with those printed, and reads what jq has made."""
import json
import pathlib
import subprocess

S, Q, A, B = ({"role": role, "content": text} for role, text in (("system", "S"), ("user", "Q"), ("assistant", "A"), ("assistant", "B")))
human, gpt, worse = ({"from": who, "value": text} for who, text in (("human", "Q"), ("gpt", "A"), ("gpt", "B")))
PAIR = {"chosen": "A", "rejected": "B"}
DIALOGUE = "\n\nHuman: Q\n\nAssistant: A\n\nHuman: R\n\nAssistant:"
SPLIT = (r'split("\n\nHuman:")[1:][] | split("\n\nAssistant:") | map(ltrimstr(" ")) | {role: "user", content: .[0]}, '
         '(.[1:][] | {role: "assistant", content: .})]')
TURNS = '[(.history // [])[] | {role: "user", content: .[0]}, {role: "assistant", content: .[1]}]'
SQA, QA = [["system", "S"], ["user", "Q"], ["assistant", "A"]], [["user", "Q"], ["assistant", "A"]]
BEFORE = [["user", "q"], ["assistant", "a"]]

# (where it is from, the sample, the filter, the conversation)
CASES = [
    ("TRL, messages with their prompt", {"prompt": [S, Q], "chosen": [A], "rejected": [B]},
     "if .chosen then .messages = .prompt + .chosen | del(.prompt, .chosen, .rejected)", SQA),
    ("TRL, messages that hold their prompt", {"chosen": [S, Q, A], "rejected": [S, Q, B]},
     "if .chosen then .messages = .chosen | del(.chosen, .rejected)", SQA),
    ("a prompt that the answers repeat", {"prompt": [S, Q], "chosen": [S, Q, A], "rejected": [S, Q, B]},
     "if .chosen then .messages = .chosen | del(.prompt, .chosen, .rejected)", SQA),
    ("a system message as the prompt", {"prompt": [S], "chosen": [Q, A], "rejected": [Q, B]},
     "if .chosen then .messages = .prompt + .chosen | del(.prompt, .chosen, .rejected)", SQA),
    ("TRL, texts, and Axolotl's prompt_pairs", {"system": "S", "prompt": "Q", **PAIR},
     "if .chosen then .completion = .chosen | del(.chosen, .rejected)", SQA),
    ("LLaMA-Factory, Alpaca", {"instruction": "Q", "input": "I", **PAIR},
     "if .chosen then .output = .chosen | del(.chosen, .rejected)", [["user", "Q\nI"], ["assistant", "A"]]),
    ("LLaMA-Factory, Alpaca with all columns",
     {"instruction": "Q", "input": "", "system": "S", "history": [["q", "a"]], **PAIR},
     "if .chosen then .output = .chosen | del(.chosen, .rejected)", [["system", "S"], *BEFORE, *QA]),
    ("orca_dpo_pairs", {"system": "S", "question": "Q", **PAIR},
     "if .chosen then .answer = .chosen | del(.chosen, .rejected)", SQA),
    ("distilabel-intel-orca-dpo-pairs", {"system": "S", "input": "Q", **PAIR},
     "if .chosen then .output = .chosen | del(.chosen, .rejected)", SQA),
    ("a prompt with a history", {"prompt": "Q", "history": [["q", "a"]], "system": "S", **PAIR},
     "if .chosen then .instruction = .prompt | .output = .chosen | del(.prompt, .chosen, .rejected)",
     [["system", "S"], *BEFORE, *QA]),
    ("hh-rlhf", {"chosen": DIALOGUE + " T", "rejected": DIALOGUE + " U"},
     "if .chosen then .messages = [.chosen | " + SPLIT + " | del(.chosen, .rejected)",
     [*QA, ["user", "R"], ["assistant", "T"]]),
    ("full-hh-rlhf", {"prompt": DIALOGUE, "chosen": " T", "rejected": " U"},
     "if .chosen then .messages = [(.prompt + .chosen) | " + SPLIT + " | del(.prompt, .chosen, .rejected)",
     [*QA, ["user", "R"], ["assistant", "T"]]),
    ("ultrafeedback_binarized", {"prompt": "Q", "messages": [Q, A], "chosen": [Q, A], "rejected": [Q, B]},
     "if .chosen then .messages = .chosen | del(.prompt, .chosen, .rejected)", QA),
    ("ultrafeedback-binarized-preferences", {"prompt": "Q", "chosen": [Q, A], "rejected": [Q, B]},
     "if .chosen then .messages = .chosen | del(.prompt, .chosen, .rejected)", QA),
    ("a prompt as text and its answers as messages", {"system": "S", "prompt": "Q", "chosen": [A], "rejected": [B]},
     'if .chosen then .messages = [{role: "user", content: .prompt}] + .chosen | del(.prompt, .chosen, .rejected)', SQA),
    ("Alpaca with an answer that is a message",
     {"instruction": "Q", "input": "I", "history": [["q", "a"]], "chosen": A, "rejected": B},
     "if .chosen then .messages = " + TURNS + ' + [{role: "user", content: ([.instruction, .input] | map(strings | '
     r'select(. != "")) | join("\n"))}] + [.chosen] | del(.instruction, .input, .history, .chosen, .rejected)',
     [*BEFORE, ["user", "Q\nI"], ["assistant", "A"]]),
    ("LLaMA-Factory, ShareGPT", {"conversations": [human], "system": "S", "chosen": gpt, "rejected": worse},
     "if .chosen then .conversations = .conversations + [.chosen] | del(.chosen, .rejected)", SQA),
    ("ShareGPT's messages whole", {"chosen": [human, gpt], "rejected": [human, worse]},
     "if .chosen then .conversations = .chosen | del(.chosen, .rejected)", QA),
    ("ShareGPT's messages and a text", {"conversations": [human], **PAIR},
     'if .chosen then .conversations = .conversations + [{from: "gpt", value: .chosen}] | del(.chosen, .rejected)', QA),
    ("messages and an answer", {"messages": [S, Q], "chosen": A, "rejected": B},
     "if .chosen then .messages = .messages + [.chosen] | del(.chosen, .rejected)", SQA),
    ("messages and a text", {"messages": [S, Q], **PAIR},
     'if .chosen then .messages = .messages + [{role: "assistant", content: .chosen}] | del(.chosen, .rejected)', SQA),
    ("LLaMA-Factory's v1 form", {"chosen_messages": [S, Q, A], "rejected_messages": [S, Q, B]},
     "if .chosen_messages then .messages = .chosen_messages | del(.chosen_messages, .rejected_messages)", SQA),
    ("KTO", {"prompt": "Q", "completion": "A", "label": True},
     "select(.label != false and .label != 0) | del(.label)", QA),
    ("KTO with numbers", {"system": "S", "prompt": [Q], "completion": [A], "label": 1},
     "select(.label != false and .label != 0) | del(.label)", SQA),
    ("LLaMA-Factory, KTO", {"messages": [S, Q, A], "kto_tag": True},
     "select(.kto_tag != false and .kto_tag != 0) | del(.kto_tag)", SQA),
]


def jq(program, value):
    done = subprocess.run(["jq", "-c", program], input=json.dumps(value), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


out = []
for name, sample, filter_, conversation in CASES:
    program = 'if type == "array" then .[] else . end | ' + filter_ + (" else . end" if filter_[:3] == "if " else "")
    other = {"text": "stays"}
    made = jq(program, [sample, other])
    assert made == jq(program, sample) + [other] and len(made) == 2, (name, made)
    if filter_.startswith("select"):
        tag = "label" if "label" in sample else "kto_tag"
        assert jq(program, [{**sample, tag: False}, {**sample, tag: 0}]) == [], name
    out.append({"name": name, "sample": sample, "filter": program, "made": made[0], "conversation": conversation})
path = pathlib.Path(__file__).parent / "goldens" / "preferences.json"
path.write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")
print(f"{len(out)} forms in {path}")
