// What families with experts share: reading their fields, and the tensors of their layers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megatrain/model/config.h"
#include "megatrain/model/config_reader.h"
#include "megatrain/model/layer.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// Fields that read_experts() reads, for Family::fields.
std::vector<std::string> expert_fields(std::vector<std::string> more);

// What transformers takes where a field is absent.
struct AbsentExperts {
  int64_t count = 0;
  int64_t chosen = 0;
};

// Experts in all layers, how many there are and how many a token has, and the loss of balance. Throws Error(bad_input).
void read_experts(const ConfigReader& reader, const AbsentExperts& absent, ModelConfig& config);

// The names of a layer's tensors, behind "model.layers.N.".
struct ExpertNames {
  const char* router;
  const char* experts;
  const char* gate;
  const char* up;
  const char* down;
  bool fused = false;  // files hold EXPERTS.gate_up_proj and EXPERTS.down_proj of all experts, transposed, gate and up
                       // in turn, or both in MXFP4; and their biases alike
};

// As Family::tensors: attention, norms, router and sinks, then every expert.
std::vector<std::vector<TensorSpec>> expert_tensors(const ModelConfig& config, int64_t layer, const ExpertNames& names);

// As Family::phases: a block of attention and experts.
std::vector<std::unique_ptr<const Phase>> expert_phases(const ModelConfig& config, const ModelShape& shape,
                                                        int64_t layer, std::span<const LayerLayout> records);

}  // namespace megatrain
