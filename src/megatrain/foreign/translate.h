// Translates another trainer's keys into megatrain's, including that trainer's defaults.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "megatrain/foreign/trainer.h"

namespace megatrain {

// The translation of one of their keys, or of several that belong together.
struct Translation {
  std::string from;     // their first key
  std::string theirs;   // "key: value" for each of them
  std::string key;      // ours; empty: no effect
  std::string text;     // the value in the form that our key reads
  std::string note;     // why it has no effect, or a remark; may be empty
  bool given = true;    // false: one of their defaults
  std::string stage{};  // TrainConfig::stage, which no key of ours sets
  // The run differs from theirs in this respect: a sentence that follows the location.
  std::string warning{};
  std::vector<std::map<std::string, std::string>> items{};  // for a list, instead of `text`
};

// Throws Error(bad_config) for a method that megatrain does not have, such as DPO. With `theirs` the file is in the
// trainer's format, so its defaults apply, except where a given key of ours (`own`) sets the same thing. Values that
// would be ignored become sentences in `problems`, each with its location. `file` is the location of keys that are not
// given.
std::vector<Translation> translate(const ForeignTrainer& trainer, const ForeignKeys& given, bool theirs,
                                   const std::set<std::string>& own, const std::string& file,
                                   std::vector<std::string>& problems);

// A row of the table that shows how a file was translated.
struct TranslationRow {
  std::string theirs, here;
  std::string from;  // "given", "default", or the location of our own key that takes precedence
};
std::string translation_table(const std::vector<TranslationRow>& rows);

}  // namespace megatrain
