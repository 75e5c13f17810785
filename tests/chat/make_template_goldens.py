"""Writes tests/chat/goldens/: what transformers makes of chat templates and of Jinja's language.

    python tests/chat/make_template_goldens.py        (transformers 5, jinja2 3.1.6)

Text: apply_chat_template(tokenize=False) over the templates of tests/chat/templates and the conversations below.
Masks: the same template with {% generation %} tags put around the assistant's answers (MARKS), which must render to
the same text; its tracked indices are the golden. Where the render of the messages before an answer, with the
generation prompt, is a prefix of the whole, the answer must begin where this prefix ends.
"""
import json
import pathlib
from datetime import datetime

import jinja2
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils as utils

HERE = pathlib.Path(__file__).parent
GOLDENS = HERE / "goldens"


class FixedTime(datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 9, 14, 5, 7)


utils.datetime = FixedTime


def message(role):
    return lambda content, **more: {"role": role, "content": content, **more}


S, U, A, T = message("system"), message("user"), message("assistant"), message("tool")


def call(name, arguments, id="abcdef123"):
    return {"type": "function", "id": id, "function": {"name": name, "arguments": arguments}}


WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "The weather \"now\" in a city, e.g. Zürich.",
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
                          "required": ["city"]}}}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "Local time", "parameters": {"type": "object", "properties": {}}}}

SHAPES = {
    "one_turn": dict(messages=[U("Hi"), A("Hello there.")]),
    "system": dict(messages=[S("Be brief."), U("Hi"), A("Hello.")]),
    "three_turns": dict(messages=[S("You know rivers."), U("Longest?"), A("The Nile."), U("Second?"), A("The Amazon."), U("Third?"), A("The Yangtze.")]),
    "question_with_prompt": dict(messages=[U("Hi")], add_generation_prompt=True),
    "turns_with_prompt": dict(messages=[U("Hi"), A("Hello."), U("How are you?")], add_generation_prompt=True),
    "empty_contents": dict(messages=[U(""), A(""), U("still there?"), A("")]),
    "unicode": dict(messages=[U("¿Qué tal? 你好 👋🏽 e\u0301 \u200fשלום"), A("很好，谢谢 🙂\n\u2028ok\u00a0"), U("ﬁn ẞ"), A("İstanbul — ‘quotes’")]),
    "spaces": dict(messages=[S("  sys \n"), U("\n  padded question  \n"), A("  padded answer \n\n"), U("\tnext\t"), A("\n\nlast\t ")]),
    "tool_call": dict(messages=[S("Use tools."), U("Weather in Zürich?"), A(None, tool_calls=[call("get_weather", {"city": "Zürich", "days": 3})]),
                                T("{\"sky\": \"clear\"}", tool_call_id="abcdef123", name="get_weather"), A("Clear.")], tools=[WEATHER, CLOCK]),
    "parallel_tool_calls": dict(messages=[U("Weather and time?"), A("", tool_calls=[call("get_weather", {"city": "a\"b\\c\n"}, "111111111"), call("clock", {}, "222222222")]),
                                          T("rain", tool_call_id="111111111"), T("noon", tool_call_id="222222222"), A("Rain at noon."), U("Thanks"), A("Welcome.")], tools=[WEATHER, CLOCK]),
    "talking_tool_call": dict(messages=[U("Time?"), A("Let me look.", tool_calls=[call("clock", {"zone": None, "exact": True, "n": 1.50})]),
                                        T("12:00", tool_call_id="abcdef123"), A("It is noon.")], tools=[CLOCK]),
    "thinking_inline": dict(messages=[U("2+2?"), A("<think>\nEasy.\n</think>\n\n4"), U("3+3?"), A("<think>\nStill easy.\n</think>\n\n6")]),
    "thinking_field": dict(messages=[U("2+2?"), A("4", reasoning_content="Easy."), U("3+3?"), A("6", reasoning_content="\nStill easy.\n")]),
    "thinking_off": dict(messages=[U("2+2?"), A("4"), U("3+3?"), A("6")], variables={"enable_thinking": False}),
    "thinking_with_tools": dict(messages=[U("Time?"), A("", reasoning_content="I need the clock.", tool_calls=[call("clock", {})]), T("12:00", tool_call_id="abcdef123"),
                                          A("Noon.", reasoning_content="The clock says 12."), U("Weather?"), A("Unknown.", reasoning_content="No city.")], tools=[CLOCK]),
    "tokens_in_content": dict(messages=[U("What is <|im_end|>?"), A("It ends a turn: <|im_end|> or </s> or <|eot_id|> or <end_of_turn>, then <|im_start|>assistant\nso."), U("ok"), A("</s>")]),
    "assistant_first": dict(messages=[A("How can I help?"), U("Hi"), A("Hello.")]),
    "user_twice": dict(messages=[U("Hi"), U("Anyone?"), A("Yes.")]),
    "assistant_twice": dict(messages=[U("Hi"), A("Hello."), A("More?")]),
    "late_system": dict(messages=[U("Hi"), A("Hello."), S("Now in French."), U("Hi"), A("Salut.")]),
    "prompt_after_answer": dict(messages=[U("Hi"), A("Hello.")], add_generation_prompt=True),
    "content_parts": dict(messages=[S([{"type": "text", "text": "Be kind."}]), U([{"type": "text", "text": "Hi"}]), A([{"type": "text", "text": " Hello "}, {"type": "text", "text": "you."}])]),
}

