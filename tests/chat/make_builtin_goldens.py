"""Writes tests/chat/goldens/builtin.json: what other trainers write for the built-in chat templates.

    pip download --no-deps llamafactory==0.9.5 axolotl==0.19.0 unsloth; unpack each wheel into a folder
    python tests/chat/make_builtin_goldens.py LLAMAFACTORY AXOLOTL UNSLOTH        (transformers 5, jinja2 3.1.6)

Only the outputs are kept. LLaMA-Factory's are the joined pieces of its Template._encode, whose answers, without their
last line feeds, are also the trained texts. Axolotl's, Unsloth's and the published ones (tests/chat/templates) are apply_chat_template over
Jinja texts. Where the sources disagree, SOURCES has the shapes for which a built-in template follows each.
"""
import enum
import importlib.util
import json
import pathlib
import sys
import types
from datetime import datetime

from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils as utils

GOLDENS = pathlib.Path(__file__).parent / "goldens"
FACTORY, AXOLOTL, UNSLOTH = map(pathlib.Path, sys.argv[1:])


class FixedTime(datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2025, 3, 9, 14, 5, 7)


utils.datetime = FixedTime


def message(role):
    return lambda content, **more: {"role": role, "content": content, **more}


S, U, A, T = message("system"), message("user"), message("assistant"), message("tool")
CLOCK = {"type": "function", "function": {"name": "clock", "description": "Local time, e.g. \"noon\" in Zürich",
         "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]}}}


def call(**arguments):
    return {"type": "function", "id": "abcdef123", "function": {"name": "clock", "arguments": arguments}}


SHAPES = {
    "one_turn": dict(messages=[U("Hi"), A("Hello there.")]),
    "system": dict(messages=[S("Be brief."), U("Hi"), A("Hello.")]),
    "empty_system": dict(messages=[S(""), U("Hi"), A("Hello.")]),
    "three_turns": dict(messages=[S("You know rivers."), U("Longest?"), A("The Nile."), U("Second?"), A("The Amazon."),
                                  U("Third?"), A("The Yangtze.")]),
    "unicode": dict(messages=[U("¿Qué tal? 你好 👋🏽"), A("很好 🙂\n\n'quotes' \"too\"")]),
    "prompt": dict(messages=[U("Hi")], add_generation_prompt=True),
    "turns_with_prompt": dict(messages=[S("Be brief."), U("Hi"), A("Hello."), U("How?")], add_generation_prompt=True),
    "tools": dict(messages=[S("Use tools."), U("Time?"), A("", tool_calls=[call(zone="Zürich")]), T("12:00"), A("Noon.")],
                  tools=[CLOCK]),
    "tools_without_system": dict(messages=[U("Time?"), A("", tool_calls=[call(zone="a\"b")]), T("12:00"), A("Noon.")],
                                 tools=[CLOCK]),
    "parallel_tools": dict(messages=[U("Time?"), A("", tool_calls=[call(zone="a"), call(zone="b")]), T("1"), T("2"), A("So.")],
                           tools=[CLOCK]),
    "talking_tools": dict(messages=[U("Time?"), A("Wait.", tool_calls=[call(zone="a")]), T("1"), A("One."), U("And?"), A("No.")],
                          tools=[CLOCK]),
    "thinking": dict(messages=[U("2+2?"), A("4", reasoning_content="Easy."), U("3+3?"), A("6", reasoning_content="Easier.")]),
    "thinking_inline": dict(messages=[U("2+2?"), A("<think>\nEasy.\n</think>\n\n4"), U("3+3?"), A("<think>\nHm.\n</think>\n\n6")]),
    "thinking_off": dict(messages=[U("2+2?"), A("4"), U("3+3?"), A("6")], variables={"enable_thinking": False}),
    "thinking_off_prompt": dict(messages=[U("2+2?")], variables={"enable_thinking": False}, add_generation_prompt=True),
}

TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}
PLAIN = ["one_turn", "system", "empty_system", "three_turns", "unicode", "prompt", "turns_with_prompt"]
TOOLS = ["tools", "tools_without_system", "parallel_tools", "talking_tools"]
THOUGHTS = ["thinking", "thinking_inline", "thinking_off", "thinking_off_prompt"]
# Built-in name: source, its name there, shapes. Empty system turns follow the published templates.
FULL = [shape for shape in PLAIN if shape != "empty_system"]
SOURCES = [
    ("chatml", "llamafactory", "chatml", FULL), ("chatml", "axolotl", "chatml", PLAIN),
    ("llama3", "llamafactory", "llama3", FULL + ["tools", "tools_without_system"]), ("llama3", "axolotl", "llama3", PLAIN),
    ("qwen", "llamafactory", "qwen", FULL + ["tools", "tools_without_system"]), ("qwen", "axolotl", "qwen_25", PLAIN + TOOLS),
    ("qwen3", "axolotl", "qwen3", [shape for shape in PLAIN + TOOLS + THOUGHTS if "prompt" not in shape]),
    ("qwen3", "published", "qwen3", PLAIN + THOUGHTS),
    ("qwen3-thinking-off", "published", "qwen3", ["thinking_off", "thinking_off_prompt"]),
    ("qwen3-nothink", "llamafactory", "qwen3_nothink", FULL + ["tools"]),
    ("mistral", "llamafactory", "mistral", PLAIN),
    ("gemma", "llamafactory", "gemma", PLAIN), ("gemma", "llamafactory", "gemma3", FULL),
    ("gemma", "axolotl", "gemma3", FULL), ("gemma", "axolotl", "gemma", ["one_turn", "prompt", "unicode"]),
    ("phi", "llamafactory", "phi", PLAIN), ("phi", "axolotl", "phi_35", PLAIN),
    ("phi-3", "axolotl", "phi_3", ["one_turn", "system", "three_turns", "unicode"]),
    ("phi4", "llamafactory", "phi4", FULL),
    ("deepseek", "llamafactory", "deepseek", PLAIN), ("deepseek3", "llamafactory", "deepseek3", PLAIN),
    ("deepseek-v2", "axolotl", "deepseek_v2", FULL), ("deepseek-v3", "axolotl", "deepseek_v3", PLAIN + ["thinking_inline"]),
    ("gpt-oss", "unsloth", "gpt-oss", PLAIN + ["thinking"]),
    ("alpaca", "llamafactory", "alpaca", PLAIN), ("alpaca-plain", "axolotl", "alpaca", PLAIN),
    ("vicuna", "llamafactory", "vicuna", PLAIN),
]


def load_factory():
    """Its template.py with the modules that it does not need here replaced."""
    def package(name, folder=None):
        module = types.ModuleType(name)
        module.__path__ = [str(folder)] if folder else []
        sys.modules[name] = module
        return module

    root = FACTORY / "llamafactory"
    package("llamafactory", root), package("llamafactory.data", root / "data"), package("llamafactory.extras")
    logger = types.SimpleNamespace(get_logger=lambda name: None)
    sys.modules["llamafactory.extras"].logging = sys.modules["llamafactory.extras.logging"] = logger
    package("llamafactory.data.mm_plugin").get_mm_plugin = lambda *a, **k: None
    data = package("llamafactory.data.data_utils")
    data.Role = enum.StrEnum("Role", {r.upper(): r for r in ["user", "assistant", "system", "function", "observation"]})
    data.SLOTS = list
    spec = importlib.util.spec_from_file_location("llamafactory.data.template", root / "data" / "template.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    sys.modules["llamafactory.data.tool_utils"].datetime = FixedTime
    return module.TEMPLATES


class Pieces:
    """A tokenizer whose ids are the texts themselves."""
    bos_token_id, eos_token_id = TOKENS["bos_token"], TOKENS["eos_token"]

    def encode(self, text, add_special_tokens=False):
        return [text]

    def convert_tokens_to_ids(self, token):
        return token


def factory(templates, name, shape):
    system, messages = "", []
    for one in shape["messages"]:
        if one["role"] == "system":
            system = one["content"]
        elif one.get("tool_calls"):
            calls = [c["function"] for c in one["tool_calls"]]
            messages.append({"role": "function", "content": json.dumps(calls[0], ensure_ascii=False)})
        else:
            messages.append({"role": {"tool": "observation"}.get(one["role"], one["role"]), "content": one["content"]})
    tools = json.dumps(shape["tools"], ensure_ascii=False) if "tools" in shape else None
    parts = ["".join(p) for p in templates[name]._encode(Pieces(), messages, system, tools)]
    return "".join(parts), [part.rstrip("\n") for part in parts[1::2]]


def jinja(source, shape):
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), **TOKENS)
    return tokenizer.apply_chat_template(shape["messages"], tools=shape.get("tools"), chat_template=source, tokenize=False,
                                         add_generation_prompt=shape.get("add_generation_prompt", False),
                                         **shape.get("variables", {}))


