#!/usr/bin/env python3
"""Writes src/megatrain/unicode/tables.cc: the properties of every code point as the `tokenizers` library sees them.

That library takes its character classes from four places, each with a Unicode version of its own (its regular
expressions, its normalisation, Rust's standard library, and an older table of punctuation). Ids are only equal when
each of them is followed, so the tables are asked of the library itself, one code point at a time. Chat templates follow
Python instead: tools/make_jinja_unicode.py.

    python3 tools/make_tokenizer_unicode.py > src/megatrain/unicode/tables.cc      (needs: pip install tokenizers)
"""
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = ["Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
              "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co"]
SCRIPTS = ["Arabic", "Armenian", "Bengali", "Bopomofo", "Common", "Cyrillic", "Devanagari", "Georgian", "Greek", "Han", "Hangul",
           "Hebrew", "Hiragana", "Katakana", "Khmer", "Latin", "Tamil", "Telugu", "Thai"]
BLOCK = 1 << 13


def texts():
    for begin in range(0, len(CODES), BLOCK):
        yield CODES[begin:begin + BLOCK]


def kept_by(pre_tokenizer):
    """The code points left standing by a pre-tokenizer that removes others."""
    kept = set()
    for codes in texts():
        text = "".join(map(chr, codes))
        for piece, _ in pre_tokenizer.pre_tokenize_str(text):
            kept.update(map(ord, piece))
    return kept


def matched(pattern):
    return kept_by(pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True))


def ranges(codes):
    result = []
    for code in sorted(codes):
        if result and result[-1][1] == code - 1:
            result[-1][1] = code
        else:
            result.append([code, code])
    return result


def each(normalizer):
    """What the normalizer makes of each code point, where that is something else."""
    changed = {}
    for codes in texts():
        parts = normalizer.normalize_str("\n".join(map(chr, codes))).split("\n")
        if len(parts) != len(codes):  # the block holds a newline of its own
            parts = [normalizer.normalize_str(chr(c)) for c in codes]
        changed.update((c, part) for c, part in zip(codes, parts) if part != chr(c))
    return changed


def combining_classes(canonical):
    """Python's classes of what does not decompose, checked against the library's ordering; to it, the rest are starters."""
    nfd = normalizers.NFD()
    order = lambda text: nfd.normalize_str(text)
    classes = {}
    marks = {1: "\u0334", 220: "\u0323", 230: "\u0301", 240: "\u0345"}
    for c in CODES:
        if c in canonical:
            continue
        k = unicodedata.combining(chr(c))
        if "a" + chr(c) + "\u0334" == order("a" + chr(c) + "\u0334"):
            if order("a\u0345" + chr(c)) == "a\u0345" + chr(c):
                continue  # between class 1 and class 240, where each stays in its place, is a starter
            assert k == 1, hex(c)
        assert k > 0, f"U+{c:04X} is a mark to the library and not to Python: use a newer Python"
        classes[c] = k
        for value, mark in marks.items():
            want = chr(c) + mark if k <= value else mark + chr(c)
            assert order("a" + chr(c) + mark) == "a" + want, hex(c)
    return classes


def compositions(decompositions):
    nfc = normalizers.NFC()
    pairs = {}
    for c in decompositions:
        parts = unicodedata.decomposition(chr(c)).split()
        if len(parts) != 2 or parts[0].startswith("<"):
            continue
        first, second = (int(p, 16) for p in parts)
        if nfc.normalize_str(chr(first) + chr(second)) == chr(c):
            pairs[(first, second)] = c
    return pairs


def lines(values, width=118):
    line = " "
    for value in values:
        if len(line) + len(value) + 2 > width:
            yield line
            line = " "
        line += " " + value + ","
    yield line


def array(kind, name, values):
    print(f"const {kind} {name}[] = {{")
    print("\n".join(lines(values)))
    print("};")
    print(f"const int {name}_size = {len(values)};\n")


def hexes(values):
    return [f"{v:#x}" for v in values]


def pairs_of(codes):
    return hexes(v for r in ranges(codes) for v in r)


