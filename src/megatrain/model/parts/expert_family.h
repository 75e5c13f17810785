// Shared by families with experts: reading their fields, and the tensors of their layers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/model/layers/layer.h"
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

// The experts of GLM 4.5 and DeepSeek V3: a sigmoid router with a bias of its choice, and shared experts, which are one
// MLP. Their fields, their readers and the tensors of their layers.
struct AbsentSigmoidExperts {
  int64_t count, chosen, ff, groups, kept_groups;
  double weight_scale;
};
std::vector<std::string> sigmoid_expert_fields(std::vector<std::string> more);
void read_sigmoid_experts(const ConfigReader& reader, const AbsentSigmoidExperts& absent, ModelConfig& config);
// Whether each layer has experts, by first_k_dense_replace.
std::vector<bool> read_dense_first(const ConfigReader& reader, int64_t layers, int64_t absent);
std::vector<std::vector<TensorSpec>> sigmoid_expert_tensors(const ModelConfig& config, int64_t layer);

// Whether each layer has experts, by decoder_sparse_step and mlp_only_layers.
std::vector<bool> read_sparse_layers(const ConfigReader& reader, int64_t layers);

// The names of a layer's tensors, after "model.layers.N.".
struct ExpertNames {
  const char* router;
  const char* experts;
  const char* gate = "";  // empty: they have none
  const char* up;
  const char* down;
  // Files store all experts of a layer in EXPERTS.gate_up_proj and EXPERTS.down_proj, with gate and up rows
  // interleaved. The matrices are transposed, unless they are in MXFP4. The biases of all experts are also in one
  // tensor.
  bool fused = false;
  // Files store all experts of a layer in EXPERTS.gate_up_proj and EXPERTS.down_proj, with gate rows before up rows.
  bool stacked = false;
  // Files store experts one by one, or stacked.
  bool or_stacked = false;
  // Files store all experts of a layer in two tensors of these names, with gate rows before up rows.
  const char* stored_gate_up = "";
  const char* stored_down = "";
  const char* parameter = "mlp.experts";  // the module in which transformers has all experts
  const char* shared = "";                // of the shared expert, whose parts have the names of an expert's
  const char* shared_gate = "";
  // Set if its gate and up are one matrix: the names of that and of the matrix behind.
  const char* shared_gate_up = "";
  const char* shared_down = "";
  const char* choice_bias = "";  // empty: ROUTER.e_score_correction_bias
};

// For Family::tensors: attention, norms, router, sinks and the shared expert, then every expert.
std::vector<std::vector<TensorSpec>> expert_tensors(const ModelConfig& config, int64_t layer, const ExpertNames& names);

// For Family::phases: a block of attention and experts; layer_phases() makes a dense block in layers without experts.
std::vector<std::unique_ptr<const Phase>> expert_phases(const ModelConfig& config, const ModelShape& shape,
                                                        int64_t layer, std::span<const LayerLayout> records);
std::vector<std::unique_ptr<const Phase>> layer_phases(const ModelConfig& config, const ModelShape& shape,
                                                       int64_t layer, std::span<const LayerLayout> records);

// For LlamaCpp::unlike, if llama.cpp has experts in every layer.
std::string unlike_all_experts(const ModelConfig& config);

}  // namespace megatrain
