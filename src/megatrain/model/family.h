// A family of models: what turns a config.json and tensor names into layers. Each is one file of families/, and no
// other file knows its name.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/model/config.h"
#include "megatrain/model/config_reader.h"
#include "megatrain/model/layer.h"

namespace megatrain {

// The kind of a layer of attention: its window, and whether it has experts.
std::string attention_kind(const ModelConfig& config, int64_t layer);

// How llama.cpp has a family, for GGUF files. gguf/ writes the keys and tensors that all families have.
struct LlamaCpp {
  std::string name;          // of its architecture
  bool is_llama = false;     // it is Llama's: rows of q and k in pairs, Llama 3's RoPE, no key for the experts' width
  bool has_windows = false;  // it obeys sliding windows
  // What of this model llama.cpp computes otherwise, as words behind "a NAME"; empty: nothing.
  std::string (*unlike)(const ModelConfig& config) = nullptr;
  // Keys that other families do not have, without the architecture's prefix.
  using Key = std::pair<std::string, std::variant<int64_t, double>>;
  std::vector<Key> (*keys)(const ModelConfig& config) = nullptr;
  // Names of a layer's tensors that are others there than in Llama's layer, without "model.layers.N." and "blk.N.".
  std::map<std::string, std::string> tensors = {};
};

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

  std::optional<LlamaCpp> llama_cpp = {};  // none: it has no such family

  struct Preset {
    std::string name;
    nlohmann::json config;  // config.json
  };
  std::vector<Preset> presets = {};
};

const std::vector<Family>& families();
const Family& family_of(const ModelConfig& config);

}  // namespace megatrain
