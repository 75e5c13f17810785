// The columns of a file of prompts: which ones `generate` reads, rejects and ignores.
#pragma once

#include <set>
#include <string>

#include "megatrain/dataset/json_rows.h"

namespace megatrain {

class PromptColumns {
 public:
  // Throws Error(bad_input) for a row with both "prompt" and "messages", and for a field that cannot be set per row,
  // such as "max_tokens". Remembers other columns.
  void check(const JsonRow& row);

  // Warns once, naming the ignored columns of the file, if there are any.
  void warn(const std::string& path) const;

 private:
  std::set<std::string> others_;
};

}  // namespace megatrain
