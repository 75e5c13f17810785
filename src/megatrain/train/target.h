// What `plan` and `bench` work on: a configuration, a Hugging Face directory, a config.json or a preset by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/config/config.h"
#include "megatrain/model/config.h"

namespace megatrain {

struct Target {
  TrainConfig config;
  ModelConfig model;
};

// `layers` overrides the model's number of layers.
Target read_target(const std::string& name, const std::vector<std::string>& overrides, std::optional<int64_t> layers);

}  // namespace megatrain
