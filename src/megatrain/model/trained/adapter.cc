#include "megatrain/model/trained/adapter.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"
#include "megatrain/hub/text_names.h"
#include "megatrain/model/trained/adapter_targets.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

constexpr std::string_view kWeight = ".weight", kA = ".lora_A.weight", kB = ".lora_B.weight",
                           kMagnitude = ".lora_magnitude_vector";

// "model.layers.0.mlp.experts.3.gate_up_proj" for the weights of expert 3 in "model.layers.0.mlp.experts.gate_up_proj".
std::string fused_module(const TensorSpec& weight) {
  return module_of(module_of(weight.name)) + "." + last_part(weight.parameter.name);
}

}  // namespace

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

namespace {

AdapterSpec spec_of(const AdapterRules& rules, const AdapterTargets& targets, const std::string& module) {
  return {.scale = targets.scale(module), .dropout = static_cast<float>(rules.dropout), .init = rules.init};
}

int64_t rank_of(const AdapterRules& rules, const AdapterTargets& targets, const std::string& module, int64_t rows,
                int64_t cols) {
  const int64_t rank = targets.rank(module);
  // a gate's weight has few rows, and PEFT gives it the rank of the others
  if (!rules.from_file && rank > std::max(rows, cols))
    fail_config(fmt::format("adapter: the rank of {} is {}, but its weight is {} x {}; expected at most {}", module,
                            rank, rows, cols, std::max(rows, cols)));
  return rank;
}

// Where PEFT has the halves of a parameter's adapter: it wraps gate_up_proj, or up_proj, first, and down_proj around
// it.
std::string wrapped(const TensorSpec& weight, bool other_too) {
  const bool inner = other_too && weight.parameter.name.ends_with("up_proj");
  return module_of(weight.parameter.name) + (inner ? ".base_layer" : "");
}

// The adapter of expert `index` of `count` in a parameter, of which `weight` is the first tensor.
void add_fused_adapter(const AdapterRules& rules, const AdapterTargets& targets, const TensorSpec& weight,
                       bool other_too, int64_t index, int64_t count, std::vector<TensorSpec>& to) {
  const ExpertParameter& parameter = weight.parameter;
  const int64_t rank = rank_of(rules, targets, parameter.name, parameter.rows, weight.cols);
  const AdapterSpec spec = spec_of(rules, targets, parameter.name);
  const std::string module = fused_module(weight), file = wrapped(weight, other_too);
  to.push_back({.name = module + std::string(kA),
                .rows = rank,
                .cols = weight.cols,
                .role = TensorRole::adapter_in,
                .operand = weight.operand,
                .stored = {.name = file + std::string(kA),
                           .slices = count,
                           .index = index,
                           .rows = rank,
                           .transposed = weight.stored.transposed},
                .adapter = spec});
  to.push_back({.name = module + std::string(kB),
                .rows = parameter.rows,
                .cols = rank,
                .role = TensorRole::adapter_out,
                .stored = {.name = file + std::string(kB),
                           .slices = count,
                           .index = index,
                           .rows = parameter.rows,
                           .row_step = parameter.row_step,
                           .transposed = weight.stored.transposed},
                .adapter = spec});
}

// The adapters of an expert's modules that are parts of one operand, or of a block's.
void add_module_adapters(const AdapterRules& rules, const AdapterTargets& targets, std::span<const TensorSpec> weights,
                         std::vector<TensorSpec>& to) {
  std::vector<TensorSpec> outs, magnitudes;
  for (const TensorSpec& weight : weights) {
    const std::string module = module_of(weight.name);
    const int64_t rank = rank_of(rules, targets, module, weight.rows, weight.cols);
    const AdapterSpec spec = spec_of(rules, targets, module);
    to.push_back({.name = module + std::string(kA),
                  .rows = rank,
                  .cols = weight.cols,
                  .role = TensorRole::adapter_in,
                  .operand = weight.operand,
                  .adapter = spec});
    outs.push_back({.name = module + std::string(kB),
                    .rows = weight.rows,
                    .cols = rank,
                    .role = TensorRole::adapter_out,
                    .adapter = spec});
    if (!rules.dora) continue;
    magnitudes.push_back({.name = module + std::string(kMagnitude),
                          .rows = 1,
                          .cols = weight.rows,
                          .role = TensorRole::adapter_magnitude,
                          .adapter = spec});
  }
  to.insert(to.end(), outs.begin(), outs.end());
  to.insert(to.end(), magnitudes.begin(), magnitudes.end());
}

// The matrices of an operand that have adapters of their own, as modules.
template <class Has>
std::vector<std::vector<TensorSpec>> by_operand(const std::vector<TensorSpec>& record, const Has& has) {
  std::vector<std::vector<TensorSpec>> operands;
  for (size_t i = 0; i < record.size(); ++i) {
    if (i == 0 || record[i].operand < 0 || record[i].operand != record[i - 1].operand) operands.emplace_back();
    if (has(record[i])) operands.back().push_back(record[i]);
  }
  return operands;
}

bool are_alike(const std::vector<TensorSpec>& a, const std::vector<TensorSpec>& b) {
  return std::ranges::equal(a, b, [](const TensorSpec& one, const TensorSpec& other) {
    return one.rows == other.rows && one.cols == other.cols && one.role == other.role && one.operand == other.operand &&
           one.adapter.scale == other.adapter.scale;
  });
}

}  // namespace

