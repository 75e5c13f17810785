// A family of models: turns a config.json and tensor names into layers. Each family is one file in families/, and no
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

#include "megatrain/hub/text_names.h"
#include "megatrain/io/json.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/model/layers/layer.h"

namespace megatrain {

// The default kind of a layer: its mixer, the window of attention, and whether it has RoPE and experts.
std::string attention_kind(const ModelConfig& config, int64_t layer);

// How llama.cpp represents a family in GGUF files. gguf/ writes the keys and tensors that all families have.
struct LlamaCpp {
  std::string name;          // of its architecture
  bool is_llama = false;     // it uses Llama's: q and k rows in pairs, Llama 3's RoPE, no key for experts' width
  bool llama3_rope = false;  // it has Llama 3's RoPE although it is not Llama's
  bool has_windows = false;  // it supports sliding windows
  // How this model differs from what llama.cpp computes, as words that follow "a NAME": "with attention_bias". Empty:
  // not at all.
  std::string (*unlike)(const ModelConfig& config) = nullptr;
  // Keys that other families do not have, without the architecture's prefix.
  using Key = std::pair<std::string, std::variant<int64_t, double>>;
  std::vector<Key> (*keys)(const ModelConfig& config) = nullptr;
  // Names of a layer's tensors that differ from those of Llama's layer, without "model.layers.N." and "blk.N.".
  std::map<std::string, std::string> tensors = {};
};

// A class of models that have a text model beside other parts, such as a vision tower. The fields of the text model are
// in text_config.
struct MultimodalClass {
  std::string architecture;  // its name in config.json's architectures
  std::string model_type;
  std::string text_type;                 // model_type of text_config
  std::vector<std::string> fields = {};  // of config.json that concern other parts; those of many classes are known
  nlohmann::json absent = nlohmann::json::object();  // what transformers takes where text_config lacks these fields
  nlohmann::json only = nlohmann::json::object();    // fields of text_config with the one value that has no effect
  bool flat = false;  // a file without text_config has the text model's fields beside the others
};

struct Family {
  std::string architecture;  // its name in config.json's architectures
  std::string model_type;
  std::vector<std::string> other_types = {};  // model_types of files with the same architecture and maths

  TextNames file_names = {};  // how files name the modules of a model of its own

  // Fields of config.json that this family reads. A family refuses the fields that only other families list.
  std::vector<std::string> fields = {};

  // Reads every field but the architecture, which is already set. Throws Error(bad_input).
  void (*read)(const ConfigReader& reader, ModelConfig& config);

  // `tensors` lists the tensors of each record of a layer; `phases` makes the layer's phases from the layouts of these
  // records. In a layer with experts, the first list has all other tensors; buffers in fp32 have a list of their own
  // behind it. Each further list is one expert, all with the same shapes; a record joins several experts.
  std::vector<std::vector<TensorSpec>> (*tensors)(const ModelConfig& config, int64_t layer);
  std::vector<std::unique_ptr<const Phase>> (*phases)(const ModelConfig& config, const ModelShape& shape, int64_t layer,
                                                      std::span<const LayerLayout> records);

  // The tensors of further records, for phases that follow a layer's block or come before it. Each record may have
  // adapters, which are then a record of their own behind it. `phases` gets these records last.
  std::vector<std::vector<TensorSpec>> (*more_tensors)(const ModelConfig& config, int64_t layer) = nullptr;

  // Layers of one kind have the same tensor shapes, cost and scratch, so the name must cover whatever decides these.
  std::string (*kind)(const ModelConfig& config, int64_t layer) = attention_kind;

  std::optional<LlamaCpp> llama_cpp = {};  // none: llama.cpp lacks this family

  // Whether PEFT converts adapters of experts' modules to those of the parameters into which transformers joins them.
  // In such a model it takes every module with a name of theirs for an expert's.
  bool peft_joins_experts = true;
  std::string peft_refuses = {};  // the last part of the name of modules that PEFT gives no adapter; empty: none

  struct Preset {
    std::string name;
    nlohmann::json config;  // config.json
  };
  std::vector<Preset> presets = {};

  std::vector<MultimodalClass> part_of = {};  // classes of models whose text model is of this family
};

bool has_model_type(const Family& family, const std::string& type);

const std::vector<Family>& families();
const Family& family_of(const ModelConfig& config);

}  // namespace megatrain