def unsloth_text(name):
    """A string literal of its chat_templates.py; the module itself needs a GPU's libraries."""
    import ast
    tree = ast.parse((UNSLOTH / "unsloth" / "chat_templates.py").read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
            return ast.literal_eval(node.value)
    raise SystemExit("no " + name)


def main():
    templates = load_factory()
    cases = []
    for builtin, source, name, shapes in SOURCES:
        for shape in shapes:
            case = {"builtin": builtin, "source": f"{source}: {name}", "shape": shape}
            if source == "llamafactory":
                case["text"], trained = factory(templates, name, SHAPES[shape])
                if not SHAPES[shape].get("add_generation_prompt"):
                    case["trained"] = trained
            elif source == "published":
                case["text"] = jinja((GOLDENS.parent / "templates" / f"{name}.jinja").read_text(), SHAPES[shape])
            elif source == "axolotl":
                folder = AXOLOTL / "axolotl" / "utils" / "chat_templates" / "templates"
                case["text"] = jinja((folder / f"{name}.jinja").read_text(), SHAPES[shape])
                case["text"] = case["text"].replace("<｜end▁of▁sentence｜>", TOKENS["eos_token"])  # DeepSeek's eos_token
            else:
                case["text"] = jinja(unsloth_text("gptoss_template"), SHAPES[shape])
            cases.append(case)
    out = {"tokens": TOKENS, "shapes": SHAPES, "cases": cases}
    (GOLDENS / "builtin.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")
    print(len(cases), "cases")


main()
