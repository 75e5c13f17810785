// Shared by families with experts: reading their fields, and the tensors of their layers.
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

// What transformers assumes if a field is absent.
struct AbsentExperts {
  int64_t count = 0;
  int64_t chosen = 0;
};

// Reads the number of experts, the choices per token and the load balancing loss. All layers have experts. Throws
// Error(bad_input).
void read_experts(const ConfigReader& reader, const AbsentExperts& absent, ModelConfig& config);

// The names of a layer's tensors, after "model.layers.N.".
struct ExpertNames {
  const char* router;
  const char* experts;
  const char* gate;
  const char* up;
  const char* down;
  // Files store all experts of a layer in EXPERTS.gate_up_proj and EXPERTS.down_proj, with gate and up rows
  // interleaved. The matrices are transposed, unless they are in MXFP4. The biases of all experts are also in one
  // tensor.
  bool fused = false;
};

// For Family::tensors: attention, norms, router and sinks, then every expert.
std::vector<std::vector<TensorSpec>> expert_tensors(const ModelConfig& config, int64_t layer, const ExpertNames& names);

// For Family::phases: a block of attention and experts.
std::vector<std::unique_ptr<const Phase>> expert_phases(const ModelConfig& config, const ModelShape& shape,
                                                        int64_t layer, std::span<const LayerLayout> records);

}  // namespace megatrain
