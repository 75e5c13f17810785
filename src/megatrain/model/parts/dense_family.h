// Shared by families of dense blocks: reading sizes and windows, the tensors of a block and its phase.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatrain/model/layers/block.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/model/layers/layer.h"

namespace megatrain {

// Limits far above any real model.
inline constexpr int64_t kMaxLayers = int64_t{1} << 14, kMaxWidth = int64_t{1} << 20;

// What transformers assumes if a field is absent.
struct AbsentSizes {
  int64_t kv_heads = 0;       // 0: same as heads
  bool null_kv_heads = true;  // null means the same as heads; false: null is refused
  int64_t head_dim = 0;       // 0: hidden / heads
  int64_t max_position = 0;
};

// Reads the fields that all families have. All readers here throw Error(bad_input).
void read_sizes(const ConfigReader& reader, const AbsentSizes& absent, ModelConfig& config);

// Refuses any value but `supported`: the architecture has no such feature.
void must_be(const ConfigReader& reader, const char* key, const nlohmann::json& supported,
             const std::string& architecture);

// Granite's multipliers: of the embedding, the softmax, each branch's output and the logits.
void read_multipliers(const ConfigReader& reader, ModelConfig& config);

// The sliding window of each layer. The family has no window, the same one in all layers, or one that is switched by
// use_sliding_window, max_window_layers and layer_types.
std::vector<int64_t> read_no_window(const ConfigReader& reader, const ModelConfig& config);
std::vector<int64_t> read_window_of_all(const ConfigReader& reader, const ModelConfig& config);
std::vector<int64_t> read_switched_window(const ConfigReader& reader, const ModelConfig& config);

// Whether each layer is sliding, by layer_types; nullopt if the field is absent.
std::optional<std::vector<bool>> read_layer_types(const ConfigReader& reader, int64_t layers);

// A block's tensors up to the norm before its MLP: its norms and its mixer.
std::vector<TensorSpec> attention_tensors(const ModelConfig& config, int64_t layer);

// attention_of() makes the mixers of a block: attention of either kind, what replaces it, or Mamba and attention side
// by side. A layer may have none. one_block() makes the phases of a layer that is one block, given the layer's first
// record.
Block::Mixers attention_of(const ModelConfig& config, const ModelShape& shape, int64_t layer,
                           const LinearTensors& from);
std::vector<std::unique_ptr<const Phase>> one_block(const ModelConfig& config, const ModelShape& shape,
                                                    const LinearTensors& from, Block::Mixers mixers,
                                                    Block::Channels channels);

// The MLP of a block.
std::unique_ptr<const Channel> mlp_of(const ModelConfig& config, const ModelShape& shape, const LinearTensors& from);

// A dense block's tensors, which are in one record, and its phase.
std::vector<std::vector<TensorSpec>> dense_tensors(const ModelConfig& config, int64_t layer);
std::vector<std::unique_ptr<const Phase>> dense_phases(const ModelConfig& config, const ModelShape& shape,
                                                       int64_t layer, std::span<const LayerLayout> records);

// Gives modules of a layer other names: those that begin with `from`, behind "model.layers.N.", begin with `to`.
struct Renamed {
  std::string_view from, to;
};
void rename_modules(int64_t layer, std::span<const Renamed> names, std::vector<TensorSpec>& tensors);

// For Family::llama_cpp. windows_repeat() is true if in every period of layers all but the last have a window.
// heads_that_do_not_fill(), for LlamaCpp::unlike, describes heads whose total width is not that of the residual stream.
bool windows_repeat(const ModelConfig& config, int64_t period);
std::string heads_that_do_not_fill(const ModelConfig& config);

struct PresetSizes {
  int64_t hidden, ff, layers, heads, kv_heads, vocab;
  bool tied;
  double norm_eps, rope_theta;
};
nlohmann::json preset_json(const char* architecture, const char* model_type, const PresetSizes& sizes);

}  // namespace megatrain
