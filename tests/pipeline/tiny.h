// A tiny model with random weights and tokens, trained in process under any plan.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "megatrain/base/rng.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/hub/safetensors_writer.h"
#include "megatrain/io/json.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/model.h"
#include "megatrain/plan/planner.h"
#include "megatrain/store/pieces.h"
#include "megatrain/train/adapter_files.h"
#include "megatrain/train/session.h"
#include "megatrain/train/state_files.h"
#include "tests/support/fixtures.h"
#include "tests/support/fp8_files.h"
#include "tests/support/sanitized.h"

namespace megatrain::tiny {

struct Shape {
  int64_t layers = 6;
  int64_t micro_batches = 4;
  int64_t sequences = 8;  // per step
  int64_t seq_len = kSanitized ? 6 : 12;
  bool tied = false;
  int64_t pad_id = -1;
  bool clip = true;
  std::string precision = "bf16";
  TrainRules freezing;
  std::string moments = "fp32";
  std::string master = "fp32";
  bool dumps = false;  // gradients on the device can be read after a step
  int64_t alias_layers = 0;
  bool biases = false;         // of attention
  int64_t experts = 0;         // in every layer but the second; each token uses 3
  bool experts_below = false;  // in the second layer too
  int64_t experts_per_record = 0;
  bool shared_expert = false;  // beside the experts, with a gate
  bool latent = false;         // with latent attention, groups of experts, a sigmoid router and a shared expert
  double aux_loss = 0;         // coefficients of the router losses
  double z_loss = 0;
  bool rounded = false;        // the initial weights are representable in bf16
  bool bf16_source = false;    // and the session knows it: frozen tensors have no low bits
  bool mxfp4_experts = false;  // the initial weights of experts are representable in MXFP4
  bool mxfp4_source = false;   // and the session knows it: frozen experts are packed
  bool fp8 = false;            // the weights of layers' matrices are those of block-scaled fp8
  bool fp8_source = false;     // and the session knows it: frozen layers are packed; with files, they hold fp8
  int64_t hidden = 24;
  int64_t ff = 40;
  int64_t vocab = 61;
  std::string config_file = {};     // the model is that of this config.json, whatever the sizes above say
  std::optional<DType> files = {};  // the base is read from files with tensors of this type, where it may stay
  std::string base_place = "auto";  // memory.base
  bool partly_filled = false;       // micro-batches have trained documents in a part of their tokens
  bool cut = false;                 // and no tokens behind them
  // Answered between steps; the weights are copied to the device for it, as to a GPU.
  std::vector<std::string> prompts = {};
};

inline ModelConfig model_config(const Shape& shape) {
  if (!shape.config_file.empty()) return parse_model_config(read_json_file(shape.config_file), shape.config_file);
  nlohmann::json config = {{"architectures", {"Qwen3ForCausalLM"}},
                           {"vocab_size", shape.vocab},
                           {"hidden_size", shape.hidden},
                           {"intermediate_size", shape.ff},
                           {"num_hidden_layers", shape.layers},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 8},
                           {"initializer_range", 0.2},
                           {"max_position_embeddings", 64},
                           {"pad_token_id", shape.pad_id < 0 ? nlohmann::json() : nlohmann::json(shape.pad_id)},
                           {"attention_bias", shape.biases},
                           {"tie_word_embeddings", shape.tied}};
  if (shape.experts > 0) {
    config.update({{"architectures", {"Qwen3MoeForCausalLM"}},
                   {"num_experts", shape.experts},
                   {"num_experts_per_tok", 3},
                   {"moe_intermediate_size", 16},
                   {"norm_topk_prob", true},
                   {"mlp_only_layers", shape.experts_below ? nlohmann::json::array() : nlohmann::json{1}}});
  }
  if (shape.shared_expert) {
    config.erase("attention_bias");
    config.update({{"architectures", {"Qwen2MoeForCausalLM"}}, {"shared_expert_intermediate_size", 20}});
  }
  if (shape.latent) {
    config.erase("head_dim");
    for (const char* key : {"num_experts", "mlp_only_layers"}) config.erase(key);
    config.update({{"architectures", {"DeepseekV3ForCausalLM"}},
                   {"num_key_value_heads", 4},
                   {"q_lora_rank", 12},
                   {"kv_lora_rank", 10},
                   {"qk_nope_head_dim", 6},
                   {"qk_rope_head_dim", 4},
                   {"v_head_dim", 7},
                   {"n_routed_experts", shape.experts},
                   {"n_group", 2},
                   {"topk_group", 2},
                   {"first_k_dense_replace", 1}});
  }
  return parse_model_config(config, "the tiny model");
}

