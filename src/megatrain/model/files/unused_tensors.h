// Tensors in the files that the model does not have. Some contradict config.json; the others are only unused.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "megatrain/hub/model_files.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

inline constexpr const char* kHeadName = "lm_head.weight";

// Refuses experts and layers that exceed the counts in config.json, because dropping them would make a different model.
// Only names are compared. An extra layer is refused if all its names, apart from RoPE buffers, also occur in the
// model's layers. Other extra layers, such as multi-token prediction (enorm, eh_proj, …), are ignored. Throws
// Error(bad_input).
void refuse_uncounted(const ModelFiles& files, const std::vector<std::string>& unused,
                      const std::set<std::string>& used);

// In a model with tied embeddings, refuses a stored head whose values differ from the embedding. Warns about unused
// tensors. Throws Error(bad_input).
void check_unused(const ModelFiles& files, const std::vector<std::string>& unused, const TensorSpec& embedding,
                  int threads);

}  // namespace megatrain
