// Keys of another trainer in megatrain's words, with that trainer's defaults.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "megatrain/foreign/trainer.h"

namespace megatrain {

// What a key of theirs became, or several that belong together.
struct Translation {
  std::string from;       // the first of theirs
  std::string theirs;     // "key: value", of all of them
  std::string key;        // ours; empty: it asks for nothing
  std::string text;       // the value, as our key reads it
  std::string note;       // where it asks for nothing, why; else what is to be known of it, or nothing
  bool given = true;      // false: a default of theirs
  std::string stage{};    // TrainConfig::stage, which no key of ours says
  std::string warning{};  // the run is not theirs in this; a sentence that follows the place
  std::vector<std::map<std::string, std::string>> items{};  // of a list, instead of `text`
};

// Throws Error(bad_config) for a method that megatrain does not have, such as LoRA. With `theirs` the file is one of
// the trainer's: its defaults hold for what is not given, except where `own`, the keys of ours that are given, says the
// same thing. Values that would be ignored are sentences in `problems`, each with its place; `file` is that of what is
// not given.
std::vector<Translation> translate(const ForeignTrainer& trainer, const ForeignKeys& given, bool theirs,
                                   const std::set<std::string>& own, const std::string& file,
                                   std::vector<std::string>& problems);

// A row of the table that says what a file of theirs became.
struct TranslationRow {
  std::string theirs, here;
  std::string from;  // given, default, or the key of ours that was given instead
};
std::string translation_table(const std::vector<TranslationRow>& rows);

}  // namespace megatrain