inline bool is_experts(const TensorSpec& tensor) { return tensor.name.find(".experts.") != std::string::npos; }

// As in releases, all matrices of layers but routers.
inline bool is_fp8(const Shape& shape, const TensorSpec& tensor) {
  return shape.fp8 && tensor.role == TensorRole::matrix && tensor.name.starts_with("model.layers.") &&
         tensor.name.find("mlp.gate.") == std::string::npos;
}

inline TensorTypes source_types(const Shape& shape) {
  TensorTypes types;
  if (!shape.bf16_source && !shape.mxfp4_source && !shape.fp8_source) return types;
  for (const LayerLayout& layout : model_layouts(model_config(shape))) {
    for (const TensorSpec& tensor : layout.tensors) {
      const bool packed = shape.mxfp4_source && is_experts(tensor);
      types[tensor.name] = {DType::bf16, packed ? WeightPacking::mxfp4 : WeightPacking::none};
      if (shape.fp8_source && is_fp8(shape, tensor)) types[tensor.name] = {DType::bf16, WeightPacking::fp8};
    }
  }
  return types;
}

inline std::vector<float> fp8_scales_of(const TensorSpec& tensor) {
  return some_fp8_scales(tensor.rows, tensor.cols, 0.2, tensor.name_hash());
}

// The initial weights of a matrix in fp8.
inline Fp8Matrix fp8_matrix(const ModelConfig& model, TensorSpec tensor) {
  tensor.packing = WeightPacking::none;
  tensor.exact = false;
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  init_tensor(model, tensor, 7, 0, tensor.elements(), values.data());
  return to_fp8(values, tensor.rows, tensor.cols, fp8_scales_of(tensor));
}

// The keys that ask for these adapters.
inline TrainConfig::Adapter adapter_keys(const AdapterRules& rules) {
  return {.rank = rules.rank,
          .alpha = rules.alpha,
          .dropout = rules.dropout,
          .targets = rules.targets,
          .target_parameters = rules.target_parameters,
          .exclude = rules.exclude,
          .rslora = rules.rslora,
          .dora = rules.dora,
          .bias = rules.bias == AdapterBias::all          ? "all"
                  : rules.bias == AdapterBias::of_adapted ? "lora_only"
                                                          : "none",
          .init = rules.init == AdapterInit::gaussian ? "gaussian" : "kaiming",
          .rank_pattern = rules.rank_pattern,
          .alpha_pattern = rules.alpha_pattern,
          .also_train = rules.also_train,
          .trainable_token_indices = rules.token_indices};
}

inline TrainConfig train_config(const Shape& shape, const std::string& device) {
  TrainConfig config;
  config.device = device;
  config.threads = 2;
  config.data.documents = "ragged";  // as many as there are tokens, like those of make_batch()
  config.precision = shape.precision;
  config.seq_len = shape.seq_len;
  config.batch = shape.sequences;
  config.micro_batch = shape.sequences / shape.micro_batches;
  config.optim.clip = shape.clip ? 0.5 : 0;
  if (shape.aux_loss > 0) config.moe.aux_loss = shape.aux_loss;
  config.moe.z_loss = shape.z_loss;
  config.state = {.moments = shape.moments, .master = shape.master};
  config.dump.grads.all = shape.dumps;
  config.freeze = shape.freezing.freeze;
  config.train_only = shape.freezing.train_only;
  config.adapter = adapter_keys(shape.freezing.adapter);
  config.memory.base = shape.base_place;
  config.memory.gpu_bytes = config.memory.host_bytes = int64_t{1} << 33;
  if (!shape.prompts.empty()) {
    config.sample = {.every = 1, .prompts = shape.prompts, .max_tokens = 8};
    config.memory.nvme_path = std::filesystem::temp_directory_path().string();
  }
  return config;
}

