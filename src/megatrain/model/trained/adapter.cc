#include "megatrain/model/trained/adapter.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/edit_distance.h"
#include "megatrain/base/error.h"
#include "megatrain/base/rng.h"
#include "megatrain/hub/text_names.h"
#include "megatrain/model/trained/module_pattern.h"
#include "megatrain/model/trained/names_in_whole.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

namespace {

constexpr std::string_view kWeight = ".weight", kA = ".lora_A.weight", kB = ".lora_B.weight",
                           kMagnitude = ".lora_magnitude_vector";

bool matches(const ModulePattern& pattern, const std::string& module) {
  return pattern.matches(module) || pattern.matches(kModuleNames.in_files(module));
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
           std::ranges::any_of(patterns_, [&](const ModulePattern& pattern) { return matches(pattern, module); });
  }

 private:
  std::vector<std::string> ends_;
  std::vector<ModulePattern> patterns_;
};

// Whether a tensor of a layer is the weight of a matmul that computes adapters: not a router's, nor an expert's.
bool is_linear(const TensorSpec& tensor) {
  return tensor.role == TensorRole::matrix && tensor.name.ends_with(kWeight) && tensor.operand >= 0 &&
         tensor.operand != BlockOperand::router && !BlockOperand::is_of_expert(tensor.operand);
}

// As PEFT: the pattern is for the end of a name, which starts at a dot or at the name's beginning.
ModulePattern end_pattern(const std::string& text, const char* key) {
  const ModulePattern as_given(text, key);  // a message about the text as it was given
  return ModulePattern("(?:.*\\.)?(?:" + text + ")", key);
}

// Whether a tensor is one expert's, or a part of a tensor that holds all experts of a layer.
bool is_expert(const TensorSpec& tensor) { return !tensor.parameter.name.empty() || !tensor.stored.name.empty(); }

