// LoRA adapters: low-rank additions to the outputs of a layer's matmuls, trained while the weights themselves are
// frozen. The settings mean what PEFT's LoraConfig means by them.
//
//   y = W x + s B (A dropout(x))      A: (r, in)   B: (out, r)   s = alpha / r, or alpha / sqrt(r) with rslora
//
// The adapters of a layer are a record of their own, the last one of the layer. Linear computes them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/tensor/layout.h"

namespace megatrain {

struct AdapterRules {
  static constexpr const char* kAllLinear = "all-linear";

  int64_t rank = 0;  // 0: no adapters
  double alpha = 8;
  double dropout = 0;
  bool rslora = false;
  AdapterInit init = AdapterInit::kaiming;
  // Names of modules, or the ends of their names. One entry with any of \^$*+?()[]{}| is a regular expression for whole
  // names. kAllLinear: every matmul of a layer but routers and experts.
  std::vector<std::string> targets = {kAllLinear};
  std::vector<std::string> exclude;  // likewise
  // By module: its rank, and its alpha. A pattern is a regular expression for the end of a name. The first match
  // counts.
  std::vector<std::pair<std::string, double>> rank_pattern, alpha_pattern;
  std::vector<std::string> also_train;  // modules trained whole, without an adapter, by the ends of their names
  // The settings are those of a PEFT directory. Their lists may name what this model lacks, as PEFT accepts it.
  bool from_file = false;

  bool any() const { return rank > 0; }
  bool operator==(const AdapterRules&) const = default;
};

// "model.layers.0.self_attn.q_proj" for "model.layers.0.self_attn.q_proj.weight".
std::string module_of(const std::string& tensor);

// The adapters of a layer, from the tensors of its first record: for each of its matmuls the A halves, then the B
// halves. Empty if none of them is a target.
std::vector<TensorSpec> adapter_tensors(const AdapterRules& rules, const std::vector<TensorSpec>& record);

// Marks what is trained beside the adapters, and freezes the rest. Throws Error(bad_config) for a target, an exclusion,
// a pattern or a module that matches nothing, and for a target that cannot have an adapter; Error(bad_input) if the
// rules are from a file. `tied`: the output matrix
// is the embedding's table, which then cannot be trained.
void freeze_base(std::vector<LayerLayout>& layouts, const AdapterRules& rules, bool tied);

// Which tensors of the base are trained whole (also_train).
class TrainedWhole {
 public:
  explicit TrainedWhole(const AdapterRules& rules) : ends_(rules.also_train) {}
  bool has(const TensorSpec& tensor) const;

 private:
  std::vector<std::string> ends_;
};

// The adapter of a tensor: nullptr if it has none.
struct AdapterPair {
  const TensorSpec* a = nullptr;
  const TensorSpec* b = nullptr;
};
AdapterPair find_adapter(const LayerLayout& adapters, const std::string& tensor);

// The layout of a layer's adapters among those of its records; nullptr if it has none.
template <class Layouts>
const LayerLayout* adapters_among(const Layouts& layouts) {
  return !layouts.empty() && layouts.back().is_adapter() ? &layouts.back() : nullptr;
}

// Fills elements [begin, begin + count) of an adapter's tensor with initial values. Element i depends only on the seed,
// the tensor's name and i.
void init_adapter(const TensorSpec& tensor, uint64_t seed, int64_t begin, int64_t count, float* out);

}  // namespace megatrain