std::vector<TensorSpec> adapter_tensors(const AdapterRules& rules, const std::vector<TensorSpec>& record) {
  if (!rules.any()) return {};
  const AdapterTargets targets = blaming_their_file(rules, [&] { return AdapterTargets(rules); });
  const TrainedWhole whole(rules);  // has no adapter
  const auto has = [&](const TensorSpec& tensor) {
    return is_linear_weight(tensor) && targets.has(module_of(tensor.name)) && !whole.has(tensor);
  };
  std::vector<TensorSpec> adapters;
  for (const std::vector<TensorSpec>& weights : by_operand(record, has))
    add_module_adapters(rules, targets, weights, adapters);
  return adapters;
}

std::vector<std::vector<TensorSpec>> expert_adapter_tensors(const AdapterRules& rules,
                                                            std::span<const std::vector<TensorSpec>> experts) {
  if (!rules.any()) return {};
  const AdapterTargets targets(rules);
  const auto in_parameter = [&](const TensorSpec& tensor) { return targets.has_parameter(tensor.parameter.name); };
  const auto has_module = [&](const TensorSpec& tensor) {
    return is_expert_module(tensor) && targets.has_expert(module_of(tensor.name));
  };
  const bool both = std::ranges::all_of(
      experts.front(), [&](const TensorSpec& tensor) { return tensor.parameter.name.empty() || in_parameter(tensor); });
  std::vector<std::vector<TensorSpec>> adapters;
  for (const std::vector<TensorSpec>& expert : experts) {
    std::vector<TensorSpec> own;
    const int64_t index = std::ssize(adapters), count = std::ssize(experts);
    for (const TensorSpec& tensor : expert) {
      const bool first = !tensor.parameter.name.empty() && tensor.parameter.first_row == 0;
      if (first && in_parameter(tensor)) add_fused_adapter(rules, targets, tensor, both, index, count, own);
    }
    for (const std::vector<TensorSpec>& weights : by_operand(expert, has_module))
      add_module_adapters(rules, targets, weights, own);
    adapters.push_back(std::move(own));
    if (!are_alike(adapters.front(), adapters.back()))
      fail_config(
          fmt::format("adapter: expert {} of {} would have other adapters than expert 0. All experts of a layer have "
                      "equal ones: name {}, without numbers of experts",
                      index, module_of(module_of(expert.front().name)), last_part(module_of(expert.front().name))));
  }
  if (adapters.front().empty()) return {};
  if (rules.dora)
    fail_config(
        "adapter.dora: adapters of experts have no magnitudes, as in PEFT; set it to false, or leave experts out of "
        "adapter.targets and adapter.target_parameters");
  if (rules.dropout > 0)
    fail_config(
        "adapter.dropout: adapters of experts have no dropout, as in PEFT; set it to 0, or leave experts out of "
        "adapter.targets and adapter.target_parameters");
  return adapters;
}

