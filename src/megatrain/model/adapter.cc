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

// As PEFT: the pattern is for the end of a name, which starts at a dot or at the name's beginning.
ModulePattern end_pattern(const std::string& text, const char* key) {
  const ModulePattern as_given(text, key);  // a message about the text as it was given
  return ModulePattern("(?:.*\\.)?(?:" + text + ")", key);
}

// Whether a tensor is one expert's, or a part of a tensor that holds all experts of a layer.
bool is_expert(const TensorSpec& tensor) {
  return tensor.operand >= BlockOperand::first_free || !tensor.stored.name.empty();
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
  static std::vector<ModulePattern> compiled(const Patterns& patterns, const char* key) {
    std::vector<ModulePattern> list;
    for (const auto& [text, value] : patterns) list.push_back(end_pattern(text, key));
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

namespace {

// What is wrong with the settings of a PEFT directory is wrong with its file, not with the configuration.
template <class Action>
auto blaming_their_file(const AdapterRules& rules, const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    if (!rules.from_file || error.code() != ExitCode::bad_config) throw;
    fail_input(fmt::format("adapter_config.json of the adapter: {}", error.what()));
  }
}

}  // namespace

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

std::vector<TensorSpec> adapter_tensors(const AdapterRules& rules, const std::vector<TensorSpec>& record) {
  if (!rules.any()) return {};
  const Targets targets = blaming_their_file(rules, [&] { return Targets(rules); });
  const TrainedWhole whole(rules);  // has no adapter
  std::vector<TensorSpec> adapters, outs;
  for (size_t i = 0; i < record.size(); ++i) {
    const TensorSpec& tensor = record[i];
    const std::string module = module_of(tensor.name);
    if (is_linear(tensor) && targets.has(module) && !whole.has(tensor)) {
      const int64_t rank = targets.rank(module);
      const AdapterSpec spec{
          .scale = targets.scale(module), .dropout = static_cast<float>(rules.dropout), .init = rules.init};
      if (!rules.from_file && rank > std::min(tensor.rows, tensor.cols))
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

namespace {

// What the settings may name.
struct Names {
  std::set<std::string> linear;   // modules that can have an adapter
  std::set<std::string> others;   // modules that cannot, without those of experts, and what modules are parts of
  std::set<std::string> modules;  // both

  explicit Names(const std::vector<LayerLayout>& layouts) {
    for (const LayerLayout& layout : layouts) {
      const bool of_layer = &layout != &layouts.front() && &layout != &layouts.back();
      for (const TensorSpec& tensor : layout.tensors) {
        if (tensor.is_adapter()) continue;
        std::string module = module_of(tensor.name);
        modules.insert(module);
        if (of_layer && is_linear(tensor)) {
          linear.insert(module);
        } else if (!is_expert(tensor)) {
          others.insert(module);
        }
        for (size_t dot = module.rfind('.'); dot != std::string::npos; dot = module.rfind('.')) {
          module.resize(dot);
          if (!is_expert(tensor)) others.insert(module);
        }
      }
    }
  }
};

std::string last_parts(const std::set<std::string>& modules, const std::string& near) {
  std::set<std::string> names;
  for (const std::string& module : modules) names.insert(last_part(module));
  return nearest(names, near);
}

void check_targets(const AdapterRules& rules, const Names& names) {
  if (rules.targets.size() > 1 && std::ranges::count(rules.targets, AdapterRules::kAllLinear) > 0)
    fail_config("adapter.targets: all-linear includes every other module; give it alone, or a list of names");
  for (const std::string& text : rules.targets) {
    if (text == AdapterRules::kAllLinear) continue;
    const ModuleSet one({text}, "adapter.targets");
    const auto matches = [&](const std::string& module) { return one.has(module); };
    if (std::ranges::none_of(names.linear, matches) && std::ranges::none_of(names.modules, matches))
      fail_config(fmt::format("adapter.targets: '{}' matches no module of the model; near it are {}", text,
                              last_parts(names.linear, text)));
    const ModuleSet exclude(rules.exclude, "adapter.exclude");
    const auto wrong = std::ranges::find_if(
        names.others, [&](const std::string& module) { return one.has(module) && !exclude.has(module); });
    if (wrong != names.others.end())
      fail_config(
          fmt::format("adapter.targets: '{}' matches {}, which cannot have an adapter; modules that can are {}. "
                      "adapter.also_train trains a module whole",
                      text, *wrong, last_parts(names.linear, text)));
  }
}

// What excludes nothing, and patterns for modules without an adapter, would be ignored.
void check_exclusions(const AdapterRules& rules, const Names& names) {
  AdapterRules everything = rules;
  everything.exclude.clear();
  const Targets all(everything), targets(rules);
  for (const std::string& text : rules.exclude) {
    const ModuleSet one({text}, "adapter.exclude");
    if (std::ranges::none_of(names.linear, [&](const std::string& m) { return all.has(m) && one.has(m); }))
      fail_config(fmt::format("adapter.exclude: '{}' matches none of the modules in adapter.targets; near it are {}",
                              text, last_parts(names.linear, text)));
  }
  for (const auto& [key, patterns] :
       {std::pair{"adapter.rank_pattern", &rules.rank_pattern}, {"adapter.alpha_pattern", &rules.alpha_pattern}}) {
    for (const auto& [text, value] : *patterns) {
      const ModulePattern pattern = end_pattern(text, key);
      if (std::ranges::none_of(names.linear,
                               [&](const std::string& m) { return targets.has(m) && pattern.matches(m); }))
        fail_config(fmt::format("{}: '{}' matches no module that has an adapter; near it are {}", key, text,
                                last_parts(names.linear, text)));
    }
  }
}

void check_also_train(const AdapterRules& rules, const Names& names, const std::vector<LayerLayout>& layouts,
                      bool tied) {
  for (const std::string& end : rules.also_train) {
    const TrainedWhole one({.also_train = {end}});
    bool any = false;
    for (const LayerLayout& layout : layouts) {
      for (const TensorSpec& tensor : layout.tensors) {
        if (tensor.is_adapter() || !one.has(tensor)) continue;
        any = true;
        if (is_expert(tensor) || tensor.operand == BlockOperand::router)
          fail_config(
              fmt::format("adapter.also_train: '{}' names {}; experts and routers cannot be trained beside "
                          "adapters yet",
                          end, module_of(tensor.name)));
      }
    }
    if (!any && !rules.from_file)
      fail_config(fmt::format("adapter.also_train: '{}' matches no module of the model; near it are {}", end,
                              last_parts(names.modules, end)));
  }
  if (tied && TrainedWhole(rules).has(layouts.front().tensors.front()))
    fail_config(
        "adapter.also_train names the embedding, whose table is the output matrix too (tie_word_embeddings); PEFT "
        "would "
        "train two copies of it, which is not supported. Leave it out, or save the model with the two untied");
}

void freeze_checked(std::vector<LayerLayout>& layouts, const AdapterRules& rules, bool tied) {
  const Names names(layouts);
  if (!rules.from_file) {
    check_targets(rules, names);
    check_exclusions(rules, names);
  }
  check_also_train(rules, names, layouts, tied);
  const TrainedWhole whole(rules);
  bool adapted = false;
  for (LayerLayout& layout : layouts) {
    adapted = adapted || layout.is_adapter();
    for (TensorSpec& tensor : layout.tensors) tensor.trainable = tensor.is_adapter() || whole.has(tensor);
  }
  if (!adapted) fail_config("adapter.targets, adapter.exclude and adapter.also_train leave no module with an adapter");
}

}  // namespace

void freeze_base(std::vector<LayerLayout>& layouts, const AdapterRules& rules, bool tied) {
  blaming_their_file(rules, [&] { freeze_checked(layouts, rules, tied); });
}

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
