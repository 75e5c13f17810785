#include "megatrain/model/trained/adapter_checks.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/edit_distance.h"
#include "megatrain/base/error.h"
#include "megatrain/model/trained/adapter_targets.h"

namespace megatrain {

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

namespace {

std::string nearest(const std::set<std::string>& names, const std::string& text) {
  std::vector<std::pair<int64_t, std::string>> near;
  for (const std::string& name : names) near.emplace_back(edit_distance(name, text), name);
  std::sort(near.begin(), near.end());
  std::vector<std::string> first;
  for (size_t i = 0; i < std::min<size_t>(near.size(), 7); ++i) first.push_back(near[i].second);
  return fmt::format("{}", fmt::join(first, ", "));
}

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
        if (is_of_expert(tensor)) continue;
        (of_layer && is_linear_weight(tensor) ? linear : others).insert(module);
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
  const AdapterTargets targets(rules);
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
  const AdapterTargets all(everything), targets(rules);
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
        if (is_of_expert(tensor))
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
    adapted = adapted || !first_halves(layout).empty();
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

namespace {

std::string adapted_module(const TensorSpec& half) { return module_of(module_of(half.name)); }

// Whether PEFT converts the adapters of one expert's modules, of which these are the first halves.
bool converts(const AdapterRules& rules, const std::vector<const TensorSpec*>& halves) {
  constexpr size_t kModules = 3;  // gate, up and down
  const std::string last = last_part(adapted_module(*halves.back()));
  const bool down_alone = halves.size() == 1 && (last == "down_proj" || last == "w2");
  const bool alike = std::ranges::all_of(halves, [&](const TensorSpec* half) {
    return half->rows == halves.front()->rows && half->adapter.scale == halves.front()->adapter.scale;
  });
  return !rules.rslora && alike && (halves.size() == kModules || down_alone);
}

bool has_name_of_expert_module(const TensorSpec* half) {
  const std::string last = last_part(adapted_module(*half));
  return last == "gate_proj" || last == "up_proj" || last == "down_proj";
}

}  // namespace

std::string unlike_peft(const AdapterRules& rules, const std::vector<LayerLayout>& layouts, bool joins_experts,
                        std::string_view refused) {
  const bool one_by_one = std::ranges::any_of(
      layouts, [](const LayerLayout& layout) { return std::ranges::any_of(layout.tensors, is_expert_module); });
  for (const LayerLayout& layout : layouts) {
    std::vector<const TensorSpec*> halves = first_halves(layout);
    if (std::ranges::any_of(halves,
                            [&](const TensorSpec* half) { return last_part(adapted_module(*half)) == refused; }))
      return fmt::format(
          "PEFT refuses adapters of {0} in this family. megatrain reads and merges them; "
          "for PEFT leave such modules out with adapter.exclude={0}",
          refused);
    if (adapts_experts(layout)) {
      std::erase_if(halves, [&](const TensorSpec* half) {  // leaves modules of one expert
        return !half->stored.name.empty() || half->part != layout.tensors.front().part;
      });
      if (halves.empty() || (joins_experts && converts(rules, halves))) continue;
      return fmt::format(
          "PEFT cannot read these adapters of experts as they are trained{}. megatrain reads and merges them; for PEFT "
          "use adapter.target_parameters",
          joins_experts ? ": it needs them on gate, up and down with one rank and one alpha and without rslora, or on "
                          "down alone"
                        : "");
    }
    const auto taken = std::ranges::find_if(halves, has_name_of_expert_module);
    if (!joins_experts || !one_by_one || taken == halves.end()) continue;
    return fmt::format(
        "PEFT cannot read the adapter of {}: where files hold experts one by one, it takes gate_proj, up_proj and "
        "down_proj for names of experts' modules alone. megatrain reads and merges this adapter; for PEFT leave such "
        "modules out with adapter.exclude",
        adapted_module(**taken));
  }
  return "";
}

}  // namespace megatrain
