"""Texts of every kind that a tokenizer meets, made from a seed."""
import random

ALPHABETS = [
    (0x41, 0x5A), (0x61, 0x7A), (0x30, 0x39), (0xC0, 0x24F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x5FF), (0x600, 0x6FF),
    (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF), (0x1E00, 0x1EFF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3),
    (0x1D400, 0x1D7FF), (0x20000, 0x2A6DF), (0x31350, 0x323AF), (0xF900, 0xFAFF), (0xFB00, 0xFB06), (0x10400, 0x1044F),
]
MARKS = [(0x300, 0x36F), (0x483, 0x489), (0x591, 0x5BD), (0x64B, 0x65F), (0x93C, 0x94D), (0xF71, 0xF84), (0x1AB0, 0x1AC0),
         (0x20D0, 0x20F0), (0xFE20, 0xFE2F), (0x1D165, 0x1D169), (0x3099, 0x309A)]
SPACES = [0x20, 0x20, 0x20, 0x20, 0x09, 0x0A, 0x0D, 0x0B, 0x0C, 0x85, 0xA0, 0x1680, 0x2000, 0x2009, 0x200B, 0x2028, 0x2029, 0x202F, 0x205F,
          0x3000, 0xFEFF, 0x180E]
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "🇯🇵", "❤️", "1️⃣", "🧑🏿‍🚀", "☃", "✨"]
NUMBERS = ["0", "7", "42", "1234567890", "3.14159", "1e-9", "٣٤٥", "１２３", "Ⅷ", "½", "²", "௧", "𝟘𝟙", "1,000,000", "0x1F"]
WORDS = ("the of and to in is that it was for on are as with his they at be this have from or one had by word but not what all were we when "
         "your can said there use an each which she do how their if will up other about out many then them these so some her would make like "
         "him into time has look two more write go see number no way could people my than first water been call who oil its now find long down "
         "day did get come made may part over new sound take only little work know place year live me back give most very after thing our just "
         "name good sentence man think say great where help through much before line right too mean old any same tell boy follow came want show "
         "also around form three small set put end does another well large must big even such because turn here why ask went men read need land "
         "различные слова текста 数据 模型 训练 语言 こんにちは 世界 안녕하세요 مرحبا שלום Ελληνικά naïve café Straße coöperate Ünïcödé").split()
CONTRACTIONS = ["I'm", "don't", "we've", "she'll", "they'd", "it's", "you're", "IT'S", "WE'VE", "I’m", "'tis", "o'clock", "'S", "'ſ", "'LL", "s'il"]
CODE = ["def f(x):\n    return x**2\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n", "<div class=\"a\">&nbsp;</div>", "SELECT * FROM t WHERE a >= 10;",
        "https://example.org/a_b?c=d&e=%20f#g", "{\"key\": [1, 2, null]}\r\n", "// TODO: x -> y\r\n\r\n", "\\frac{a}{b} $x_i^2$", "snake_case camelCase PascalCase"]
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡¿«»“”‘’…—–·•§¶†‡€£¥©®™°±×÷≤≥≠∞∑√∫←→↑↓、。「」！？；：（）"
SPECIAL = ["<s>", "</s>", "<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|begin_of_text|>", "[INST]", "[/INST]", "<pad>",
           "<|im_", "<tool>", "<mask>", "sep", "Naïve", "<0x41>", "▁", "▁▁", "Ġ", "<|", "|>", "  <mask>  ", " <tool> "]


def code_point(random, planes=17):
    while True:
        code = random.randrange(planes << 16)
        if code and not 0xD800 <= code <= 0xDFFF:
            return chr(code)


def one_of(random, ranges):
    low, high = random.choice(ranges)
    return chr(random.randint(low, high))


def piece(random):
    kind = random.randrange(16)
    if kind < 5:
        return random.choice(WORDS)
    if kind == 5:
        return random.choice(CONTRACTIONS)
    if kind == 6:
        alphabet = [random.choice(ALPHABETS)]
        return "".join(one_of(random, alphabet) for _ in range(random.randint(1, 12)))
    if kind == 7:
        text = ""
        for _ in range(random.randint(1, 5)):
            text += one_of(random, ALPHABETS) + "".join(one_of(random, MARKS) for _ in range(random.choice([0, 1, 1, 2, 4])))
        return text
    if kind == 8:
        return "".join(chr(random.choice(SPACES)) for _ in range(random.choice([1, 1, 2, 3, 8])))
    if kind == 9:
        return random.choice([" ", "\n", "\t", "\r\n"]) * random.choice([1, 2, 3, 4, 7, 16, 40])
    if kind == 10:
        return random.choice(NUMBERS)
    if kind == 11:
        return random.choice(EMOJI) * random.choice([1, 1, 2])
    if kind == 12:
        return "".join(code_point(random, random.choice([1, 1, 2, 4, 17])) for _ in range(random.randint(1, 6)))
    if kind == 13:
        return "".join(random.choice(PUNCTUATION) for _ in range(random.choice([1, 1, 2, 3, 6])))
    if kind == 14:
        return random.choice(SPECIAL)
    return random.choice(CODE)


def text(random):
    kind = random.randrange(40)
    if kind == 0:
        return ""
    if kind == 1:  # control characters, the whole of Latin-1
        return "".join(chr(random.randrange(1, 256)) for _ in range(random.randint(1, 30)))
    if kind == 2:  # a long word
        return "".join(random.choice(WORDS) for _ in range(random.randint(10, 60)))
    between = random.choice([" ", " ", " ", " ", "", ""])
    return between.join(piece(random) for _ in range(random.choice([1, 2, 3, 5, 8, 12, 20])))


def texts(seed, count):
    source = random.Random(seed)
    return [text(source) for _ in range(count)]
