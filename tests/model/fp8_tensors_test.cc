// Matrices in block-scaled fp8: what loading makes of them, what config.json says, and what is refused.
#include "megatrain/model/fp8_tensors.h"
#include "megatrain/model/parse_config.h"

#include <filesystem>

#include "megatrain/base/bf16.h"
#include "megatrain/device/device.h"
#include "megatrain/model/files/base_files.h"
#include "megatrain/model/files/load_weights.h"
#include "megatrain/model/model.h"
#include "megatrain/model/model_source.h"
#include "megatrain/model/stored_tensors.h"
#include "tests/support/fixtures.h"
#include "tests/support/fp8_files.h"
#include "tests/support/said.h"

namespace megatrain {
namespace {

const std::string kMatrix = "model.layers.0.mlp.down_proj.weight";  // (136, 140)
const std::string kScales = kMatrix + "_scale_inv";                 // (2, 2)

nlohmann::json config_json() {
  return {
      {"architectures", {"Qwen3ForCausalLM"}},
      {"vocab_size", 40},
      {"hidden_size", 136},
      {"intermediate_size", 140},
      {"num_hidden_layers", 2},
      {"num_attention_heads", 2},
      {"num_key_value_heads", 1},
      {"head_dim", 32},
      {"torch_dtype", "bfloat16"},
      {"max_position_embeddings", 64},
      {"quantization_config",
       {{"quant_method", "fp8"},
        {"fmt", "e4m3"},
        {"activation_scheme", "dynamic"},
        {"weight_block_size", {128, 128}},
        {"modules_to_not_convert", {"lm_head", "model.layers.1.self_attn.q_proj", "model.layers.1.input_layernorm"}}}}};
}

// A directory with the matrices of layers in fp8, which a test changes before it loads.
class Fp8Directory {
 public:
  Fp8Directory() {
    for (const LayerLayout& layout : model_layouts(parse_model_config(config, "config.json"))) {
      for (const TensorSpec& tensor : layout.tensors) {
        std::vector<float> values(static_cast<size_t>(tensor.elements()));
        const ModelConfig model = parse_model_config(config, "config.json");
        init_tensor(model, tensor, 3, 0, tensor.elements(), values.data());
        if (is_declared_fp8(model, tensor)) {
          matrices[tensor.name] = to_fp8(values, tensor.rows, tensor.cols,
                                         some_fp8_scales(tensor.rows, tensor.cols, 0.02, tensor.name_hash()));
          add_fp8(tensors, tensor.name, matrices[tensor.name]);
          continue;
        }
        std::vector<bf16> narrow;
        for (const float value : values) narrow.push_back(to_bf16(value));
        tensors[tensor.name] = {"BF16", tensor_shape(tensor), bytes_of(narrow.data(), 2 * narrow.size())};
      }
    }
  }

  void write() {
    write_bytes(out / "config.json", config.dump());
    write_raw(out / "model.safetensors", tensors);
  }

  // The records of a model in which `rules` leaves tensors frozen.
  std::vector<LayerRecord> load(DType dtype, const TrainRules& rules = {}) {
    write();
    const ModelConfig model = parse_model_config(config, "config.json");
    layouts = make_model(model, {.dtype = dtype, .tokens = 8, .positions = 8}, rules, stored_types(out.path(), model))
                  .layouts();
    std::vector<LayerRecord> records = make_records(*device, layouts, std::vector<Tier>(layouts.size(), Tier::host));
    load_weights(out.path(), records, 2);
    return records;
  }

  void refused(std::initializer_list<std::string> parts) {
    write();
    expect_error(ExitCode::bad_input, parts,
                 [&] { check_weights(out.path(), parse_model_config(config, "config.json")); });
  }

