// Keys of LLaMA-Factory and of the Hugging Face trainer, in megatrain's words, with their defaults.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "megatrain/config/foreign_values.h"

namespace megatrain {

// What a key of theirs became, or several that belong together.
struct Translation {
  std::string from;    // the first of theirs
  std::string theirs;  // "key: value", of all of them
  std::string key;     // ours; empty: it asks for nothing
  std::string text;    // the value, as our key reads it
  std::string note;    // where it asks for nothing, why; else what is to be known of it, or nothing
  bool given = true;   // false: a default of theirs
};

// Throws Error(bad_config) for a method that megatrain does not have, such as LoRA, and for a value that would be
// ignored. With `theirs` the file is one of LLaMA-Factory: its defaults hold for what is not given, except where `own`,
// the keys of ours that are given, says the same thing.
std::vector<Translation> translate(const ForeignKeys& given, bool theirs, const std::set<std::string>& own);

// A row of the table that says what a file of theirs became.
struct TranslationRow {
  std::string theirs, here;
  std::string from;  // given, default, or the key of ours that was given instead
};
std::string translation_table(const std::vector<TranslationRow>& rows);

}  // namespace megatrain
