// Which modules and parameters the settings of adapters name.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/base/error.h"
#include "megatrain/model/trained/adapter.h"
#include "megatrain/model/trained/module_pattern.h"
#include "megatrain/tensor/layout.h"

namespace megatrain {

// Whether `end` is the name of a module, or its last parts.
bool is_end_of(const std::string& end, const std::string& module);

std::string last_part(const std::string& module);  // "q_proj" for "model.layers.0.self_attn.q_proj"

// Whether a tensor of a layer is the weight of a matmul that computes adapters: not a router's, nor an expert's.
bool is_linear_weight(const TensorSpec& tensor);

// Whether a tensor is one expert's, or a part of a tensor that holds all experts of a layer.
bool is_of_expert(const TensorSpec& tensor);

// Whether a tensor is the weight of an expert that is a module by itself, as files name it.
bool is_expert_module(const TensorSpec& tensor);

// As PEFT: the pattern is for the end of a name, which starts at a dot or at the name's beginning.
ModulePattern end_pattern(const std::string& text, const char* key);

// Names of modules, or one regular expression.
class ModuleSet {
 public:
  ModuleSet(const std::vector<std::string>& texts, const char* key);
  bool has(const std::string& module) const;

 private:
  std::vector<std::string> ends_;
  std::vector<ModulePattern> patterns_;
};

// The rules must outlive it.
class AdapterTargets {
 public:
  explicit AdapterTargets(const AdapterRules& rules);

  bool has(const std::string& module) const { return (all_ || targets_.has(module)) && !exclude_.has(module); }
  bool has_expert(const std::string& module) const { return !all_ && has(module); }
  bool has_parameter(const std::string& parameter) const;
  int64_t rank(const std::string& module) const;
  float scale(const std::string& module) const;

 private:
  bool all_;
  ModuleSet targets_, exclude_;
  const AdapterRules& rules_;
  std::vector<ModulePattern> ranks_, alphas_;
};

// What is wrong with the settings of a PEFT directory is wrong with its file, not with the configuration.
template <class Action>
auto blaming_their_file(const AdapterRules& rules, const Action& action) {
  try {
    return action();
  } catch (const Error& error) {
    if (!rules.from_file || error.code() != ExitCode::bad_config) throw;
    fail_input(std::string("adapter_config.json of the adapter: ") + error.what());
  }
}

}  // namespace megatrain
