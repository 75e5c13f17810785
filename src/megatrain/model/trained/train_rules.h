// What of a model is trained: adapters, or its tensors by patterns over their Hugging Face names.
//
// A pattern matches a whole name: `*` any text, `?` one character, `[0-9]` one of a set, `[!0-9]` one outside it. One
// that begins with `^` is a regular expression for a whole name.
#pragma once

#include <string>
#include <vector>

#include "megatrain/model/trained/adapter.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

struct TrainRules {
  std::vector<std::string> freeze;      // tensors that match any of these are frozen
  std::vector<std::string> train_only;  // if not empty, tensors that match none of these are frozen
  AdapterRules adapter;                 // if it has any, they alone decide, and the other lists are empty
  bool operator==(const TrainRules&) const = default;
};

// Throws Error(bad_config) for a '[' that no ']' closes, and for what is no regular expression behind a '^'.
bool matches_pattern(const std::string& pattern, const std::string& name);

// The layouts with the frozen tensors marked. Throws Error(bad_config) if a pattern matches no tensor, naming the
// nearest ones, and if nothing is left to train. Layers have the records of their adapters already. `tied`: the output
// matrix is the embedding's table.
std::vector<LayerLayout> freeze_tensors(std::vector<LayerLayout> layouts, const TrainRules& rules, bool tied);

}  // namespace megatrain