bool TrainedWhole::has(const TensorSpec& tensor) const {
  std::string module = module_of(tensor.name);
  while (true) {
    const std::string in_whole = kModuleNames.in_files(module);
    if (std::ranges::any_of(ends_,
                            [&](const std::string& end) { return module.ends_with(end) || in_whole.ends_with(end); }))
      return true;
    const size_t dot = module.rfind('.');
    if (dot == std::string::npos) return false;
    module.resize(dot);
  }
}

std::vector<const TensorSpec*> first_halves(const LayerLayout& layout) {
  std::vector<const TensorSpec*> halves;
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.role == TensorRole::adapter_in) halves.push_back(&tensor);
  }
  return halves;
}

std::set<std::string> adapted_modules(const std::vector<const LayerLayout*>& layouts) {
  std::set<std::string> modules;
  for (const LayerLayout* layout : layouts) {
    if (adapts_experts(*layout)) continue;
    for (const TensorSpec* half : first_halves(*layout)) modules.insert(module_of(module_of(half->name)));
  }
  return modules;
}

bool TrainedBeside::has_bias(const TensorSpec& tensor) const {
  if (bias_ == AdapterBias::none || tensor.role != TensorRole::bias || is_of_expert(tensor)) return false;
  if (!tensor.name.ends_with(".bias")) return false;
  return bias_ == AdapterBias::all || adapted_.contains(module_of(tensor.name));
}

void AdapterIndex::add(const LayerLayout& layout) {
  for (const TensorSpec& tensor : layout.tensors) {
    if (tensor.is_adapter() && tensor.role != TensorRole::token_rows) tensors_[tensor.name] = &tensor;
  }
}

AdapterPair AdapterIndex::of(const TensorSpec& weight) const {
  const auto named = [&](const std::string& name) {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : found->second;
  };
  const auto find = [&](const std::string& module) {
    const AdapterPair pair{.a = named(module + std::string(kA)),
                           .b = named(module + std::string(kB)),
                           .magnitude = named(module + std::string(kMagnitude))};
    ensure((pair.a == nullptr) == (pair.b == nullptr), "an adapter has two halves");
    return pair;
  };
  if (!weight.name.ends_with(kWeight)) return {};
  AdapterPair pair = find(module_of(weight.name));
  if (pair.a || weight.parameter.name.empty()) return pair;
  pair = find(fused_module(weight));
  pair.first_row = weight.parameter.first_row;
  return pair;
}

bool adapts_experts(const LayerLayout& layout) {
  return layout.is_adapter() && BlockOperand::is_of_expert(layout.tensors.front().operand);
}

void init_adapter(const TensorSpec& tensor, uint64_t seed, int64_t begin, int64_t count, float* out) {
  if (tensor.role != TensorRole::adapter_in) {
    std::fill(out, out + count, 0.0f);
    return;
  }
  const uint64_t purpose = tensor.name_hash();
  const double bound = 1 / std::sqrt(static_cast<double>(tensor.cols));
  const float deviation = 1 / static_cast<float>(tensor.rows);
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t element = static_cast<uint64_t>(begin + i);
    out[i] = tensor.adapter.init == AdapterInit::gaussian
                 ? deviation * random_normal_pair(seed, purpose, element / 2)[element % 2]
                 : static_cast<float>(bound * (2 * random_uniform(seed, purpose, element) - 1));
  }
}

}  // namespace megatrain
