#include "megatrain/unicode/normalize.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "megatrain/unicode/tables.h"

namespace megatrain {
namespace {

// Hangul syllables are composed by arithmetic (the Unicode Standard, section 3.12).
constexpr uint32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTails = 0x11A7;
constexpr uint32_t kLeadCount = 19, kVowelCount = 21, kTailCount = 28;
constexpr uint32_t kSyllableCount = kLeadCount * kVowelCount * kTailCount;

bool is_syllable(uint32_t code) { return code >= kSyllables && code < kSyllables + kSyllableCount; }

struct Tables {
  CodePointMap<uint16_t> canonical;   // index + 1 of its entry in kCanonical; 0: none
  CodePointMap<uint16_t> compatible;  // the same in kCompatible; 0: use `canonical`
  CodePointMap<uint8_t> combining;
  CodePointMap<uint8_t> unsettled;  // one bit per form: the code point may change or move
};

CodePointMap<uint16_t> index_of(const uint32_t* entries, int size) {
  std::vector<CodePointMap<uint16_t>::Entry> found;
  for (int i = 0; i < size; i += 2 + static_cast<int>(entries[i + 1])) {
    found.push_back({{entries[i], entries[i]}, static_cast<uint16_t>(i + 1)});
  }
  return {0, found};
}

constexpr uint8_t bit(UnicodeForm form) { return static_cast<uint8_t>(1u << static_cast<unsigned>(form)); }

Tables make_tables() {
  using namespace tokenizer_unicode;
  Tables tables;
  tables.canonical = index_of(kCanonical, kCanonical_size);
  tables.compatible = index_of(kCompatible, kCompatible_size);
  std::vector<CodePointMap<uint8_t>::Entry> classes;
  for (int i = 0; i < kCombiningClass_size; i++) {
    const uint32_t code = kCombiningClass[i] >> 8;
    classes.push_back({{code, code}, static_cast<uint8_t>(kCombiningClass[i] & 255)});
  }
  tables.combining = {0, classes};

  std::vector<uint8_t> flags(kLastCodePoint + 1);
  constexpr uint8_t kAll =
      bit(UnicodeForm::nfd) | bit(UnicodeForm::nfkd) | bit(UnicodeForm::nfc) | bit(UnicodeForm::nfkc);
  constexpr uint8_t kComposed = bit(UnicodeForm::nfc) | bit(UnicodeForm::nfkc);
  for (int i = 0; i < kCanonical_size; i += 2 + static_cast<int>(kCanonical[i + 1])) flags[kCanonical[i]] = kAll;
  for (int i = 0; i < kCompositions_size; i += 3) flags[kCompositions[i + 2]] &= static_cast<uint8_t>(~kComposed);
  for (int i = 0; i < kCompatible_size; i += 2 + static_cast<int>(kCompatible[i + 1])) {
    flags[kCompatible[i]] |= bit(UnicodeForm::nfkd) | bit(UnicodeForm::nfkc);
  }
  for (int i = 0; i < kCompositions_size; i += 3) flags[kCompositions[i + 1]] |= kComposed;
  for (const auto& entry : classes) flags[entry.range.first] |= kAll;
  for (uint32_t i = 0; i < kSyllableCount; i++) flags[kSyllables + i] |= bit(UnicodeForm::nfd) | bit(UnicodeForm::nfkd);
  for (uint32_t i = 0; i < kVowelCount; i++) flags[kVowels + i] |= kComposed;
  for (uint32_t i = 1; i < kTailCount; i++) flags[kTails + i] |= kComposed;
  std::vector<CodePointMap<uint8_t>::Entry> unsettled;
  for (uint32_t code = 0; code <= kLastCodePoint; code++) {
    if (flags[code] != 0) unsettled.push_back({{code, code}, flags[code]});
  }
  tables.unsettled = {0, unsettled};
  return tables;
}

const Tables& tables() {
  static const Tables made = make_tables();
  return made;
}

struct Scalar {
  uint32_t code = 0;
  uint8_t combining = 0;
  ByteRange origin;
};

void decompose(uint32_t code, bool compatible, ByteRange origin, std::vector<Scalar>& out) {
  if (code < 0x80) {
    out.push_back({code, 0, origin});
    return;
  }
  if (is_syllable(code)) {
    const uint32_t index = code - kSyllables;
    out.push_back({kLeads + index / (kVowelCount * kTailCount), 0, origin});
    out.push_back({kVowels + index / kTailCount % kVowelCount, 0, origin});
    if (index % kTailCount != 0) out.push_back({kTails + index % kTailCount, 0, origin});
    return;
  }
  const Tables& t = tables();
  const uint32_t* entry = nullptr;
  if (compatible && t.compatible[code] != 0) {
    entry = tokenizer_unicode::kCompatible + t.compatible[code] - 1;
  } else if (t.canonical[code] != 0) {
    entry = tokenizer_unicode::kCanonical + t.canonical[code] - 1;
  }
  if (entry == nullptr) {
    out.push_back({code, t.combining[code], origin});
    return;
  }
  for (uint32_t i = 0; i < entry[1]; i++) out.push_back({entry[2 + i], t.combining[entry[2 + i]], origin});
}

// Sorts the marks between starters by combining class.
void reorder(std::vector<Scalar>& scalars) {
  auto begin = scalars.begin();
  while (begin != scalars.end()) {
    if (begin->combining == 0) {
      ++begin;
      continue;
    }
    auto end = begin;
    while (end != scalars.end() && end->combining != 0) ++end;
    std::stable_sort(begin, end, [](const Scalar& a, const Scalar& b) { return a.combining < b.combining; });
    begin = end;
  }
}

// 0 if the two do not compose.
uint32_t composed(uint32_t first, uint32_t second) {
  if (first >= kLeads && first < kLeads + kLeadCount && second >= kVowels && second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeads) * kVowelCount + (second - kVowels)) * kTailCount;
  }
  if (is_syllable(first) && (first - kSyllables) % kTailCount == 0 && second > kTails && second < kTails + kTailCount) {
    return first + (second - kTails);
  }
  int low = 0, high = tokenizer_unicode::kCompositions_size / 3;
  while (low < high) {
    const int middle = (low + high) / 2;
    const uint32_t* const entry = tokenizer_unicode::kCompositions + 3 * middle;
    if (std::pair(entry[0], entry[1]) < std::pair(first, second)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const uint32_t* const entry = tokenizer_unicode::kCompositions + 3 * low;
  const bool found = 3 * low < tokenizer_unicode::kCompositions_size && entry[0] == first && entry[1] == second;
  return found ? entry[2] : 0;
}

void compose(std::vector<Scalar>& scalars) {
  constexpr size_t kNone = static_cast<size_t>(-1);
  size_t kept = 0, starter = kNone;
  for (size_t i = 0; i < scalars.size(); i++) {
    const Scalar scalar = scalars[i];
    if (starter != kNone) {
      const bool adjacent = kept == starter + 1;
      const bool blocked = !adjacent && scalars[kept - 1].combining >= scalar.combining;
      const uint32_t whole = blocked ? 0 : composed(scalars[starter].code, scalar.code);
      if (whole != 0) {
        scalars[starter].code = whole;
        scalars[starter].origin.end = std::max(scalars[starter].origin.end, scalar.origin.end);
        continue;
      }
    }
    if (scalar.combining == 0) starter = kept;
    scalars[kept++] = scalar;
  }
  scalars.resize(kept);
}

}  // namespace

bool is_surely_normal(UnicodeForm form, std::string_view text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end && static_cast<unsigned char>(*at) < 0x80) at++;
  if (at == end) return true;
  const Tables& t = tables();
  const uint8_t wanted = bit(form);
  while (at < end) {
    if ((t.unsettled[next_code(at)] & wanted) != 0) return false;
  }
  return true;
}

AlignedText to_unicode_form(UnicodeForm form, const AlignedText& text) {
  const bool compatible = form == UnicodeForm::nfkd || form == UnicodeForm::nfkc;
  std::vector<Scalar> scalars;
  scalars.reserve(text.text.size());
  const char* const begin = text.text.data();
  for (const char* at = begin; at < begin + text.text.size();) {
    const ByteRange origin = text.origin(static_cast<size_t>(at - begin));
    decompose(next_code(at), compatible, origin, scalars);
  }
  reorder(scalars);
  if (form == UnicodeForm::nfc || form == UnicodeForm::nfkc) compose(scalars);
  AlignedText result;
  result.tracked = text.tracked;
  for (const Scalar& scalar : scalars) result.append_code(scalar.code, scalar.origin);
  return result;
}

}  // namespace megatrain
