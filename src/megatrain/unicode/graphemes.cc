#include "megatrain/unicode/graphemes.h"

#include <vector>

#include "megatrain/unicode/tables.h"
#include "megatrain/unicode/unicode.h"

namespace megatrain {
namespace {

using namespace tokenizer_unicode;

constexpr uint32_t kJoiner = 0x200D;

const CodePointMap<uint8_t>& grapheme_flags() {
  static const CodePointMap<uint8_t> made = [] {
    std::vector<CodePointMap<uint8_t>::Entry> entries;
    for (int i = 0; i < kGraphemeRanges_size; i += 3) {
      entries.push_back({{kGraphemeRanges[i], kGraphemeRanges[i + 1]}, static_cast<uint8_t>(kGraphemeRanges[i + 2])});
    }
    return CodePointMap<uint8_t>(0, entries);
  }();
  return made;
}

bool in(uint32_t code, uint32_t first, uint32_t last) { return code >= first && code <= last; }

// Parts of Hangul syllables, the last three also as syllables that end with one.
enum class Hangul { none, lead, vowel, tail, ends_in_vowel, ends_in_tail };

Hangul hangul_of(uint32_t code) {
  if (in(code, 0xAC00, 0xD7A3)) return (code - 0xAC00) % 28 == 0 ? Hangul::ends_in_vowel : Hangul::ends_in_tail;
  if (in(code, 0x1100, 0x115F) || in(code, 0xA960, 0xA97C)) return Hangul::lead;
  if (in(code, 0x1160, 0x11A7) || in(code, 0xD7B0, 0xD7C6)) return Hangul::vowel;
  if (in(code, 0x11A8, 0x11FF) || in(code, 0xD7CB, 0xD7FB)) return Hangul::tail;
  return Hangul::none;
}

// Rules GB6 to GB8.
bool hangul_joins(uint32_t before, uint32_t after) {
  const Hangul left = hangul_of(before), right = hangul_of(after);
  switch (left) {
    case Hangul::lead: return right != Hangul::none && right != Hangul::tail;
    case Hangul::vowel:
    case Hangul::ends_in_vowel: return right == Hangul::vowel || right == Hangul::tail;
    case Hangul::tail:
    case Hangul::ends_in_tail: return right == Hangul::tail;
    case Hangul::none: return false;
  }
  return false;
}

bool is_flag_letter(uint32_t code) { return in(code, 0x1F1E6, 0x1F1FF); }

// What the cluster so far ends in.
class ClusterEnd {
 public:
  explicit ClusterEnd(uint32_t code) { add(code); }

  // Whether the code point belongs to the cluster.
  bool joins(uint32_t code) const {
    const uint8_t kind = grapheme_flags()[code];
    if (last_ == '\r' && code == '\n') return true;                      // GB3
    if (((last_kind_ | kind) & kGraphemeControl) != 0) return false;     // GB4, GB5
    if ((kind & kGraphemeExtends) != 0) return true;                     // GB9, GB9a
    if ((last_kind_ & kGraphemePrepended) != 0) return true;             // GB9b
    if (linked_ && (kind & kGraphemeConsonant) != 0) return true;        // GB9c
    if (joined_picture_ && (kind & kGraphemePicture) != 0) return true;  // GB11
    if (flag_letters_ % 2 == 1 && is_flag_letter(code)) return true;     // GB12, GB13
    return hangul_joins(last_, code);
  }

  void add(uint32_t code) {
    const uint8_t kind = grapheme_flags()[code];
    joined_picture_ = picture_ && code == kJoiner;
    picture_ = (kind & kGraphemePicture) != 0 || (picture_ && (kind & kGraphemePictureExtend) != 0);
    if ((kind & kGraphemeConsonant) != 0) {
      consonant_ = true;
      linked_ = false;
    } else if ((kind & kGraphemeLinker) != 0) {
      linked_ = consonant_;
    } else if ((kind & kGraphemeConsonantExtend) == 0) {
      consonant_ = linked_ = false;
    }
    flag_letters_ = is_flag_letter(code) ? flag_letters_ + 1 : 0;
    last_ = code;
    last_kind_ = kind;
  }

 private:
  uint32_t last_ = 0;
  uint8_t last_kind_ = 0;
  bool picture_ = false;         // a pictograph and what extends it
  bool joined_picture_ = false;  // and a joiner
  bool consonant_ = false;       // an Indic consonant and what extends it
  bool linked_ = false;          // and a linker among that
  size_t flag_letters_ = 0;
};

}  // namespace

size_t grapheme_end(std::string_view text, size_t begin) {
  const char* at = text.data() + begin;
  const char* const end = text.data() + text.size();
  ClusterEnd cluster(next_code(at));
  while (at < end) {
    const char* next = at;
    const uint32_t code = next_code(next);
    if (!cluster.joins(code)) break;
    cluster.add(code);
    at = next;
  }
  return static_cast<size_t>(at - text.data());
}

}  // namespace megatrain
