// Unicode normalisation forms (UAX #15), in the Unicode version that the `tokenizers` library uses.
#pragma once

#include <string_view>

#include "megatrain/unicode/aligned_text.h"

namespace megatrain {

enum class UnicodeForm { nfd, nfkd, nfc, nfkc };

// True if the text is known to be in the form. False means unknown.
bool is_surely_normal(UnicodeForm form, std::string_view text);

AlignedText to_unicode_form(UnicodeForm form, const AlignedText& text);

}  // namespace megatrain