  nlohmann::json config = config_json();
  RawTensors tensors;
  std::map<std::string, Fp8Matrix> matrices;
  TemporaryDirectory out;
  std::unique_ptr<Device> device = make_cpu_device();
  std::vector<LayerLayout> layouts;
};

std::vector<float> master(const std::vector<LayerRecord>& records, const std::string& name) {
  for (const LayerRecord& record : records) {
    for (const TensorSpec& tensor : record.layout().tensors) {
      if (tensor.name != name) continue;
      std::vector<float> values(static_cast<size_t>(tensor.elements()));
      record.read_master(tensor, 0, tensor.elements(), values.data());
      return values;
    }
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

TEST(Fp8Tensors, AreTheirDequantisedValuesWhetherTrainedOrFrozen) {
  Fp8Directory model;
  EXPECT_EQ(model.matrices.size(), 2 * 7 - 1) << "all but the exception";
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const bool frozen : {false, true}) {
      TrainRules rules;
      if (frozen) rules.freeze = {"model.layers.*"};
      const std::vector<LayerRecord> records = model.load(dtype, rules);
      int64_t packed = 0;
      for (const LayerRecord& record : records) packed += record.packed();
      EXPECT_EQ(packed, frozen ? 2 : 0);
      for (const auto& [name, matrix] : model.matrices) EXPECT_EQ(master(records, name), matrix.values(dtype)) << name;
    }
  }
}

TEST(Fp8Tensors, AFrozenLayerTakesAByteAWeightAndItsScales) {
  Fp8Directory model;
  const std::vector<LayerRecord> records = model.load(DType::bf16, {.adapter = {.rank = 2}});
  for (const LayerRecord& record : records) {
    const LayerLayout& layout = record.layout();
    if (!layout.packed()) continue;
    int64_t bytes = 0;
    for (const TensorSpec& tensor : layout.tensors) {
      const bool fp8 = model.matrices.contains(tensor.name);
      bytes += fp8 ? tensor.elements() + 4 * fp8_scales(tensor.rows, tensor.cols) : 2 * tensor.elements();
    }
    EXPECT_GE(layout.packed_bytes, bytes);
    EXPECT_LT(layout.packed_bytes, bytes + std::ssize(layout.tensors) * (kPackedAlignment + 16));
  }
}

TEST(Fp8Tensors, ScalesInBf16AreReadFromMemoryAndFromFiles) {
  Fp8Directory model;
  for (auto& [name, matrix] : model.matrices) {
    std::vector<bf16> narrow;
    for (float& scale : matrix.scales) {
      narrow.push_back(to_bf16(scale));
      scale = to_float(narrow.back());
    }
    RawTensor& scales = model.tensors.at(name + "_scale_inv");
    scales.type = "BF16";
    scales.bytes = bytes_of(narrow.data(), 2 * narrow.size());
  }
  const std::vector<LayerRecord> records = model.load(DType::bf16, {.adapter = {.rank = 2}});
  std::vector<bool> wanted;
  for (const LayerLayout& layout : model.layouts) wanted.push_back(layout.packed());
  BaseFiles files(model.out.path(), model.layouts, wanted);
  for (size_t r = 0; r < records.size(); ++r) {
    if (!wanted[r]) continue;
    std::vector<std::byte> stored(static_cast<size_t>(model.layouts[r].stored_bytes()), std::byte{0xAA});
    files.read(static_cast<int64_t>(r), 0, std::ssize(stored), stored.data());
    EXPECT_EQ(std::memcmp(stored.data(), records[r].weights(), stored.size()), 0);
  }
  for (const auto& [name, matrix] : model.matrices)
    EXPECT_EQ(master(records, name), matrix.values(DType::bf16)) << name;
}

TEST(Fp8Tensors, TheLogNamesTheFormat) {
  Fp8Directory model;
  EXPECT_NE(logged_by([&] {
              model.load(DType::bf16);
            }).find("13 matrices of " + model.out.path() + " are in block-scaled fp8 and are read as bf16"),
            std::string::npos);
  EXPECT_NE(logged_by([&] { model.load(DType::bf16, {.adapter = {.rank = 2}}); }).find("stay in block-scaled fp8"),
            std::string::npos);
  const auto unannounced = [&] { return logged_by([&] { model.load(DType::bf16); }).find("'quantization_config'"); };
  EXPECT_EQ(unannounced(), std::string::npos);
  model.config.erase("quantization_config");
  EXPECT_NE(unannounced(), std::string::npos);
}

TEST(Fp8Tensors, WhatConfigJsonSaysSufficesToPlan) {
  Fp8Directory model;
  model.write();
  const ModelConfig config = parse_model_config(model.config, "config.json");
  const TensorTypes declared = declared_types(config), stored = stored_types(model.out.path(), config);
  ASSERT_EQ(declared.size(), stored.size());
  for (const auto& [name, type] : stored) {
    EXPECT_EQ(declared.at(name).dtype, type.dtype) << name;
    EXPECT_EQ(declared.at(name).packing, type.packing) << name;
  }
}

TEST(Fp8Tensors, ExceptionsMatchAsTransformersMatchesThem) {
  const auto converted = [](const nlohmann::json& exceptions, const char* module) {
    nlohmann::json config = config_json();
    config["quantization_config"]["modules_to_not_convert"] = exceptions;
    return is_declared_fp8(parse_model_config(config, "config.json"),
                           {.name = std::string("model.layers.1.") + module + ".weight", .rows = 4, .cols = 4});
  };
  const nlohmann::json none = nlohmann::json::array();
  EXPECT_TRUE(converted(none, "self_attn.q_proj"));
  EXPECT_TRUE(converted(nullptr, "self_attn.q_proj"));
  EXPECT_FALSE(converted({"q_proj"}, "self_attn.q_proj"));
  EXPECT_FALSE(converted({"model.layers.1"}, "self_attn.q_proj"));
  EXPECT_TRUE(converted({"model.layers.11"}, "self_attn.q_proj"));
  EXPECT_FALSE(converted({"model.layers.*.self_attn"}, "self_attn.q_proj"));
  EXPECT_TRUE(converted({"model.layers.*.mlp.gate"}, "mlp.gate_proj"));
  EXPECT_FALSE(converted({R"(model\.layers\.\d+\.mlp)"}, "mlp.gate_proj"));
}

TEST(Fp8Tensors, ScalesThatDoNotFitAreRefused) {
  {
    Fp8Directory model;
    model.tensors.erase(kScales);
    model.refused({"model.safetensors", kMatrix, "F8_E4M3", "no " + kScales, "128 x 128"});
    model.tensors[kMatrix + "_scale"] = {"F32", {1}, std::string(4, 0)};
    model.refused({"no " + kScales, "but " + kMatrix + "_scale", "another format"});
  }
  for (const auto& [type, shape, bytes] : {std::tuple{"F32", std::vector<int64_t>{1}, 4},
                                           {"F32", {2, 1}, 8},
                                           {"F32", {3, 2}, 24},
                                           {"U8", {2, 2}, 4},
                                           {"F16", {2, 2}, 8}}) {
    Fp8Directory model;
    model.tensors[kScales] = {type, shape, std::string(static_cast<size_t>(bytes), 0)};
    model.refused({kScales, type, format_shape(shape), "expected F32 or BF16 of shape (2, 2)"});
  }
  {
    Fp8Directory model;
    RawTensor& matrix = model.tensors.at(kMatrix);
    std::swap(matrix.shape[0], matrix.shape[1]);
    model.refused({kMatrix, "(140, 136)", "(136, 140)"});
  }
  {
    Fp8Directory model;
    model.tensors.at(kMatrix).type = "F8_E5M2";
    model.refused({kMatrix, "F8_E5M2", "F8_E4M3"});
  }
  {
    Fp8Directory model;
    model.tensors[kMatrix] = {"BF16", {136, 140}, std::string(2 * 136 * 140, 0)};
    model.refused({kMatrix, "BF16", kScales, "remove"});
  }
}

TEST(Fp8Tensors, OnlyMatricesOfLayersAreRead) {
  for (const std::string name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    Fp8Directory model;
    model.tensors[name] = {"F8_E4M3", {40, 136}, std::string(40 * 136, 0)};
    model.tensors[name + "_scale_inv"] = {"F32", {1, 2}, std::string(8, 0)};
    model.refused({name, "F8_E4M3", "only the matrices of layers", "bf16"});
  }
  Fp8Directory model;
  model.tensors["model.norm.weight"] = {"F8_E4M3", {136}, std::string(136, 0)};
  model.refused({"model.norm.weight", "F8_E4M3"});
}

TEST(Fp8Tensors, OfAQuantizationConfigEveryFieldIsKnown) {
  const auto refused = [](const nlohmann::json& field, std::initializer_list<std::string> parts) {
    nlohmann::json config = config_json();
    config["quantization_config"] = field;
    expect_error(ExitCode::bad_input, parts, [&] { parse_model_config(config, "config.json"); });
  };
  refused({{"quant_method", "fp8"}, {"group", 3}}, {"quantization_config", "group", "does not know"});
  refused({{"quant_method", "fp8"}, {"modules_to_not_convert", {1}}}, {"modules_to_not_convert", "[1]"});
  refused({{"quant_method", "fp8"}, {"weight_block_size", {64, 128}}}, {"weight_block_size", "128 x 128"});
  refused({{"quant_method", "gptq"}, {"bits", 4}}, {"gptq", "4 bits", "hf download"});
  refused({{"quant_method", "mxfp4"}}, {"quantization_config", "mxfp4", "not read for this architecture"});
  refused({{"bits", 4}}, {"quantization_config", "quant_method"});
}

TEST(Fp8Tensors, AnExportsConfigHasNoQuantization) {
  std::string changed;
  const std::string said = logged_by([&] { changed = unquantised_config(config_json().dump(), DType::bf16); });
  EXPECT_FALSE(nlohmann::json::parse(changed).contains("quantization_config"));
  EXPECT_NE(said.find("holds the weights in bf16 and not in block-scaled fp8"), std::string::npos) << said;
}

}  // namespace
}  // namespace megatrain
