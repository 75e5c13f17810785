#include "megatrain/model/adapter.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/edit_distance.h"
#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"
#include "megatrain/model/block_operand.h"
#include "megatrain/model/module_pattern.h"

namespace megatrain {

namespace {

constexpr std::string_view kWeight = ".weight", kA = ".lora_A.weight", kB = ".lora_B.weight";

bool is_end_of(const std::string& end, const std::string& module) {
  return module == end || module.ends_with("." + end);
}

// Names of modules, or one regular expression.
class ModuleSet {
 public:
  ModuleSet(const std::vector<std::string>& texts, const char* key) {
    for (const std::string& text : texts) {
      if (!is_module_pattern(text)) {
        ends_.push_back(text);
        continue;
      }
      if (texts.size() > 1)
        fail_config(
            fmt::format("{}: '{}' is a regular expression, expected it alone or a list of module names", key, text));
      patterns_.emplace_back(text, key);
    }
  }

  bool has(const std::string& module) const {
    return std::ranges::any_of(ends_, [&](const std::string& end) { return is_end_of(end, module); }) ||
           std::ranges::any_of(patterns_, [&](const ModulePattern& pattern) { return pattern.matches(module); });
  }

 private:
  std::vector<std::string> ends_;
  std::vector<ModulePattern> patterns_;
};

// Whether a tensor of a layer is the weight of a matmul that computes adapters: not a router's, nor an expert's.
bool is_linear(const TensorSpec& tensor) {
  return tensor.role == TensorRole::matrix && tensor.name.ends_with(kWeight) && tensor.operand >= 0 &&
         tensor.operand < BlockOperand::first_free && tensor.operand != BlockOperand::router;
}

class Targets {
 public:
  explicit Targets(const AdapterRules& rules)
      : all_(rules.targets == std::vector<std::string>{AdapterRules::kAllLinear}),
        targets_(all_ ? std::vector<std::string>{} : rules.targets, "adapter.targets"),
        exclude_(rules.exclude, "adapter.exclude"),
        rules_(rules),
        ranks_(compiled(rules.rank_pattern, "adapter.rank_pattern")),
        alphas_(compiled(rules.alpha_pattern, "adapter.alpha_pattern")) {}

  bool has(const std::string& module) const { return (all_ || targets_.has(module)) && !exclude_.has(module); }
  int64_t rank(const std::string& module) const {
    return static_cast<int64_t>(found(ranks_, rules_.rank_pattern, module, static_cast<double>(rules_.rank)));
  }
  float scale(const std::string& module) const {
    const double r = static_cast<double>(rank(module));
    return static_cast<float>(found(alphas_, rules_.alpha_pattern, module, rules_.alpha) /
                              (rules_.rslora ? std::sqrt(r) : r));
  }

 private:
  using Patterns = std::vector<std::pair<std::string, double>>;
  // As PEFT: the pattern is for the end of a name, which starts at a dot or at the name's beginning.
  static std::vector<ModulePattern> compiled(const Patterns& patterns, const char* key) {
    std::vector<ModulePattern> list;
    for (const auto& [text, value] : patterns) list.emplace_back("(?:.*\\.)?(?:" + text + ")", key);
    return list;
  }
  static double found(const std::vector<ModulePattern>& patterns, const Patterns& values, const std::string& module,
                      double otherwise) {
    for (size_t i = 0; i < patterns.size(); ++i) {
      if (patterns[i].matches(module)) return values[i].second;
    }
    return otherwise;
  }

