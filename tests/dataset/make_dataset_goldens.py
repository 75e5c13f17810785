#!/usr/bin/env python3
"""Writes tests/dataset/goldens/dataset.json: conversations with the ids and the assistant mask that transformers gives.

Needs transformers. The tokenizer is the small qwen one of tests/tokenizer/goldens. The second template has no token at the borders
of an answer, so that tokens straddle them.
"""

import json
import pathlib

from transformers import PreTrainedTokenizerFast

here = pathlib.Path(__file__).resolve().parent
STRADDLING = (
    "{% for message in messages %}{{ message['role'] + ':' }}{% if message['role'] == 'assistant' %}"
    "{{ ' ' }}{% generation %}{{ message['content'] }}{% endgeneration %}{{ '\\n\\n' }}"
    "{% else %}{{ ' ' + message['content'] + '\\n\\n' }}{% endif %}{% endfor %}"
)

templates = {"tags": (here.parent / "chat/templates/generation_tags.jinja").read_text(), "straddling": STRADDLING}
conversations = [
    [("user", "What is the capital of France?"), ("assistant", "Paris.")],
    [("system", "Be brief."), ("user", "One"), ("assistant", "two\n"), ("user", "three?"), ("assistant", "four, five")],
    [("user", "Grüße, wie geht's?"), ("assistant", "Danke – sehr gut! Naïve 123456 <tool>x")],
    [("user", "  spaces  "), ("assistant", "  kept   as they are  .")],
    [("user", "日本語を話せますか"), ("assistant", "はい、少しだけ。\nThe end.")],
    [("user", "code"), ("assistant", "for (int i = 0; i < 10; i++) {\n\treturn;\n}")],
]

cases = []
for name, template in templates.items():
    tokenizer_file = here.parent / "tokenizer/goldens/qwen.tokenizer.json"
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(tokenizer_file), eos_token="<|im_end|>")
    tokenizer.chat_template = template
    for turns in conversations:
        messages = [{"role": role, "content": content} for role, content in turns]
        out = tokenizer.apply_chat_template(
            messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        cases.append(
            {"template": name, "messages": messages, "ids": out["input_ids"], "mask": out["assistant_masks"]}
        )

with open(here / "goldens/dataset.json", "w", encoding="utf-8") as file:
    json.dump({"straddling": STRADDLING, "cases": cases}, file, ensure_ascii=False, separators=(",", ":"))
    file.write("\n")
