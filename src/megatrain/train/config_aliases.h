// Keys of LLaMA-Factory and of the Hugging Face trainer, in megatrain's words.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace megatrain {

bool is_foreign_key(const std::string& name);

// What one foreign key, or two that belong together, became.
struct Translation {
  std::string from;  // the foreign key
  std::string key;   // ours; empty: the key asks for nothing
  std::string text;  // the value, as our key reads it
  std::string why;   // where it asks for nothing: the reason
};

struct Foreign {
  std::string text;
  std::string where;  // "FILE:LINE" or "--key"
};

// Throws Error(bad_config) for what megatrain does not do, such as LoRA.
std::vector<Translation> translate(const std::map<std::string, Foreign>& given);

}  // namespace megatrain