def main():
    category = {}
    for index, name in enumerate(CATEGORIES):
        for c in matched(rf"\p{{{name}}}"):
            assert c not in category
            category[c] = index
    runs, last = [], -1
    for c in range(0x110000):
        value = category.get(c, len(CATEGORIES))
        if value != last:
            runs.append(c << 5 | value)
            last = value
    newest = max((c for c in CODES if c in category and unicodedata.category(chr(c)) == "Cn"), default=0)

    nfd, nfkd, lower = each(normalizers.NFD()), each(normalizers.NFKD()), each(normalizers.Lowercase())
    hangul = range(0xAC00, 0xAC00 + 11172)
    canonical = {c: t for c, t in nfd.items() if c not in hangul}
    compatible = {c: t for c, t in nfkd.items() if c not in hangul and canonical.get(c) != t}
    for c in hangul:
        assert nfd[c] == nfkd[c] == unicodedata.normalize("NFD", chr(c))
    classes = combining_classes(nfd)
    composed = compositions(canonical)

    print("// Made by tools/make_tokenizer_unicode.py; not edited by hand.")
    print("// clang-format off")
    print(f"// Asked of tokenizers {tokenizers.__version__}; decomposition pairs and combining classes from Python's Unicode "
          f"{unicodedata.unidata_version}, checked")
    print(f"// against the library. {sum(1 for c in category if unicodedata.category(chr(c)) == 'Cn')} code points have a category "
          f"there that Python's Unicode lacks (the highest U+{newest:04X}).")
    print('#include "megatrain/unicode/tables.h"\n')
    print("namespace megatrain::tokenizer_unicode {\n")
    array("uint32_t", "kCategoryRuns", hexes(runs))
    sets = {
        "kOnigSpace": matched(r"\s"), "kOnigWord": matched(r"\w"), "kOnigDigit": matched(r"\d"),
        "kRustSpace": set(CODES) - kept_by(pre_tokenizers.WhitespaceSplit()),
        "kRustNumeric": numeric(), "kPunctuation": set(CODES) - kept_by(pre_tokenizers.Punctuation("removed")),
        "kRustWord": rust_word(),
        "kCombiningMark": {c for c, t in each(normalizers.StripAccents()).items() if t == ""},
    }
    for name, codes in sets.items():
        array("uint32_t", name, pairs_of(codes))
    scripts = []
    for index, name in enumerate(SCRIPTS):
        scripts += [(r[0], r[1], index) for r in ranges(matched(rf"\p{{{name}}}"))]
    array("uint32_t", "kScriptRanges", hexes(v for r in scripts for v in r))
    print("const char* const kScriptNames[] = {" + ", ".join(f'"{name}"' for name in SCRIPTS) + "};")
    print(f"const int kScriptNames_size = {len(SCRIPTS)};\n")
    mapping("kCanonical", canonical)
    mapping("kCompatible", compatible)
    mapping("kLowercase", lower)
    array("uint32_t", "kCombiningClass", hexes(c << 8 | k for c, k in sorted(classes.items())))
    array("uint32_t", "kCompositions", hexes(v for (a, b), c in sorted(composed.items()) for v in (a, b, c)))
    print("// (first code point, last, sum of kGrapheme… bits)")
    array("uint32_t", "kGraphemeRanges", hexes(v for r in grapheme_ranges() for v in r))
    print("}  // namespace megatrain::tokenizer_unicode")


def numeric():
    """Digits cuts numbers off one by one: a code point between two letters stands alone exactly when it is numeric."""
    digits = pre_tokenizers.Digits(individual_digits=True)
    found = set()
    for codes in texts():
        text = "".join("a" + chr(c) for c in codes) + "a"
        for piece, _ in digits.pre_tokenize_str(text):
            if len(piece) == 1 and piece != "a":
                found.add(ord(piece))
    return found


def rust_word():
    """The Whitespace pre-tokenizer joins a code point to the letter before it exactly when it is a word character."""
    found = set()
    whitespace = pre_tokenizers.Whitespace()
    for codes in texts():
        text = "".join("a" + chr(c) + " " for c in codes if not chr(c).isspace())
        for piece, _ in whitespace.pre_tokenize_str(text):
            if len(piece) == 2 and piece[0] == "a":
                found.add(ord(piece[1]))
    return found


