// LoRA adapters: low-rank additions to the outputs of a layer's matmuls, trained while the weights themselves are
// frozen. The settings mean what PEFT's LoraConfig means by them.
//
//   y = W x + s B (A dropout(x))      A: (r, in)   B: (out, r)   s = alpha / r, or alpha / sqrt(r) with rslora
//
// DoRA also trains a magnitude m for every row, which starts as the norm of the row of W:
//
//   y = W x + (g - 1) W d + g s B (A d)     d = dropout(x)   m, g: (out)   g = m / |W + s B A| by rows
//
// The norm is a constant for the gradients.
//
// The adapters of a layer are a record of their own, the last one of the layer; Linear computes them. Those of experts
// are records before it, one for each record of experts; ExpertLinear computes them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/tensor/layout.h"

namespace megatrain {

enum class AdapterBias : uint8_t { none, all, of_adapted };

struct AdapterRules {
  static constexpr const char* kAllLinear = "all-linear";

  int64_t rank = 0;  // 0: no adapters
  double alpha = 8;
  double dropout = 0;
  bool rslora = false;
  bool dora = false;
  AdapterBias bias = AdapterBias::none;  // biases of the base that are trained, too
  AdapterInit init = AdapterInit::kaiming;
  // Names of modules, or the ends of their names. One entry with any of \^$*+?()[]{}| is a regular expression for whole
  // names. kAllLinear: every matmul of a layer but routers and experts.
  std::vector<std::string> targets = {kAllLinear};
  // Parameters of all experts of a layer, as transformers names them, by the ends of their names:
  // mlp.experts.gate_up_proj. Each expert has an adapter of its own.
  std::vector<std::string> target_parameters;
  std::vector<std::string> exclude;  // likewise
  // By module: its rank, and its alpha. A pattern is a regular expression for the end of a name. The first match
  // counts.
  std::vector<std::pair<std::string, double>> rank_pattern, alpha_pattern;
  std::vector<std::string> also_train;  // modules trained whole, without an adapter, by the ends of their names
  // By module, embed_tokens or lm_head: tokens whose rows of its table are trained (token_rows.h).
  std::vector<std::pair<std::string, std::vector<int64_t>>> token_indices;
  // The settings are those of a PEFT directory. Their lists may name what this model lacks, as PEFT accepts it.
  bool from_file = false;

  bool any() const { return rank > 0; }
  bool operator==(const AdapterRules&) const = default;
};

// "model.layers.0.self_attn.q_proj" for "model.layers.0.self_attn.q_proj.weight".
std::string module_of(const std::string& tensor);

// The adapters of a layer, from the tensors of its first record: for each of its matmuls the A halves, then the B
// halves, then the magnitudes. Empty if none of them is a target.
std::vector<TensorSpec> adapter_tensors(const AdapterRules& rules, const std::vector<TensorSpec>& record);

// The adapters of each expert of a layer, from the experts' tensors. Empty if none is a target. An expert has an
// adapter for each of its modules; or one for its share of a parameter, in which gate and up share the first half.
// Throws Error(bad_config) unless all experts have equal ones.
std::vector<std::vector<TensorSpec>> expert_adapter_tensors(const AdapterRules& rules,
                                                            std::span<const std::vector<TensorSpec>> experts);

// Which tensors of the base are trained whole (also_train).
class TrainedWhole {
 public:
  explicit TrainedWhole(const AdapterRules& rules) : ends_(rules.also_train) {}
  bool has(const TensorSpec& tensor) const;

 private:
  std::vector<std::string> ends_;
};

// The first halves of a record's adapters; empty if it has none.
std::vector<const TensorSpec*> first_halves(const LayerLayout& layout);

// The modules of the layouts that have adapters, without experts.
std::set<std::string> adapted_modules(const std::vector<const LayerLayout*>& layouts);

// Which tensors of the base are trained beside the adapters: those of also_train, and biases. PEFT trains parameters
// that it calls bias, so neither sinks nor the biases of experts.
class TrainedBeside {
 public:
  TrainedBeside(const AdapterRules& rules, const std::vector<const LayerLayout*>& layouts)
      : whole_(rules), bias_(rules.bias), adapted_(adapted_modules(layouts)) {}
  bool has(const TensorSpec& tensor) const { return whole_.has(tensor) || has_bias(tensor); }
  bool has_bias(const TensorSpec& tensor) const;

 private:
  TrainedWhole whole_;
  AdapterBias bias_;
  std::set<std::string> adapted_;
};

// The adapter of a weight: nullptr if it has none.
struct AdapterPair {
  const TensorSpec* a = nullptr;
  const TensorSpec* b = nullptr;
  const TensorSpec* magnitude = nullptr;  // only with DoRA
  int64_t first_row = 0;                  // the row of b that belongs to the weight's first row
};

// Finds the adapters of weights. The layouts must outlive it.
class AdapterIndex {
 public:
  void add(const LayerLayout& layout);
  AdapterPair of(const TensorSpec& weight) const;

 private:
  std::map<std::string, const TensorSpec*> tensors_;  // by name
};

bool adapts_experts(const LayerLayout& layout);

// The layout of a block's adapters among those of a layer's records, without those of experts; nullptr if it has none.
template <class Layouts>
const LayerLayout* adapters_among(const Layouts& layouts) {
  return !layouts.empty() && layouts.back().is_adapter() && !adapts_experts(layouts.back()) ? &layouts.back() : nullptr;
}

// Fills elements [begin, begin + count) of an adapter's tensor with initial values. Element i depends only on the seed,
// the tensor's name and i. Magnitudes are zero: they follow from the weights.
void init_adapter(const TensorSpec& tensor, uint64_t seed, int64_t begin, int64_t count, float* out);

}  // namespace megatrain
