// The target of `plan` or `bench`: a configuration, a Hugging Face directory, a config.json or a preset name. Weights
// are never read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/train/session.h"

namespace megatrain {

struct Target {
  TrainConfig config;
  ModelConfig model;
  std::string directory;  // of its files, if they are on this machine
  // Dtypes of the weights from which training starts, according to their files or else to config.json. Empty: random
  // weights.
  TensorTypes stored;
};
// Whether the name is that of a configuration rather than of a model.
bool names_configuration(const std::string& name);

// `layers` overrides the model's number of layers. Opens no device.
Target read_target(const std::string& name, const std::vector<std::string>& overrides, std::optional<int64_t> layers);

// The target of a configuration that has been read.
Target target_of(const TrainConfig& config, std::optional<int64_t> layers = {});

Session open_target(const std::string& name, const std::vector<std::string>& overrides, std::optional<int64_t> layers);

}  // namespace megatrain
