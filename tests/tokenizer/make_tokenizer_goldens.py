#!/usr/bin/env python3
"""Writes tests/tokenizer/goldens with the `tokenizers` library (pip install tokenizers): small vocabularies in the pipelines of
published models, texts, and hashes of what the library makes of them. Not run by the tests.

    python3 tests/tokenizer/make_tokenizer_goldens.py
"""
import json
import math
import os
import sys
from collections import Counter

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import sample_texts

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from make_tokenizer_unicode import charsmap

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "goldens")
TEXTS = 1500

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
          r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*"
            "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"]
# Syntax beyond what the vocabularies use; each is cut "isolated".
PATTERNS = [
    r"[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s*[\r\n]|\s+(?!\S)|\s+", r"\p{N}{2}?", r"a{,2}b?", r"(?i)th|he",
    r"x(?i)a|e|t", r"[\p{L}&&[^aeiou\p{Han}]]+", r"[a-f[x-z]0-9]+", r"^.", r".$", r"\bt\w*", r"\w+\b|\B.", r"\s*", r"(?<=a)\w", r"(?<!\s)\w{2,3}?",
    r"(?>\w+)e|\S", r"(\d+|\w)(?=\s)", r"[\u0041-\x{1F600}]", r"\h+", r"[^\s]", r"\P{L}+", r"\p{^L}", r"[\P{L}\p{Lu}]+", r"\p{Han}+|\p{Latin}+",
    r"(?i:[sdmt]|ll|ve|re)", r"{|a{|b{x}", r"\p{Letter}+|\p{uppercase_letter}", r"e**|a+*", r"\x41|\n|\t|\\|\.", r"[\]\-\[\\]", r"(?:a|e)+?t", r"\A\w|\w\z",
    r"[A-Z]?[a-z]+(?i:'s)?", r"(?-i:A)(?i:b|K)",
]


def hash_of(data):
    value = 0x811C9DC5
    for byte in data:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return f"{value:08x}"


def hash_of_numbers(numbers):
    return hash_of(b"".join(n.to_bytes(4, "little") for n in numbers))


def in_tens(results):
    """A hash for every ten texts."""
    return "".join(hash_of("\x02".join(results[i:i + 10]).encode()) for i in range(0, len(results), 10))


def train(tokenizer, size, **options):
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)
    lines = [t for t in sample_texts.texts(99, 3000)] + [" ".join(sample_texts.WORDS[i:i + 9]) for i in range(0, len(sample_texts.WORDS), 3)] * 8
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def byte_level(steps, size=700, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def special(*contents):
    return [AddedToken(c, special=True, normalized=False) for c in contents]


def llama3():
    tokenizer = byte_level([split(LLAMA3), BYTES], ignore_merges=True)
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|eot_id|>"))
    start = tokenizer.token_to_id("<|begin_of_text|>")
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A <|begin_of_text|> $B", special_tokens=[("<|begin_of_text|>", start)])])
    return tokenizer


def qwen():
    tokenizer = byte_level([split(QWEN), BYTES])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("Naïve", normalized=True), AddedToken("<tool>", normalized=False)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def gpt2():
    tokenizer = byte_level([pre_tokenizers.ByteLevel(add_prefix_space=True)])
    tokenizer.add_special_tokens(special("<|endoftext|>"))
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False), AddedToken("sep", single_word=True), AddedToken("the", lstrip=True)])
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


def tekken():
    tokenizer = byte_level([split(TEKKEN), BYTES])
    tokenizer.add_special_tokens(special("<s>", "</s>", "[INST]", "[/INST]"))
    return tokenizer


def deepseek():
    tokenizer = byte_level([split(p) for p in DEEPSEEK] + [BYTES])
    tokenizer.add_special_tokens(special("<｜begin▁of▁sentence｜>", "<|im_end|>"))
    return tokenizer