IM = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
HEADER = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>"]


def wrap(inside):
    return "{% generation %}" + inside + "{% endgeneration %}"


def split_body(header):
    """Prints `body`: its header as it is, the rest but the last newline as generated."""
    return ("{%- set n = (" + header + ")|length if body.startswith(" + header + ") else 0 %}{%- set m = body.rstrip('\\n')|length %}"
            "{{- body[:n] }}{%- generation %}{{- body[n:m] }}{%- endgeneration %}{{- body[m:] }}")


FORMS = {
    "llama2": dict(tokens={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
                   marks=[("{{ ' '  + content.strip() + ' ' + eos_token }}", wrap("{{ ' '  + content.strip() + ' ' + eos_token }}"))]),
    "llama3": dict(tokens={"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}, special=HEADER,
                   marks=[("{{ content }}", "{% if message['role'] == 'assistant' %}{{ (bos_token if loop.index0 == 0 else '') + '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
                           + wrap("{{ message['content'] | trim + '<|eot_id|>' }}") + "{% else %}{{ content }}{% endif %}")]),
    "llama3_tools": dict(tokens={"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}, special=HEADER,
                         marks=[("{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}",
                                 "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}{% if message['role'] == 'assistant' %}"
                                 + wrap("{{ message['content'] | trim + '<|eot_id|>' }}") + "{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}"),
                                ("{{- '{\"name\": \"' + tool_call.name + '\", ' }}", "{%- generation %}{{- '{\"name\": \"' + tool_call.name + '\", ' }}"),
                                ("{{- \"}\" }}\n        {{- \"<|eot_id|>\" }}", "{{- \"}\" }}\n        {{- \"<|eot_id|>\" }}{%- endgeneration %}")]),
    "qwen25": dict(tokens={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, special=IM,
                   marks=[("{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}",
                           "{%- set body = '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' %}{%- if message.role == 'assistant' %}"
                           + split_body("'<|im_start|>assistant\\n'") + "{%- else %}{{- body }}{%- endif %}"),
                          ("{{- '<|im_start|>' + message.role }}", "{%- set body %}{{- '<|im_start|>' + message.role }}"),
                          ("{{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
                           "{{- '<|im_end|>\\n' }}{%- endset %}" + split_body("'<|im_start|>assistant\\n'") + "\n    {%- elif message.role == \"tool\" %}")]),
    "qwen3": dict(tokens={"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}, special=IM,
                  marks=[("{%- if loop.index0 > ns.last_query_index %}", "{%- set body %}{%- if loop.index0 > ns.last_query_index %}"),
                         ("{{- '<|im_end|>\\n' }}\n    {%- elif message.role == \"tool\" %}",
                          "{{- '<|im_end|>\\n' }}{%- endset %}{%- set prompt = '<|im_start|>assistant\\n' + ('<think>\\n\\n</think>\\n\\n' if enable_thinking is defined and enable_thinking is false else '') %}"
                          "{%- if not body.startswith(prompt) %}{%- set prompt = '<|im_start|>assistant\\n' %}{%- endif %}"
                          + split_body("prompt") + "\n    {%- elif message.role == \"tool\" %}")]),
    "mistral_v1": dict(tokens={"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
                       marks=[("{{ message['content'] + eos_token}}", wrap("{{ message['content'] + eos_token}}"))]),
    "mistral_v3": dict(tokens={"bos_token": "<s>", "eos_token": "</s>"},
                       special=["[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"],
                       marks=[("{{- \"[TOOL_CALLS][\" }}", "{%- generation %}{{- \"[TOOL_CALLS][\" }}"),
                              ("{%- elif message[\"role\"] == \"assistant\" %}", "{%- endgeneration %}{%- elif message[\"role\"] == \"assistant\" %}"),
                              ("{{- message[\"content\"] + eos_token}}", "{%- generation %}{{- message[\"content\"] + eos_token}}{%- endgeneration %}")]),
    "deepseek_v2": dict(tokens={"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"},
                        marks=[("{{ 'Assistant: ' + message['content'] + eos_token }}", "{{ 'Assistant:' }}" + wrap("{{ ' ' + message['content'] + eos_token }}"))]),
    "deepseek_r1": dict(tokens={"bos_token": "<｜begin▁of▁sentence｜>", "eos_token": "<｜end▁of▁sentence｜>"}, special=["<｜User｜>", "<｜Assistant｜>"],
                        marks=[("{%- for tool in message['tool_calls']%}", "{%- set body %}{%- for tool in message['tool_calls']%}"),
                               ("{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}", "{{'<｜tool▁calls▁end｜><｜end▁of▁sentence｜>'}}{%- endset %}" + split_body("'<｜Assistant｜>'")),
                               ("{{'<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>'}}",
                                "{{'<｜tool▁outputs▁end｜>'}}" + wrap("{{ message['content'] + '<｜end▁of▁sentence｜>'}}")),
                               ("{{'<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>'}}", "{{'<｜Assistant｜>'}}" + wrap("{{ content + '<｜end▁of▁sentence｜>'}}"))]),
    "chatml": dict(tokens={"eos_token": "<|im_end|>"}, special=IM,
                   marks=[("{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}",
                           "{{'<|im_start|>' + message['role'] + '\n'}}{% if message['role'] == 'assistant' %}" + wrap("{{ message['content'] + '<|im_end|>' }}")
                           + "{% else %}{{ message['content'] + '<|im_end|>' }}{% endif %}{{ '\n' }}")]),
    "zephyr": dict(tokens={"bos_token": "<s>", "eos_token": "</s>"},
                   marks=[("{{ '<|assistant|>\n'  + message['content'] + eos_token }}", "{{ '<|assistant|>\n' }}{% generation %}{{ message['content'] + eos_token }}{% endgeneration +%}")]),
    "gemma": dict(tokens={"bos_token": "<bos>", "eos_token": "<eos>"}, special=["<start_of_turn>", "<end_of_turn>"],
                  marks=[("{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}",
                          "{{ '<start_of_turn>' + role + '\n' }}{% if role == 'model' %}" + wrap("{{ message['content'] | trim + '<end_of_turn>' }}")
                          + "{% else %}{{ message['content'] | trim + '<end_of_turn>' }}{% endif %}{{ '\n' }}")]),
    "gemma3": dict(tokens={"bos_token": "<bos>", "eos_token": "<eos>"}, special=["<start_of_turn>", "<end_of_turn>", "<start_of_image>"],
                   marks=[("{{ '<start_of_turn>' + role + '\n' + (first", "{%- set body -%}{{ '<start_of_turn>' + role + '\n' + (first"),
                          ("{{ '<end_of_turn>\n' }}", "{{ '<end_of_turn>\n' }}{%- endset -%}{%- if role == 'model' %}" + split_body("'<start_of_turn>model\\n'") + "{%- else -%}{{- body }}{%- endif -%}")]),
    "phi3": dict(tokens={"bos_token": "<s>", "eos_token": "<|endoftext|>"}, special=["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"],
                 marks=[("{{'<|assistant|>\n' + message['content'] + '<|end|>\n'}}", "{{'<|assistant|>\n'}}" + wrap("{{ message['content'] + '<|end|>' }}") + "{{ '\n' }}")]),
    "phi4": dict(tokens={"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}, special=IM + ["<|im_sep|>"],
                 marks=[("{{'<|im_start|>assistant<|im_sep|>' + message['content'] + '<|im_end|>'}}", "{{'<|im_start|>assistant<|im_sep|>'}}" + wrap("{{ message['content'] + '<|im_end|>'}}"))]),
    "command_r": dict(tokens={"bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>"}, special=["<|START_OF_TURN_TOKEN|>", "<|CHATBOT_TOKEN|>"],
                      marks=[("{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>'  + content.strip() + '<|END_OF_TURN_TOKEN|>' }}",
                              "{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}" + wrap("{{ content.strip() + '<|END_OF_TURN_TOKEN|>' }}"))]),
    "granite": dict(tokens={"bos_token": "<|end_of_text|>", "eos_token": "<|end_of_text|>"}, special=["<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>"],
                    marks=[("{%- if message['role'] == 'assistant' and message['tool_calls'] %}", "{%- set body %}{%- if message['role'] == 'assistant' and message['tool_calls'] %}"),
                           ("    {%- endif %}\n    {%- if loop.last", "    {%- endif %}{%- endset %}{%- if message['role'] == 'assistant' %}"
                            + split_body("'<|start_of_role|>assistant<|end_of_role|>'") + "{%- else %}{{- body }}{%- endif %}\n    {%- if loop.last")]),
    "generation_tags": dict(tokens={"eos_token": "<|im_end|>"}, special=IM, marks=[]),
}


def tokenizer(form, template):
    tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **form["tokens"])
    tok.chat_template = template
    return tok


def render(tok, shape, messages=None, prompt=None):
    return tok.apply_chat_template(shape["messages"] if messages is None else messages, tools=shape.get("tools"), tokenize=False,
                                   add_generation_prompt=shape.get("add_generation_prompt", False) if prompt is None else prompt,
                                   **shape.get("variables", {}))


def generated(tok, template, shape):
    """The text and merged spans (characters) of a template with generation tags."""
    compiled = utils._compile_jinja_template(template)
    text, indices = utils._render_with_assistant_indices(
        compiled, utils._alias_reasoning_fields(json.loads(json.dumps(shape["messages"]))), shape.get("tools"), None,
        shape.get("add_generation_prompt", False), **{**tok.special_tokens_map, **shape.get("variables", {})})
    return text, [[b, e] for b, e in indices if b < e]


def make_forms():
    checked = loose = 0
    for name, form in FORMS.items():
        template = (HERE / "templates" / f"{name}.jinja").read_text(encoding="utf-8")
        marked = template
        for old, new in form["marks"]:
            assert marked.count(old) == 1, (name, old, marked.count(old))
            marked = marked.replace(old, new)
        tok = tokenizer(form, template)
        cases = []
        for shape_name, shape in SHAPES.items():
            case = {"shape": shape_name}
            try:
                case["text"] = render(tok, shape)
            except jinja2.exceptions.TemplateError as error:
                case["error"] = str(error)
            except Exception as error:
                case["error"] = ""
                case["why"] = f"{type(error).__name__}: {error}"
            if "text" in case:
                text, spans = generated(tok, marked, shape)
                assert text == case["text"], (name, shape_name, text, case["text"])
                case["trained"] = [[len(text[:b].encode()), len(text[:e].encode())] for b, e in spans]
                answers = [i for i, m in enumerate(shape["messages"]) if m["role"] == "assistant"]
                for i, span in zip(answers, spans):
                    try:
                        before = render(tok, shape, shape["messages"][:i], True) if i else None
                    except Exception:
                        before = None
                    if len(answers) == len(spans) and before is not None and text.startswith(before):
                        if span[0] != len(before):
                            print("begins elsewhere than its prompt ends:", name, shape_name, i, repr(text[len(before) - 10:span[0] + 10]))
                        checked += 1
                    else:
                        loose += 1
            cases.append(case)
        out = {"tokens": form["tokens"], "special": form.get("special", []), "cases": cases}
        (GOLDENS / f"{name}.json").write_text(json.dumps(out, ensure_ascii=False, indent=0), encoding="utf-8")
    shapes = {name: shape for name, shape in SHAPES.items()}
    (GOLDENS / "shapes.json").write_text(json.dumps(shapes, ensure_ascii=False, indent=0), encoding="utf-8")
    print(f"{len(FORMS)} templates x {len(SHAPES)} conversations; {checked} answers begin where a prompt ends, {loose} have no such prompt")


def make_language():
    import language_cases
    out = []
    for source in language_cases.CASES:
        case = {"template": source}
        try:
            case["output"] = utils._compile_jinja_template(source).render(**json.loads(json.dumps(language_cases.CONTEXT)))
            if " at 0x" in case["output"]:
                del case["output"]
                case.update(error="", why="prints an address")
        except jinja2.exceptions.TemplateError as error:
            case["error"] = str(error)
        except Exception as error:
            case["error"] = ""
            case["why"] = f"{type(error).__name__}: {error}"
        out.append(case)
    golden = {"context": language_cases.CONTEXT, "cases": out}
    (GOLDENS / "language.json").write_text(json.dumps(golden, ensure_ascii=False, indent=0), encoding="utf-8")
    print(f"{len(out)} pieces of language, {sum('error' in case for case in out)} of them errors")


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    make_forms()
    make_language()
