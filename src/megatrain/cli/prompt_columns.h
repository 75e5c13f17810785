// The columns of a file of prompts: what `generate` reads of a row, what it refuses and what it leaves out.
#pragma once

#include <set>
#include <string>

#include "megatrain/dataset/json_rows.h"

namespace megatrain {

class PromptColumns {
 public:
  // Throws Error(bad_input) for a row with both "prompt" and "messages", and for a field that asks for what a row
  // cannot change, such as "max_tokens". Remembers other columns.
  void check(const JsonRow& row);

  // One warning that names the other columns of the file, where there are any.
  void warn(const std::string& path) const;

 private:
  std::set<std::string> others_;
};

}  // namespace megatrain
