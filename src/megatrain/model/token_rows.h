// Single rows of a frozen table that are trained beside adapters, for tokens that were added or shall mean something
// else. As PEFT's trainable_token_indices: the trained rows are used in place of the table's and begin as these are.
//
// They are a record of their own, which belongs to the embedding and to the head. If the two share one table, they
// share the rows too, and both add to their gradient.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/layers/operand.h"
#include "megatrain/model/trained/adapter.h"

namespace megatrain {

inline constexpr const char* kEmbeddingModule = "model.embed_tokens";
inline constexpr const char* kHeadModule = "lm_head";

// The tensors of the record; empty if no rows are trained. Throws Error(bad_config), or Error(bad_input) if the rules
// are from a file, for a module that is neither, ids that are not those of tokens, and a table that is trained whole.
std::vector<TensorSpec> token_row_tensors(const AdapterRules& rules, const ModelConfig& config);

// "model.embed_tokens.weight": the table whose rows these are.
std::string table_of(const TensorSpec& token_rows);

// The trained rows of one table.
struct TokenRows {
  WeightOperand weight;      // (n, H) in their record
  std::vector<int32_t> ids;  // (n)

  bool any() const { return !ids.empty(); }
  int64_t count() const { return static_cast<int64_t>(ids.size()); }
};

// Those of the table of this module. `record`: that of token rows, or nullptr.
TokenRows find_token_rows(const LayerLayout* record, const std::string& module);

}  // namespace megatrain
