// Unicode normalisation forms (UAX #15), of the Unicode version the `tokenizers` library normalises by.
#pragma once

#include <string_view>

#include "megatrain/unicode/aligned_text.h"

namespace megatrain {

enum class UnicodeForm { nfd, nfkd, nfc, nfkc };

// True when the text is known to be in the form; false says nothing.
bool is_surely_normal(UnicodeForm form, std::string_view text);

AlignedText to_unicode_form(UnicodeForm form, const AlignedText& text);

}  // namespace megatrain
