// The fields of a ModelConfig by name, so that two models can be compared field by field.
#pragma once

#include <string>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/model/layers/model_config.h"

namespace megatrain {

struct ModelField {
  std::string name;              // the name in config.json, if it is a single field there
  nlohmann::ordered_json value;  // null: the model has no such value; an object: a group, members in order
  bool decides_steps;            // the result of a step depends on it; false: only a fresh start or an export does
};

// Every field, always in the same order.
std::vector<ModelField> model_fields(const ModelConfig& config);

}  // namespace megatrain