// Whether a tensor is the weight of an expert that is a module by itself, as files name it.
bool is_expert_module(const TensorSpec& tensor) { return !tensor.parameter.name.empty() && tensor.stored.name.empty(); }

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// "model.layers.0.mlp.experts.3.gate_up_proj" for the weights of expert 3 in "model.layers.0.mlp.experts.gate_up_proj".
std::string fused_module(const TensorSpec& weight) {
  return module_of(module_of(weight.name)) + "." + last_part(weight.parameter.name);
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
  bool has_expert(const std::string& module) const { return !all_ && has(module); }
  bool has_parameter(const std::string& parameter) const {
    return std::ranges::any_of(rules_.target_parameters,
                               [&](const std::string& end) { return is_end_of(end, parameter); });
  }
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
      if (matches(patterns[i], module)) return values[i].second;
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

bool is_end_of(const std::string& end, const std::string& module) {
  const std::string in_whole = kModuleNames.in_files(module);
  return module == end || module.ends_with("." + end) || in_whole == end || in_whole.ends_with("." + end);
}

void refuse_names_in_whole(const AdapterRules& rules) {
  const auto names_it = [](const std::string& text) { return text.find("language_model") != std::string::npos; };
  for (const auto& [key, texts] : {std::pair{"targets", &rules.targets},
                                   {"target_parameters", &rules.target_parameters},
                                   {"exclude", &rules.exclude},
                                   {"also_train", &rules.also_train}}) {
    const auto found = std::ranges::find_if(*texts, names_it);
    if (found == texts->end()) continue;
    const std::string what =
        fmt::format("'{}' names a module of a multimodal model, and this one is a text model", *found);
    if (rules.from_file) fail_input("adapter_config.json of the adapter: " + what);
    fail_config(fmt::format("adapter.{}: {}; leave language_model out", key, what));
  }
}

std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

namespace {

AdapterSpec spec_of(const AdapterRules& rules, const Targets& targets, const std::string& module) {
  return {.scale = targets.scale(module), .dropout = static_cast<float>(rules.dropout), .init = rules.init};
}

int64_t rank_of(const AdapterRules& rules, const Targets& targets, const std::string& module, int64_t rows,
                int64_t cols) {
  const int64_t rank = targets.rank(module);
  // a gate's weight has few rows, and PEFT gives it the rank of the others
  if (!rules.from_file && rank > std::max(rows, cols))
    fail_config(fmt::format("adapter: the rank of {} is {}, but its weight is {} x {}; expected at most {}", module,
                            rank, rows, cols, std::max(rows, cols)));
  return rank;
}

// Where PEFT has the halves of a parameter's adapter: it wraps gate_up_proj first, and down_proj around it.
std::string wrapped(const TensorSpec& weight, bool other_too) {
  const bool inner = other_too && weight.parameter.name.ends_with(".gate_up_proj");
  return module_of(weight.parameter.name) + (inner ? ".base_layer" : "");
}

// The adapter of expert `index` of `count` in a parameter, of which `weight` is the first tensor.
void add_fused_adapter(const AdapterRules& rules, const Targets& targets, const TensorSpec& weight, bool other_too,
                       int64_t index, int64_t count, std::vector<TensorSpec>& to) {
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
void add_module_adapters(const AdapterRules& rules, const Targets& targets, std::span<const TensorSpec> weights,
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
  const Targets targets = blaming_their_file(rules, [&] { return Targets(rules); });
  const TrainedWhole whole(rules);  // has no adapter
  const auto has = [&](const TensorSpec& tensor) {
    return is_linear(tensor) && targets.has(module_of(tensor.name)) && !whole.has(tensor);
  };
  std::vector<TensorSpec> adapters;
  for (const std::vector<TensorSpec>& weights : by_operand(record, has))
    add_module_adapters(rules, targets, weights, adapters);
  return adapters;
}

std::vector<std::vector<TensorSpec>> expert_adapter_tensors(const AdapterRules& rules,
                                                            std::span<const std::vector<TensorSpec>> experts) {
  if (!rules.any()) return {};
  const Targets targets(rules);
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

namespace {

// What the settings may name.
struct Names {
  std::set<std::string> linear;      // modules that can have an adapter; without experts, whom all-linear leaves out
  std::set<std::string> experts;     // likewise, modules of experts
  std::set<std::string> parameters;  // of all experts of a layer
  std::set<std::string> others;      // modules that cannot, without those of experts, and what modules are parts of

  explicit Names(const std::vector<LayerLayout>& layouts) {
    for (const LayerLayout& layout : layouts) {
      const bool of_layer = &layout != &layouts.front() && &layout != &layouts.back();
      for (const TensorSpec& tensor : layout.tensors) {
        if (tensor.is_adapter()) continue;
        std::string module = module_of(tensor.name);
        if (!tensor.parameter.name.empty()) parameters.insert(tensor.parameter.name);
        if (is_expert_module(tensor)) experts.insert(module);
        if (is_expert(tensor)) continue;
        (of_layer && is_linear(tensor) ? linear : others).insert(module);
        for (size_t dot = module.rfind('.'); dot != std::string::npos; dot = module.rfind('.')) {
          module.resize(dot);
          others.insert(module);
        }
      }
    }
    for (const std::string& module : linear) others.erase(module);  // its bias was among them
  }

  template <class Matches>
  bool any_module(const Matches& matches) const {
    return std::ranges::any_of(linear, matches) || std::ranges::any_of(experts, matches);
  }
  // The last parts of names that are nearest to a text.
  std::string near(const std::string& text) const { return last_parts({&linear, &experts}, text); }
  std::string near_any(const std::string& text) const { return last_parts({&linear, &experts, &others}, text); }

 private:
  static std::string last_parts(const std::vector<const std::set<std::string>*>& sets, const std::string& text) {
    std::set<std::string> names;
    for (const std::set<std::string>* set : sets) {
      for (const std::string& module : *set) names.insert(last_part(module));
    }
    return nearest(names, text);
  }
};

void check_targets(const AdapterRules& rules, const Names& names) {
  if (rules.targets.size() > 1 && std::ranges::count(rules.targets, AdapterRules::kAllLinear) > 0)
    fail_config("adapter.targets: all-linear includes every other module; give it alone, or a list of names");
  for (const std::string& text : rules.targets) {
    if (text == AdapterRules::kAllLinear) continue;
    const ModuleSet one({text}, "adapter.targets");
    const auto matches = [&](const std::string& module) { return one.has(module); };
    if (!names.any_module(matches) && std::ranges::none_of(names.others, matches))
      fail_config(fmt::format("adapter.targets: '{}' matches no module of the model; near it are {}{}", text,
                              names.near(text),
                              names.parameters.empty() ? ""
                                                       : ". Experts are parameters: name them in "
                                                         "adapter.target_parameters"));
    const ModuleSet exclude(rules.exclude, "adapter.exclude");
    const auto wrong = std::ranges::find_if(
        names.others, [&](const std::string& module) { return one.has(module) && !exclude.has(module); });
    if (wrong != names.others.end())
      fail_config(
          fmt::format("adapter.targets: '{}' matches {}, which cannot have an adapter; modules that can are {}. "
                      "adapter.also_train trains a module whole",
                      text, *wrong, names.near(text)));
  }
}

void check_parameters(const AdapterRules& rules, const Names& names) {
  for (const std::string& text : rules.target_parameters) {
    if (std::ranges::any_of(names.parameters, [&](const std::string& name) { return is_end_of(text, name); })) continue;
    fail_config(fmt::format("adapter.target_parameters: '{}' names no parameter of experts; {}", text,
                            names.parameters.empty() ? "the model has no experts, and adapter.targets names modules"
                                                     : "expected mlp.experts.gate_up_proj or mlp.experts.down_proj"));
  }
  const Targets targets(rules);
  const auto module = std::ranges::find_if(names.experts, [&](const std::string& m) { return targets.has_expert(m); });
  if (!rules.target_parameters.empty() && module != names.experts.end())
    fail_config(
        fmt::format("adapter.targets matches {}, and adapter.target_parameters names experts too: they have one "
                    "kind of adapter; leave one out",
                    *module));
}

// What excludes nothing, and patterns for modules without an adapter, would be ignored.
void check_exclusions(const AdapterRules& rules, const Names& names) {
  AdapterRules everything = rules;
  everything.exclude.clear();
  const Targets all(everything), targets(rules);
  for (const std::string& text : rules.exclude) {
    const ModuleSet one({text}, "adapter.exclude");
    if (std::ranges::none_of(names.linear, [&](const std::string& m) { return all.has(m) && one.has(m); }) &&
        std::ranges::none_of(names.experts, [&](const std::string& m) { return all.has_expert(m) && one.has(m); }))
      fail_config(fmt::format("adapter.exclude: '{}' matches none of the modules in adapter.targets; near it are {}",
                              text, names.near(text)));
  }
  for (const auto& [key, patterns] :
       {std::pair{"adapter.rank_pattern", &rules.rank_pattern}, {"adapter.alpha_pattern", &rules.alpha_pattern}}) {
    for (const auto& [text, value] : *patterns) {
      const ModulePattern pattern = end_pattern(text, key);
      const auto matches = [&](const std::string& name) { return pattern.matches(name); };
      if (std::ranges::none_of(names.linear, [&](const std::string& m) { return targets.has(m) && matches(m); }) &&
          std::ranges::none_of(names.experts,
                               [&](const std::string& m) { return targets.has_expert(m) && matches(m); }) &&
          std::ranges::none_of(names.parameters,
                               [&](const std::string& p) { return targets.has_parameter(p) && matches(p); }))
        fail_config(
            fmt::format("{}: '{}' matches no module that has an adapter; near it are {}", key, text, names.near(text)));
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
        if (is_expert(tensor))
          fail_config(
              fmt::format("adapter.also_train: '{}' names {}; experts cannot be trained whole beside adapters. "
                          "adapter.target_parameters gives them adapters",
                          end, module_of(tensor.name)));
      }
    }
    if (!any && !rules.from_file)
      fail_config(fmt::format("adapter.also_train: '{}' matches no module of the model; near it are {}", end,
                              names.near_any(end)));
  }
  if (tied && TrainedWhole(rules).has(layouts.front().tensors.front()))
    fail_config(
        "adapter.also_train names the embedding, whose table is the output matrix too (tie_word_embeddings); PEFT "
        "would train two copies of it, which is not supported. Leave it out, or save the model with the two untied");
}

void freeze_checked(std::vector<LayerLayout>& layouts, const AdapterRules& rules, bool tied) {
  const Names names(layouts);
  if (!rules.from_file) {
    check_targets(rules, names);
    check_parameters(rules, names);
    check_exclusions(rules, names);
  }
  check_also_train(rules, names, layouts, tied);
  std::vector<const LayerLayout*> pointers;
  for (const LayerLayout& layout : layouts) pointers.push_back(&layout);
  const TrainedBeside beside(rules, pointers);
  bool adapted = false, biased = false;
  for (LayerLayout& layout : layouts) {
    adapted = adapted || (layout.is_adapter() && !layout.is_token_rows());
    for (TensorSpec& tensor : layout.tensors) {
      tensor.trainable = tensor.is_adapter() || beside.has(tensor);
      biased = biased || beside.has_bias(tensor);
    }
  }
  if (rules.bias != AdapterBias::none && !biased && !rules.from_file)
    fail_config(rules.bias == AdapterBias::all
                    ? "adapter.bias is all, but the model has no bias; leave it out"
                    : "adapter.bias is lora_only, but no module with an adapter has a bias; leave it out");
  if (!adapted)
    fail_config(
        rules.from_file
            ? "its target_modules and target_parameters name nothing of this model that can have an adapter; give "
              "the model that it was made for"
            : "adapter.targets, adapter.exclude and adapter.also_train leave nothing with an adapter");
}

}  // namespace

void freeze_base(std::vector<LayerLayout>& layouts, const AdapterRules& rules, bool tied) {
  blaming_their_file(rules, [&] { freeze_checked(layouts, rules, tied); });
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

std::set<std::string> adapted_modules(const std::vector<const LayerLayout*>& layouts) {
  std::set<std::string> modules;
  for (const LayerLayout* layout : layouts) {
    if (adapts_experts(*layout)) continue;
    for (const TensorSpec& tensor : layout->tensors) {
      if (tensor.role == TensorRole::adapter_in) modules.insert(module_of(module_of(tensor.name)));
    }
  }
  return modules;
}

bool TrainedBeside::has_bias(const TensorSpec& tensor) const {
  if (bias_ == AdapterBias::none || tensor.role != TensorRole::bias || is_expert(tensor)) return false;
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

std::string unlike_peft(const AdapterRules& rules, const std::vector<LayerLayout>& layouts) {
  const auto is_module = [](const TensorSpec& tensor) {
    return tensor.role == TensorRole::adapter_in && tensor.stored.name.empty();
  };
  for (const LayerLayout& layout : layouts) {
    if (!adapts_experts(layout)) continue;
    std::vector<const TensorSpec*> first;  // of one expert
    for (const TensorSpec& tensor : layout.tensors) {
      if (is_module(tensor) && tensor.part == layout.tensors.front().part) first.push_back(&tensor);
    }
    if (first.empty()) continue;
    const std::string last = last_part(module_of(module_of(first.back()->name)));
    const bool down_alone = first.size() == 1 && (last == "down_proj" || last == "w2");
    const bool alike = std::ranges::all_of(first, [&](const TensorSpec* tensor) {
      return tensor->rows == first.front()->rows && tensor->adapter.scale == first.front()->adapter.scale;
    });
    constexpr size_t kModules = 3;  // gate, up and down
    if (!rules.rslora && alike && (first.size() == kModules || down_alone)) continue;
    return "PEFT cannot read these adapters of experts as they are trained: it needs them on gate, up and down with "
           "one "
           "rank and one alpha and without rslora, or on down alone. megatrain reads and merges them; for PEFT use "
           "adapter.target_parameters";
  }
  return "";
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
