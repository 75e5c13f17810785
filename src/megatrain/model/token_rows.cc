#include "megatrain/model/token_rows.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/model/trained/adapter_targets.h"

namespace megatrain {

namespace {

constexpr std::string_view kRows = ".token_adapter.trainable_tokens_delta";

[[noreturn]] void refuse(const AdapterRules& rules, const std::string& what) {
  if (rules.from_file) fail_input("adapter_config.json of the adapter: 'trainable_token_indices' " + what);
  fail_config("adapter.trainable_token_indices " + what);
}

// "model.embed_tokens" for "embed_tokens".
const char* module_named(const AdapterRules& rules, const std::string& name) {
  for (const char* module : {kEmbeddingModule, kHeadModule}) {
    if (is_end_of(name, module)) return module;
  }
  refuse(rules, fmt::format("names '{}', expected embed_tokens or lm_head", name));
}

TensorSpec rows_of(const AdapterRules& rules, const ModelConfig& config, const std::string& module,
                   const std::vector<int64_t>& ids) {
  std::set<int64_t> seen;
  for (const int64_t id : ids) {
    if (id < 0 || id >= config.vocab)
      refuse(rules, fmt::format("has {}, expected ids from 0 to {}: the model's vocab_size is {}", id, config.vocab - 1,
                                config.vocab));
    if (!seen.insert(id).second) refuse(rules, fmt::format("has {} twice; keep one", id));
  }
  if (ids.empty()) refuse(rules, fmt::format("has no id for {}; leave the module out", module));
  return {.name = module + std::string(kRows),
          .rows = std::ssize(ids),
          .cols = config.hidden,
          .role = TensorRole::token_rows,
          .ids = std::vector<int32_t>(ids.begin(), ids.end())};
}

}  // namespace

std::vector<TensorSpec> token_row_tensors(const AdapterRules& rules, const ModelConfig& config) {
  if (!rules.any()) return {};
  const std::vector<int64_t>*embedding = nullptr, *head = nullptr;
  if (!rules.token_indices.empty() && config.embedding_module != kEmbeddingModule)
    refuse(rules, fmt::format("trains single rows of tables, which is not supported for {}", config.architecture));
  for (const auto& [name, ids] : rules.token_indices) {
    const std::string module = module_named(rules, name);
    const std::vector<int64_t>*& of_module = module == kHeadModule ? head : embedding;
    if (of_module) refuse(rules, fmt::format("names {} twice; keep one", module));
    of_module = &ids;
    if (TrainedWhole(rules).has({.name = module + ".weight"}))
      refuse(rules, fmt::format("names {}, which adapter.also_train trains whole; leave one of the two out", module));
  }
  if (config.tied && head) {
    if (!embedding || *embedding != *head)
      refuse(rules,
             "has other ids for lm_head than for embed_tokens, and the two are one table (tie_word_embeddings); give a "
             "list of ids, which holds for both");
    head = nullptr;
  }
  std::vector<TensorSpec> tensors;
  if (embedding) tensors.push_back(rows_of(rules, config, kEmbeddingModule, *embedding));
  if (head) tensors.push_back(rows_of(rules, config, kHeadModule, *head));
  return tensors;
}

std::string table_of(const TensorSpec& token_rows) {
  return token_rows.name.substr(0, token_rows.name.size() - kRows.size()) + ".weight";
}

TokenRows find_token_rows(const LayerLayout* record, const std::string& module) {
  for (size_t i = 0; record && i < record->tensors.size(); ++i) {
    const TensorSpec& tensor = record->tensors[i];
    if (table_of(tensor) == module + ".weight") return {.weight = operand_of(tensor), .ids = tensor.ids};
  }
  return {};
}

}  // namespace megatrain
