// Tensors that files hold beside those of a model: some contradict config.json, others are only not used.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "megatrain/hub/model_files.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

inline constexpr const char* kHeadName = "lm_head.weight";

// Refuses experts and layers that config.json does not count, by their names alone: without them it is another model.
// A layer counts as one of the model's kind when all its names are those of the model's layers, buffers of RoPE apart;
// others, such as those that predict further tokens (enorm, eh_proj, …), are not used. Throws Error(bad_input).
void refuse_uncounted(const ModelFiles& files, const std::vector<std::string>& unused,
                      const std::set<std::string>& used);

// Refuses a head that differs from the embedding of a model that ties them, by their values, and warns of tensors that
// are not used. Throws Error(bad_input).
void check_unused(const ModelFiles& files, const std::vector<std::string>& unused, const TensorSpec& embedding,
                  int threads);

}  // namespace megatrain
