#!/usr/bin/env python3
"""Writes small vocabularies in the pipelines of families that the goldens do not have, for compare_tokenizers.py.

    python3 tests/tokenizer/family_vocabularies.py FOLDER

Patterns and steps are those of the published tokenizer.json files, or of transformers' tokenizer classes.
"""
import json
import sys
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from make_tokenizer_goldens import BYTES, LLAMA3, byte_level, special, split, train

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN35 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + SPACES
SEED = (r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        r"| ?[^\s\p{L}\p{N}\r\n]+|" + SPACES)
NOT_HAN = r"&&[^\p{Han}]]"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}" + NOT_HAN, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}" + NOT_HAN
KIMI = (rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?"
        rf"|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES)
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS
         + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS
         + r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES)
DIGITS = pre_tokenizers.Digits(individual_digits=True)


def with_tokens(tokenizer, *tokens, normalizer=None):
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.add_special_tokens(special(*tokens))
    return tokenizer


def gemma():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    train(tokenizer, 900, special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)],
          limit_alphabet=150)
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [t for t in file["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.add_special_tokens(special("<|turn>", "<turn|>"))
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁", normalized=False)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made = {
        "qwen3_5": with_tokens(byte_level([split(QWEN35), BYTES]), "<|im_start|>", normalizer=normalizers.NFC()),
        "gemma4": gemma(),
        "glm4_moe": with_tokens(byte_level([split(LLAMA3), BYTES]), "[gMASK]", "<sop>"),
        "kimi_k2": with_tokens(byte_level([split(KIMI), BYTES]), "<|im_end|>"),
        "olmo2": with_tokens(byte_level([split(LLAMA3), BYTES]), "<|endoftext|>"),
        "olmo_neox": with_tokens(byte_level([gpt2]), "<|endoftext|>", normalizer=normalizers.NFC()),
        "granite3": with_tokens(byte_level([DIGITS, gpt2]), "<|end_of_text|>"),
        "seed_oss": with_tokens(byte_level([split(SEED), BYTES]), "<seed:bos>"),
        "cohere2": with_tokens(byte_level([DIGITS, gpt2]), "<BOS_TOKEN>", normalizer=normalizers.NFC()),
        "o200k": with_tokens(byte_level([split(O200K), BYTES], ignore_merges=True), "<|end|>"),
    }
    for name, tokenizer in made.items():
        tokenizer.save(str(folder / f"{name}.json"))


if __name__ == "__main__":
    main()
