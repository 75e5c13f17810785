#include "megatrain/model/trained/adapter_targets.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "megatrain/hub/text_names.h"
#include "megatrain/tensor/block_operand.h"

namespace megatrain {

bool is_end_of(const std::string& end, const std::string& module) {
  const std::string in_whole = kModuleNames.in_files(module);
  return module == end || module.ends_with("." + end) || in_whole == end || in_whole.ends_with("." + end);
}

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

bool is_linear_weight(const TensorSpec& tensor) {
  return tensor.role == TensorRole::matrix && tensor.name.ends_with(".weight") && tensor.operand >= 0 &&
         tensor.operand != BlockOperand::router && !BlockOperand::is_of_expert(tensor.operand);
}

bool is_of_expert(const TensorSpec& tensor) { return !tensor.parameter.name.empty() || !tensor.stored.name.empty(); }

bool is_expert_module(const TensorSpec& tensor) { return !tensor.parameter.name.empty() && tensor.stored.name.empty(); }

ModulePattern end_pattern(const std::string& text, const char* key) {
  const ModulePattern as_given(text, key);  // a message about the text as it was given
  return ModulePattern("(?:.*\\.)?(?:" + text + ")", key);
}

namespace {

using NumberPatterns = std::vector<std::pair<std::string, double>>;

bool matches_module(const ModulePattern& pattern, const std::string& module) {
  return pattern.matches(module) || pattern.matches(kModuleNames.in_files(module));
}

std::vector<ModulePattern> compiled(const NumberPatterns& patterns, const char* key) {
  std::vector<ModulePattern> list;
  for (const auto& [text, value] : patterns) list.push_back(end_pattern(text, key));
  return list;
}

double number_of(const std::vector<ModulePattern>& patterns, const NumberPatterns& values, const std::string& module,
                 double otherwise) {
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (matches_module(patterns[i], module)) return values[i].second;
  }
  return otherwise;
}

}  // namespace

ModuleSet::ModuleSet(const std::vector<std::string>& texts, const char* key) {
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

bool ModuleSet::has(const std::string& module) const {
  return std::ranges::any_of(ends_, [&](const std::string& end) { return is_end_of(end, module); }) ||
         std::ranges::any_of(patterns_, [&](const ModulePattern& pattern) { return matches_module(pattern, module); });
}

AdapterTargets::AdapterTargets(const AdapterRules& rules)
    : all_(rules.targets == std::vector<std::string>{AdapterRules::kAllLinear}),
      targets_(all_ ? std::vector<std::string>{} : rules.targets, "adapter.targets"),
      exclude_(rules.exclude, "adapter.exclude"),
      rules_(rules),
      ranks_(compiled(rules.rank_pattern, "adapter.rank_pattern")),
      alphas_(compiled(rules.alpha_pattern, "adapter.alpha_pattern")) {}

bool AdapterTargets::has_parameter(const std::string& parameter) const {
  return std::ranges::any_of(rules_.target_parameters,
                             [&](const std::string& end) { return is_end_of(end, parameter); });
}

int64_t AdapterTargets::rank(const std::string& module) const {
  return static_cast<int64_t>(number_of(ranks_, rules_.rank_pattern, module, static_cast<double>(rules_.rank)));
}

float AdapterTargets::scale(const std::string& module) const {
  const double r = static_cast<double>(rank(module));
  return static_cast<float>(number_of(alphas_, rules_.alpha_pattern, module, rules_.alpha) /
                            (rules_.rslora ? std::sqrt(r) : r));
}

}  // namespace megatrain