  bool all_;
  ModuleSet targets_, exclude_;
  const AdapterRules& rules_;
  std::vector<ModulePattern> ranks_, alphas_;
};

std::string nearest(const std::set<std::string>& names, const std::string& text) {
  std::vector<std::pair<int64_t, std::string>> near;
  for (const std::string& name : names) near.emplace_back(edit_distance(name, text), name);
  std::sort(near.begin(), near.end());
  std::vector<std::string> first;
  for (size_t i = 0; i < std::min<size_t>(near.size(), 7); ++i) first.push_back(near[i].second);
  return fmt::format("{}", fmt::join(first, ", "));
}

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

}  // namespace

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

std::vector<TensorSpec> adapter_tensors(const AdapterRules& rules, const std::vector<TensorSpec>& record) {
  if (!rules.any()) return {};
  const Targets targets(rules);
  const TrainedWhole whole(rules);  // has no adapter
  std::vector<TensorSpec> adapters, outs;
  for (size_t i = 0; i < record.size(); ++i) {
    const TensorSpec& tensor = record[i];
    const std::string module = module_of(tensor.name);
    if (is_linear(tensor) && targets.has(module) && !whole.has(tensor)) {
      const int64_t rank = targets.rank(module);
      const AdapterSpec spec{
          .scale = targets.scale(module), .dropout = static_cast<float>(rules.dropout), .init = rules.init};
      if (rank > std::min(tensor.rows, tensor.cols))
        fail_config(fmt::format("adapter: the rank of {} is {}, but its weight is {} x {}; expected at most {}", module,
                                rank, tensor.rows, tensor.cols, std::min(tensor.rows, tensor.cols)));
      adapters.push_back({.name = module + std::string(kA),
                          .rows = rank,
                          .cols = tensor.cols,
                          .role = TensorRole::adapter_in,
                          .operand = tensor.operand,
                          .adapter = spec});
      outs.push_back({.name = module + std::string(kB),
                      .rows = tensor.rows,
                      .cols = rank,
                      .role = TensorRole::adapter_out,
                      .adapter = spec});
    }
    if (i + 1 < record.size() && record[i + 1].operand == tensor.operand) continue;
    adapters.insert(adapters.end(), outs.begin(), outs.end());
    outs.clear();
  }
  return adapters;
}

void freeze_base(std::vector<LayerLayout>& layouts, const AdapterRules& rules, bool tied) {
  std::set<std::string> linear, modules;
  for (const LayerLayout& layout : layouts) {
    const bool of_layer =
        &layout != &layouts.front() && &layout != &layouts.back();  // not the embedding's or the head's
    for (const TensorSpec& tensor : layout.tensors) {
      if (tensor.is_adapter()) continue;
      const std::string module = module_of(tensor.name);
      modules.insert(module);
      if (of_layer && is_linear(tensor)) linear.insert(module);
    }
  }
  const auto names_of = [](const std::set<std::string>& from) {
    std::set<std::string> names;
    for (const std::string& module : from) names.insert(last_part(module));
    return names;
  };
  const auto check = [&](const char* key, const std::vector<std::string>& texts, const std::set<std::string>& among) {
    for (const std::string& text : texts) {
      if (text == AdapterRules::kAllLinear) continue;
      const ModuleSet one({text}, key);
      const auto matches = [&](const std::string& module) { return one.has(module); };
      if (std::ranges::any_of(among, matches)) continue;
      if (std::ranges::any_of(modules, matches))
        fail_config(
            fmt::format("{}: '{}' cannot have an adapter; modules that can are {}. adapter.also_train trains a module "
                        "whole",
                        key, text, nearest(names_of(linear), text)));
      fail_config(fmt::format("{}: '{}' matches no module of the model; near it are {}", key, text,
                              nearest(names_of(among), text)));
    }
  };
  check("adapter.targets", rules.targets, linear);
  check("adapter.exclude", rules.exclude, modules);
  for (const std::string& end : rules.also_train) {
    const TrainedWhole one({.also_train = {end}});
    bool any = false;
    for (const LayerLayout& layout : layouts) {
      for (const TensorSpec& tensor : layout.tensors) any = any || (!tensor.is_adapter() && one.has(tensor));
    }
    if (!any)
      fail_config(fmt::format("adapter.also_train: '{}' matches no module of the model; near it are {}", end,
                              nearest(names_of(modules), end)));
  }
  if (tied && TrainedWhole(rules).has(layouts.front().tensors.front()))
    fail_config(
        "adapter.also_train names the embedding, whose table is the output matrix too (tie_word_embeddings); PEFT "
        "would "
        "train two copies of it, which is not supported. Leave it out, or save the model with the two untied");
  for (const auto& [key, patterns] :
       {std::pair{"adapter.rank_pattern", &rules.rank_pattern}, {"adapter.alpha_pattern", &rules.alpha_pattern}}) {
    for (const auto& [text, value] : *patterns) {
      const ModulePattern pattern("(?:.*\\.)?(?:" + text + ")", key);
      if (std::ranges::none_of(linear, [&](const std::string& module) { return pattern.matches(module); }))
        fail_config(fmt::format("{}: '{}' matches no module of the model; near it are {}", key, text,
                                nearest(names_of(linear), text)));
    }
  }
  const TrainedWhole whole(rules);
  bool adapted = false;
  for (LayerLayout& layout : layouts) {
    adapted = adapted || layout.is_adapter();
    for (TensorSpec& tensor : layout.tensors) tensor.trainable = tensor.is_adapter() || whole.has(tensor);
  }
  if (!adapted)
    fail_config("adapter.targets and adapter.exclude leave no module with an adapter; take one out of exclude");
}

// PEFT compares the bare ends of names: "norm" is also the end of "input_layernorm". A module includes what is inside
// it.
bool TrainedWhole::has(const TensorSpec& tensor) const {
  std::string module = module_of(tensor.name);
  while (true) {
    if (std::ranges::any_of(ends_, [&](const std::string& end) { return module.ends_with(end); })) return true;
    const size_t dot = module.rfind('.');
    if (dot == std::string::npos) return false;
    module.resize(dot);
  }
}

AdapterPair find_adapter(const LayerLayout& adapters, const std::string& tensor) {
  const std::string module = module_of(tensor);
  AdapterPair pair;
  for (const TensorSpec& each : adapters.tensors) {
    if (each.name == module + std::string(kA)) pair.a = &each;
    if (each.name == module + std::string(kB)) pair.b = &each;
  }
  ensure(!pair.a == !pair.b, "an adapter has two halves");
  return pair;
}

void init_adapter(const TensorSpec& tensor, uint64_t seed, int64_t begin, int64_t count, float* out) {
  if (tensor.role == TensorRole::adapter_out) {
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