def charsmap(rules):
    """A Precompiled normalizer's bytes: a double array of the keys, and the texts that replace them."""
    texts, trie = b"", {}
    for key, text in rules.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[-1] = len(texts)
        texts += text.encode() + b"\0"
    units, used, waiting = {}, {0}, [(trie, 0)]
    while waiting:
        node, at = waiting.pop()
        labels = [byte for byte in node if byte >= 0]
        base = 256
        while any(base ^ byte in used for byte in labels + [0]):
            base += 1
        units[at] = units.get(at, 0) | (base ^ at) << 10 | (-1 in node) << 8
        used.update(base ^ byte for byte in labels + [0])
        units[base] = 1 << 31 | node.get(-1, 0)
        for byte in labels:
            units[base ^ byte] = byte
            waiting.append((node[byte], base ^ byte))
    unused = 1 << 31
    array = [units.get(i, unused) for i in range(max(units) + 256)]
    return struct.pack(f"<{len(array) + 1}I", 4 * len(array), *array) + texts


def boundary_probe():
    """A function of texts made from each code point, which ends in a probe: one of "a", "©" and "क", and an acute accent.
    It gives the code points after which the probe does not begin a grapheme. Precompiled replaces a whole grapheme by
    what its beginning maps to, so the accent is lost exactly if the probe begins one."""
    normalizer = normalizers.Precompiled(charsmap({"a": "X", "©": "X", "क": "X", "\u0301": "Y", "\u0302": "Z"}))

    def joined(text_of):
        found = set()
        for codes in texts():
            codes = [c for c in codes if c not in (0x0A, 0x0D)]
            lines = normalizer.normalize_str("\n".join(text_of(chr(c)) for c in codes)).split("\n")
            assert len(lines) == len(codes)
            found.update(c for c, line in zip(codes, lines) if line[-1] in "YZ" and line[-2] in "XY")
        return found

    return joined


def grapheme_ranges():
    """What the library's graphemes (UAX #29) go by."""
    joined = boundary_probe()
    probes = set(map(ord, "a©क\u0301\u0302"))
    kinds = {
        1: {0x0A, 0x0D} | set(CODES) - joined(lambda c: c + "\u0301\u0302") - probes,  # control
        2: after_letter(),  # extends what is before it
        4: joined(lambda c: c + "a\u0301"),  # prepended to what is after it
        8: joined(lambda c: c + "\u200D©\u0301"),  # a pictograph
        32: joined(lambda c: c + "\u094Dक\u0301"),  # a consonant
    }
    kinds[16] = joined(lambda c: "©" + c + "\u200D©\u0301") - kinds[8]  # may stand between a pictograph and its joiner
    kinds[64] = joined(lambda c: "क" + c + "क\u0301") - kinds[4]  # links two consonants
    kinds[128] = joined(lambda c: "क\u094D" + c + "क\u0301") - kinds[4]  # may stand between consonants beside a link
    flags = [sum(bit for bit, codes in kinds.items() if c in codes) for c in range(0x110000)]
    found = []
    for c, value in enumerate(flags):
        if found and found[-1][1] == c - 1 and found[-1][2] == value:
            found[-1][1] = c
        elif value:
            found.append([c, c, value])
    return found


def after_letter():
    """The code points that belong to the grapheme of an "a" before them: it is replaced as a whole."""
    normalizer = normalizers.Precompiled(charsmap({"a": "X"}))
    found = set()
    for codes in texts():
        codes = [c for c in codes if c not in (0x0A, 0x0D)]
        lines = normalizer.normalize_str("\n".join("a" + chr(c) for c in codes)).split("\n")
        found.update(c for c, line in zip(codes, lines) if line == "X")
    return found


def mapping(name, table):
    """Entries of (code point, length, the code points it becomes)."""
    values = []
    for c, text in sorted(table.items()):
        values += [c, len(text)] + [ord(t) for t in text]
    array("uint32_t", name, hexes(values))


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=False)
    main()
