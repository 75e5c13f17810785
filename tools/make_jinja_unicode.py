"""Writes src/megatrain/chat/jinja/unicode.cc from Python's own character data, which chat templates follow.

Tokens follow another: tools/make_tokenizer_unicode.py.

    python3 tools/make_jinja_unicode.py > src/megatrain/chat/jinja/unicode.cc
"""

CHARS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def ranges(holds):
    out = []
    for c in CHARS:
        if holds(c):
            if out and out[-1][1] == ord(c) - 1:
                out[-1][1] = ord(c)
            else:
                out.append([ord(c), ord(c)])
    return out


def print_ranges(name, holds):
    print(f"constexpr Range {name}[] = {{")
    line = "   "
    for first, last in ranges(holds):
        item = f" {{0x{first:X}, 0x{last:X}}},"
        if len(line) + len(item) > 118:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")


def print_mapping(name, mapped):
    print(f"constexpr Mapping {name}[] = {{")
    line = "   "
    for c in CHARS:
        to = mapped(c)
        if to == c:
            continue
        text = "".join(f"\\x{b:02x}" if b > 126 else chr(b) for b in to.encode())
        text = text if all(b > 126 for b in to.encode()) or all(b < 127 for b in to.encode()) else \
            "".join(f"\\{b:03o}" for b in to.encode())
        item = f' {{0x{ord(c):X}, "{text}"}},'
        if len(line) + len(item) > 118:
            print(line)
            line = "   "
        line += item
    print(line)
    print("};")


print("""// Written by tools/make_jinja_unicode.py.
#include "megatrain/chat/jinja/unicode.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace megatrain::jinja {
namespace {

struct Range {
  char32_t first, last;
};
struct Mapping {
  char32_t from;
  const char* to;
};

// clang-format off""")
print_mapping("kUpper", str.upper)
print_mapping("kLower", str.lower)
print_mapping("kTitle", str.title)
print_ranges("kPrintable", str.isprintable)
print_ranges("kAlpha", str.isalpha)
print_ranges("kDigit", str.isdigit)
print_ranges("kNumeric", str.isnumeric)
print_ranges("kIsUpper", str.isupper)
print_ranges("kIsLower", str.islower)
print_ranges("kIsTitle", lambda c: c.istitle() and not c.isupper())
print_ranges("kCased", lambda c: ("a" + c + "a").title()[-1] == "a" and ("A" + c).title()[1:] != "" and ("1" + c + "A").title()[-1] == "a")
# The rule of the final sigma reveals which characters are case-ignorable: only those let "aΣ" + c end a word.
print_ranges("kCaseIgnorable", lambda c: ("a\u03a3" + c + "a").lower()[1] == "\u03c3" and ("a\u03a3" + c).lower()[1] == "\u03c2")
print("""// clang-format on

template <size_t N>
bool contains(const Range (&ranges)[N], char32_t c) {
  const Range* const found = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                              [](char32_t x, const Range& range) { return x < range.first; });
  return found != std::begin(ranges) && c <= std::prev(found)->last;
}

template <size_t N>
std::string_view find(const Mapping (&mappings)[N], char32_t c) {
  const Mapping* const found = std::lower_bound(std::begin(mappings), std::end(mappings), c,
                                                [](const Mapping& mapping, char32_t x) { return mapping.from < x; });
  return found != std::end(mappings) && found->from == c ? std::string_view(found->to) : std::string_view();
}

}  // namespace

std::string_view upper_of(char32_t c) { return find(kUpper, c); }
std::string_view lower_of(char32_t c) { return find(kLower, c); }
std::string_view title_of(char32_t c) { return find(kTitle, c); }
bool is_printable(char32_t c) { return contains(kPrintable, c); }
bool is_alpha(char32_t c) { return contains(kAlpha, c); }
bool is_digit(char32_t c) { return contains(kDigit, c); }
bool is_numeric(char32_t c) { return contains(kNumeric, c); }
bool is_upper(char32_t c) { return contains(kIsUpper, c); }
bool is_lower(char32_t c) { return contains(kIsLower, c); }
bool is_title(char32_t c) { return contains(kIsTitle, c); }
bool is_cased(char32_t c) { return contains(kCased, c); }
bool is_case_ignorable(char32_t c) { return contains(kCaseIgnorable, c); }

}  // namespace megatrain::jinja""")
