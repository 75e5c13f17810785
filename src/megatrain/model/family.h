// A family of models: what turns a config.json and tensor names into layers. Each is one file of families/, and no
// other file knows its name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/model/config.h"
#include "megatrain/model/config_reader.h"
#include "megatrain/model/layer.h"

namespace megatrain {

// The kind of a layer of attention: its window, and whether it has experts.
std::string attention_kind(const ModelConfig& config, int64_t layer);

struct Family {
  std::string architecture;  // as config.json's architectures names it
  std::string model_type;

  // Fields of config.json that this family reads and the others do not have; elsewhere they are refused.
  std::vector<std::string> fields = {};

  // Reads every field but the architecture, which is filled already. Throws Error(bad_input).
  void (*read)(const ConfigReader& reader, ModelConfig& config);

  // The tensors of each record of a layer, then its phases over the layouts made of them. In a layer with experts the
  // first list holds what is not theirs and each further one an expert, all alike; a record joins several experts.
  std::vector<std::vector<TensorSpec>> (*tensors)(const ModelConfig& config, int64_t layer);
  std::vector<std::unique_ptr<const Phase>> (*phases)(const ModelConfig& config, const ModelShape& shape, int64_t layer,
                                                      std::span<const LayerLayout> records);

  // What layers of one name have in common: all that decides their tensors' shapes, cost and scratch.
  std::string (*kind)(const ModelConfig& config, int64_t layer) = attention_kind;

  struct Preset {
    std::string name;
    nlohmann::json config;  // config.json
  };
  std::vector<Preset> presets = {};
};

const std::vector<Family>& families();
const Family& family_of(const ModelConfig& config);

}  // namespace megatrain