def llama2(metaspace):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    train(tokenizer, 800, special_tokens=["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)], limit_alphabet=150)
    if metaspace:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    else:
        tokenizer.pre_tokenizer = None
    file = json.loads(tokenizer.to_str())
    file["added_tokens"] = [t for t in file["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(file))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def folded():
    """Every character is folded and cut; unknown ones stand alone."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
                                                 normalizers.Replace(Regex(r"\d{2,}"), "#")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.Metaspace(prepend_scheme="always")])
    train(tokenizer, 500, special_tokens=["<unk>"], limit_alphabet=120)
    tokenizer.add_tokens([AddedToken("Naïve", normalized=True), AddedToken("CAFÉ", normalized=True, single_word=True)])
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def affixed():
    """Parts of a word carry a prefix and its last one a suffix; what is unknown is dropped, and there is no decoder."""
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Split("an", "merged_with_next")])
    train(tokenizer, 600, limit_alphabet=120, continuing_subword_prefix="##", end_of_word_suffix="</w>")
    tokenizer.add_special_tokens(special("<s>"))
    return tokenizer


def bytes_first():
    """Byte characters are made by the normalizer, and cut afterwards."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.ByteLevel()])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("Ġ?[^Ġ]+|Ġ+"), "isolated")
    train(tokenizer, 500, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.add_tokens([AddedToken("Naïve", normalized=True)])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


# Keys begin alike, end inside a grapheme or hold several characters; some are replaced by nothing.
CHARSMAP = {
    "a\u0301": "á", "e\u0301": "é", "A\u030A": "Å", "A\u030A\u0301": "Ǻ", "ﬁ": "fi", "™": "TM", "½": "1⁄2", "①": "1", "Ａ": "A", "\u3000": " ",
    "\t": " ", "\n": " ", "\r": " ", "\u0001": "", "\u007F": "", "\u200B": "", "\u00AD": "", "\u0323": "", "\u0301\u0323": "!", "©": "(c)", "क": "k",
    "ᄀ": "g", "ᅡ": "a", "☃": "snow", "\u200D": "+", "가": "ga", "\u0600": "#", "🇯": "J", "ﷺ": "صلى الله عليه وسلم",
}


def unigram(tokenizer, size, first, unknown=0, byte_fallback=False):
    """Gives the tokenizer the most frequent parts of words, with scores in steps of 0.25, so that sums are often equal."""
    counts = Counter()
    for line in [t for t in sample_texts.texts(99, 3000)] + [" ".join(sample_texts.WORDS)] * 20:
        words = [(tokenizer.normalizer.normalize_str(line) if tokenizer.normalizer else line, None)]
        if tokenizer.pre_tokenizer:
            words = tokenizer.pre_tokenizer.pre_tokenize_str(words[0][0])
        for word, _ in words:
            for begin in range(len(word)):
                for end in range(begin + 1, min(begin + 6, len(word)) + 1):
                    counts[word[begin:end]] += 1
    total = sum(counts.values())
    best = sorted(counts, key=lambda t: (-counts[t] * len(t), t))
    chosen = [t for t in best if t not in first][:size - len(first)]
    scores = [(t, round(4 * math.log(counts[t] / total)) / 4) for t in chosen]
    bytes_ = [(f"<0x{b:02X}>", -30.0) for b in range(256)] if byte_fallback else []
    tokenizer.model = models.Unigram([(t, 0.0) for t in first] + bytes_ + scores, unknown, byte_fallback)
    return tokenizer


def t5():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap(CHARSMAP)), normalizers.Strip(left=False),
                                                 normalizers.Replace(Regex(" {2,}"), "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    unigram(tokenizer, 700, ["<pad>", "</s>", "<unk>"], unknown=2)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(special("</s>", "<unk>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def xlm_roberta():
    """A token twice, unknown text that is a token's, and offsets that are the library's."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    unigram(tokenizer, 700, ["<s>", "<pad>", "</s>", "<unk>", "the"], unknown=3)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(special("<s>"))
    return tokenizer


def llm_jp():
    """The mark comes from a pattern that matches nothing, and a whole text is one word."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Replace(Regex(r"(?<!\n)^"), "▁"), normalizers.Replace(Regex(" "), "▁")])
    unigram(tokenizer, 700, ["<unk|LLM-jp>", "<s|LLM-jp>", "<EOD|LLM-jp>"], byte_fallback=True)
    tokenizer.add_special_tokens(special("<unk|LLM-jp>", "<s|LLM-jp>", "<EOD|LLM-jp>", "<|im_end|>"))
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Replace(Regex("▁"), " "), decoders.Fuse(),
                                           decoders.Replace(Regex(r"(?<!\n)^ "), "")])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A <EOD|LLM-jp>", pair="$A <EOD|LLM-jp> $B <EOD|LLM-jp>",
                                                             special_tokens=[("<EOD|LLM-jp>", 2)])
    return tokenizer


def helium():
    """Some bytes have no token, so what holds them is unknown; line breaks are cut off."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(" "), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split("\n", "contiguous")])
    unigram(tokenizer, 700, ["<unk>", "<s>", "</s>", "<pad>"], byte_fallback=True)
    state = json.loads(tokenizer.to_str())
    state["model"]["vocab"] = [["lost", -20.0] if t in ("<0xE4>", "<0xF0>") else [t, s] for t, s in state["model"]["vocab"]]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False, single_word=True) for t in ("<s>", "</s>")])
    tokenizer.add_tokens([AddedToken("\n", normalized=False)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def unigram_bytes():
    """Scores above nothing, and words in byte characters."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    unigram(tokenizer, 500, ["<unk>"])
    state = json.loads(tokenizer.to_str())
    state["model"]["vocab"] = [[t, s + 20] for t, s in state["model"]["vocab"] if t == "<unk>" or len(t) > 1 or t > "k"]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_offsets(text, encoding):
    starts = [0]
    for c in text:
        starts.append(starts[-1] + len(c.encode()))
    return [starts[o] for pair in encoding.offsets for o in pair]


def legacy_merges(path):
    file = json.load(open(path))
    file["model"]["merges"] = [" ".join(pair) for pair in file["model"]["merges"]]
    json.dump(file, open(path, "w"), ensure_ascii=False, separators=(",", ":"))


def main():
    os.makedirs(FOLDER, exist_ok=True)
    texts = ["", " ", "a", "\0", "a\0b", "\n\n\n", "Hello, world! It's 12345 o'clock.", "<s>Hi</s>", "x" * 700, "語" * 300, " " * 300 + "x", "aß ﬁ ǆ İ K ſ"]
    texts += sample_texts.texts(7, TEXTS - len(texts))
    json.dump(texts, open(FOLDER + "/texts.json", "w"), ensure_ascii=False, separators=(",", ":"))
    builders = {"llama3": llama3, "qwen": qwen, "gpt2": gpt2, "tekken": tekken, "deepseek": deepseek, "llama2": lambda: llama2(False),
                "mistral": lambda: llama2(True), "folded": folded, "affixed": affixed, "bytes_first": bytes_first,
                "t5": t5, "xlm_roberta": xlm_roberta, "llm_jp": llm_jp, "helium": helium, "unigram_bytes": unigram_bytes}
    for name, build in builders.items():
        path = f"{FOLDER}/{name}.tokenizer.json"
        tokenizer = build()
        tokenizer.save(path, pretty=False)
        if name in ("gpt2", "llama2"):
            legacy_merges(path)
        tokenizer = Tokenizer.from_file(path)
        encodings = [tokenizer.encode(t) for t in texts]
        golden = {"ids": "".join(hash_of_numbers(e.ids) for e in encodings),
                  "decoded": "".join(hash_of((tokenizer.decode(e.ids, skip_special_tokens=False) + "\0" +
                                              tokenizer.decode(e.ids, skip_special_tokens=True)).encode()) for e in encodings),
                  "first": [e.ids for e in encodings[:12]], "vocab_size": max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1}
        if name in ("llama3", "gpt2", "tekken", "deepseek", "llama2", "mistral", "xlm_roberta"):  # no composition: offsets are the library's
            tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
            golden["ranges"] = "".join(hash_of_numbers(byte_offsets(t, tokenizer.encode(t, add_special_tokens=False))) for t in texts)
        json.dump(golden, open(f"{FOLDER}/{name}.golden.json", "w"), separators=(",", ":"))

    few = texts[:300]
    cuts = []
    for pattern in PATTERNS:
        step = pre_tokenizers.Split(Regex(pattern), "isolated")
        cuts.append((json.loads(step.__getstate__()), step))
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        for invert in (False, True):
            for pattern in (Regex(r"\s|[,.]"), " ", "th"):
                step = pre_tokenizers.Split(pattern, behavior, invert=invert)
                cuts.append((json.loads(step.__getstate__()), step))
        step = pre_tokenizers.Punctuation(behavior)
        cuts.append((json.loads(step.__getstate__()), step))
    for step in (pre_tokenizers.Whitespace(), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(True), pre_tokenizers.Digits(False),
                 pre_tokenizers.Metaspace(prepend_scheme="never"), pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
                 pre_tokenizers.Sequence([pre_tokenizers.ByteLevel(), pre_tokenizers.Digits(True)])):
        cuts.append((json.loads(step.__getstate__()), step))
    out = [{"config": config, "pieces": in_tens(["\x01".join(p for p, _ in step.pre_tokenize_str(t)) for t in few])} for config, step in cuts]
    json.dump(out, open(FOLDER + "/pre_tokenizers.json", "w"), ensure_ascii=False, indent=0)

    steps = [normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(), normalizers.StripAccents(),
             normalizers.Strip(), normalizers.Strip(left=False), normalizers.Strip(right=False), normalizers.Prepend("_"), normalizers.Replace("th", ""),
             normalizers.Replace(Regex(r"\s+"), " "), normalizers.ByteLevel(), normalizers.Replace(Regex(r"\b"), "|"),
             normalizers.Replace(Regex("x*"), "-"), normalizers.Nmt(), normalizers.Precompiled(charsmap(CHARSMAP))]
    whole = steps[:6] + steps[-2:]
    codes = [chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    out = []
    for step in steps:
        every = hash_of(step.normalize_str("\n".join("a\u0327" + c + "\u0323\u0301" for c in codes)).encode()) if step in whole else ""
        out.append({"config": json.loads(step.__getstate__()), "texts": in_tens([step.normalize_str(t) for t in texts]), "every_code_point": every})
    json.dump(out, open(FOLDER + "/normalizers.json", "w"), indent=0)


if __name__ == "__main__":
    main()
