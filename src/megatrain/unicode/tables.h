// Properties of every code point as the `tokenizers` library sees them; tools/make_tokenizer_unicode.py writes the
// values. Sets are pairs (first, last), maps are entries (code point, length, replacement). chat/jinja/unicode.h has
// another table: tokens follow the library, templates follow Python, and their Unicode versions differ.
#pragma once

#include <cstdint>

namespace megatrain::tokenizer_unicode {

extern const uint32_t kCategoryRuns[];  // (first code point << 5 | category), in order
extern const int kCategoryRuns_size;

extern const uint32_t kOnigSpace[], kOnigWord[], kOnigDigit[];  // as regular expressions see them
extern const int kOnigSpace_size, kOnigWord_size, kOnigDigit_size;
extern const uint32_t kRustSpace[], kRustNumeric[], kRustWord[], kPunctuation[], kCombiningMark[];
extern const int kRustSpace_size, kRustNumeric_size, kRustWord_size, kPunctuation_size, kCombiningMark_size;

extern const uint32_t kScriptRanges[];  // (first, last, index of the script's name)
extern const int kScriptRanges_size;
extern const char* const kScriptNames[];
extern const int kScriptNames_size;

extern const uint32_t kCanonical[], kCompatible[], kLowercase[];  // full decompositions, without Hangul syllables
extern const int kCanonical_size, kCompatible_size, kLowercase_size;
extern const uint32_t kCombiningClass[];  // (code point << 8 | class), in order
extern const int kCombiningClass_size;
extern const uint32_t kCompositions[];  // (first, second, composed), sorted by the first two
extern const int kCompositions_size;

// What graphemes go by, as bits.
constexpr uint8_t kGraphemeControl = 1;
constexpr uint8_t kGraphemeExtends = 2;            // belongs to the grapheme before it
constexpr uint8_t kGraphemePrepended = 4;          // belongs to the grapheme after it
constexpr uint8_t kGraphemePicture = 8;            // Extended_Pictographic
constexpr uint8_t kGraphemePictureExtend = 16;     // may stand between a pictograph and its joiner
constexpr uint8_t kGraphemeConsonant = 32;         // Indic_Conjunct_Break is Consonant
constexpr uint8_t kGraphemeLinker = 64;            // … is Linker
constexpr uint8_t kGraphemeConsonantExtend = 128;  // … is Extend
extern const uint32_t kGraphemeRanges[];           // (first, last, bits)
extern const int kGraphemeRanges_size;

}  // namespace megatrain::tokenizer_unicode