// Ragged documents; some labels are not trained.
inline Batch make_batch(const Shape& shape, int64_t step) {
  Batch batch;
  const int64_t tokens = shape.sequences / shape.micro_batches * shape.seq_len;
  const auto vocab = static_cast<uint64_t>(shape.vocab);
  for (int64_t m = 0; m < shape.micro_batches; ++m) {
    MicroBatch micro;
    int64_t position = 0, length = 0;
    const uint64_t first = static_cast<uint64_t>((step * shape.micro_batches + m) * tokens);
    const int64_t filled = shape.partly_filled
                               ? 1 + static_cast<int64_t>(random_below(5, 5, first, static_cast<uint64_t>(tokens)))
                               : tokens;
    for (int64_t t = 0; t < (shape.cut ? filled : tokens); ++t) {
      const uint64_t index = first + static_cast<uint64_t>(t);
      if (t == 0 || t == filled || position == length) {
        position = 0;
        length = 1 + static_cast<int64_t>(random_below(5, 1, index, static_cast<uint64_t>(shape.seq_len)));
        micro.document_begin.push_back(static_cast<int32_t>(t));
      }
      const bool trained = (shape.partly_filled && t == 0) || (t < filled && random_below(5, 2, index, 4) != 0);
      micro.tokens.push_back(t < filled ? static_cast<int32_t>(random_below(5, 3, index, vocab)) : 0);
      micro.positions.push_back(static_cast<int32_t>(position++));
      micro.labels.push_back(trained ? static_cast<int32_t>(random_below(5, 4, index, vocab)) : kIgnoreLabel);
      micro.longest = std::max(micro.longest, position);
      micro.trained += trained;
    }
    micro.document_begin.push_back(static_cast<int32_t>(micro.tokens.size()));
    micro.uniform = false;
    batch.tokens += std::ssize(micro.tokens);
    batch.trained += micro.trained;
    batch.micro_batches.push_back(std::move(micro));
  }
  return batch;
}

// The same with matrices in fp8.
inline void write_fp8_base(const Shape& shape, const std::string& directory) {
  const ModelConfig model = model_config(shape);
  RawTensors tensors;
  for (const LayerLayout& layout : model_layouts(model)) {
    for (const TensorSpec& tensor : layout.tensors) {
      if (is_fp8(shape, tensor)) {
        add_fp8(tensors, tensor.name, fp8_matrix(model, tensor));
        continue;
      }
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      init_tensor(model, tensor, 7, 0, tensor.elements(), values.data());
      std::vector<bf16> narrow;
      for (const float value : values) narrow.push_back(to_bf16(value));
      tensors[tensor.name] = {"BF16", tensor_shape(tensor), bytes_of(narrow.data(), 2 * narrow.size())};
    }
  }
  write_raw(directory + "/model.safetensors", tensors);
}

// Writes the initial weights as model.safetensors.
inline void write_base(const Shape& shape, const std::string& directory) {
  if (shape.fp8_source) return write_fp8_base(shape, directory);
  const ModelConfig model = model_config(shape);
  std::vector<TensorDeclaration> tensors;
  for (const LayerLayout& layout : model_layouts(model)) {
    for (const TensorSpec& tensor : layout.tensors)
      tensors.push_back({tensor.name, *shape.files, tensor_shape(tensor)});
  }
  SafetensorsWriter writer(directory + "/model.safetensors", tensors);
  for (const LayerLayout& layout : model_layouts(model)) {
    for (const TensorSpec& tensor : layout.tensors) {
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      init_tensor(model, tensor, 7, 0, tensor.elements(), values.data());
      if (is_fp8(shape, tensor)) values = fp8_matrix(model, tensor).values(*shape.files);
      writer.write_f32(tensor.name, 0, values.data(), tensor.elements());
    }
  }
  writer.finish();
}

// The model of a shape; with files, they are in `directory`.
inline ModelSource model_source(const Shape& shape, const std::string& directory) {
  if (!shape.files) return {.config = model_config(shape), .types = source_types(shape)};
  write_base(shape, directory);
  return {.config = model_config(shape), .directory = directory, .types = stored_types(directory, model_config(shape))};
}

