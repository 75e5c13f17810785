// Which tensors are frozen, by patterns over their Hugging Face names.
//
// A pattern matches a whole name: `*` any text, `?` one character, `[0-9]` one of a set, `[!0-9]` one outside it.
#pragma once

#include <string>
#include <vector>

#include "megatrain/tensor/layout.h"

namespace megatrain {

struct FreezeRules {
  std::vector<std::string> freeze;      // tensors that match any of these are frozen
  std::vector<std::string> train_only;  // if not empty, tensors that match none of these are frozen
  bool operator==(const FreezeRules&) const = default;
};

// Throws Error(bad_config) for a '[' that no ']' closes.
bool matches_pattern(const std::string& pattern, const std::string& name);

// The layouts with the frozen tensors marked. Throws Error(bad_config) if a pattern matches no tensor, naming the
// nearest ones, and if nothing is left to train. `tied`: the output matrix is the embedding's table.
std::vector<LayerLayout> freeze_tensors(std::vector<LayerLayout> layouts, const FreezeRules& rules, bool tied);

}  // namespace megatrain