class Tiny {
 public:
  explicit Tiny(const Shape& shape, const std::string& device = "cpu")
      : shape_(shape), session_(train_config(shape, device), model_source(shape, directory_.path())) {
    machine().disk.place.directory = std::filesystem::temp_directory_path().string();
    session_.group_experts(shape.experts_per_record);
    if (shape.alias_layers > 0) session_.alias_layers(shape.alias_layers);
  }

  const Workload& workload() { return session_.workload(); }
  Machine& machine() { return session_.machine(); }
  const Plan& default_plan() {
    if (!default_plan_)
      default_plan_ = make_plan(workload(), {int64_t{1} << 40, int64_t{1} << 40}, session_.profile(), nullptr);
    return *default_plan_;
  }

  std::unique_ptr<Trainer> trainer(const Plan& plan) {
    auto trainer = session_.make_trainer(plan);
    if (shape_.files) {
      load_weights(directory_.path(), trainer->records(), 2);
      init_adapters(session_.model(), 7, trainer->records(), 2);
      return trainer;
    }
    if (!shape_.rounded && !shape_.bf16_source && !shape_.mxfp4_experts && !shape_.fp8) {
      init_weights(session_.model(), 7, trainer->records(), 2);
      return trainer;
    }
    draw_fp8_scales(trainer->records());
    for_pieces(trainer->records(), 2, "drawing weights", [&](const TensorPiece& piece, float* values) {
      if (is_fp8(shape_, *piece.tensor)) {
        const std::vector<float> all = fp8_matrix(session_.model(), *piece.tensor).values(piece.record->dtype());
        return piece.record->write_master(*piece.tensor, piece.begin, piece.count, all.data() + piece.begin);
      }
      TensorSpec drawn = *piece.tensor;  // the same values, packed or not
      drawn.packing = WeightPacking::none;
      init_tensor(session_.model(), drawn, 7, piece.begin, piece.count, values);
      const bool packed = shape_.mxfp4_experts && is_experts(*piece.tensor);
      if (piece.tensor->is_adapter())
        return piece.record->write_master(*piece.tensor, piece.begin, piece.count, values);
      std::transform(values, values + piece.count, values, [&](float x) {
        return packed ? std::clamp(std::round(8 * x), -4.0f, 4.0f) / 8 : to_float(to_bf16(x));
      });
      piece.record->write_master(*piece.tensor, piece.begin, piece.count, values);
    });
    init_magnitudes(trainer->records(), 2);
    return trainer;
  }

  StepReport step(Trainer& trainer, int64_t step, double lr = 1e-2) const {
    const AdamWStep adamw{.lr = lr, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .t = step};
    return trainer.step(make_batch(shape_, step - 1), {.adamw = adamw, .clip = session_.config().optim.clip});
  }

  // The state's hash after `steps` steps, followed by the bits of every step's norm.
  std::string train(const Plan& plan, int64_t steps) {
    const auto trained = trainer(plan);
    std::string norms;
    for (int64_t s = 1; s <= steps; ++s) norms += fmt::format(" {:a}", step(*trained, s).grad_norm);
    trained->drain();
    return hash_state(trained->records(), steps).state + norms;
  }

  std::string base() const { return directory_ / "model.safetensors"; }  // with shape.files

 private:
  static void draw_fp8_scales(std::vector<LayerRecord>& records) {
    for (LayerRecord& record : records) {
      for (const TensorSpec& tensor : record.layout().tensors) {
        if (!record.packed() || tensor.packing != WeightPacking::fp8) continue;
        const std::vector<float> scales = fp8_scales_of(tensor);
        record.write_packed(LayerRecord::Packed::scales, tensor, 0, 4 * std::ssize(scales), scales.data());
      }
    }
  }

  Shape shape_;
  TemporaryDirectory directory_;
  Session session_;
  std::optional<Plan> default_plan_;
};

// Whether more blocks stream than the slots can hold at once.
inline bool streams_more_than_slots_hold(const Workload& w, const Plan& plan) {
  return plan.streaming(w) > plan.rings.weight_slots + plan.rings.small_slots;
}

}  // namespace megatrain::tiny
