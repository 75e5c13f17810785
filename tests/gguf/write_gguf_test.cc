#include "megatrain/gguf/write_gguf.h"
#include "megatrain/model/layers/rope_table.h"
#include "megatrain/model/parse_config.h"

#include <filesystem>

#include "megatrain/gguf/architecture.h"
#include "megatrain/io/json_file.h"
#include "megatrain/model/model.h"
#include "tests/gguf/fixtures.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A golden model of tests/parity with its tensors.
struct Golden {
  explicit Golden(const std::string& name, const std::function<void(json&)>& change = {})
      : files(kGoldens + name + "/model") {
    json config = read_json_file(kGoldens + name + "/model/config.json");
    if (change) change(config);
    model = parse_model_config(config, "config.json");
    layouts = model_layouts(model);
    for (const LayerLayout& layout : layouts) {
      for (const TensorSpec& tensor : layout.tensors) specs.push_back(&tensor);
    }
  }

  std::vector<float> values(const std::string& name) const {
    for (const TensorSpec* spec : specs) {
      if (spec->name != name) continue;
      std::vector<float> values(static_cast<size_t>(spec->elements()));
      read_source(find_source(files, *spec), *spec, DType::f32, 0, spec->elements(), values.data());
      return values;
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

  ReadGguf written(GgufType type) const {
    const TemporaryDirectory directory;
    const ModelText text = text_of(directory, "qwen");
    const auto read = [&](const TensorSpec& part, int64_t begin, int64_t count, float* out) {
      read_source(find_source(files, part), part, DType::f32, begin, count, out);
    };
    int64_t done = 0;
    const GgufReport report = write_gguf({directory / "model.gguf", type, "golden", model, specs}, text, read,
                                         [&](const TensorSpec&) { ++done; });
    EXPECT_EQ(done, std::ssize(specs));
    EXPECT_EQ(report.bytes, static_cast<int64_t>(fs::file_size(directory / "model.gguf")));
    ReadGguf file = read_gguf(directory / "model.gguf");
    EXPECT_EQ(report.tensors, std::ssize(file.tensors));
    EXPECT_EQ(file.metadata.at("general.architecture"), report.architecture);
    return file;
  }

  ModelFiles files;
  ModelConfig model;
  std::vector<LayerLayout> layouts;
  std::vector<const TensorSpec*> specs;
};

std::vector<double> doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

void expect_refused(const Golden& golden, std::initializer_list<std::string> parts) {
  expect_error(ExitCode::bad_input, parts, [&] { gguf_family(golden.model); });
}

}  // namespace

TEST(WriteGguf, EveryFamilysTensorsAreTheModelsOwn) {
  const std::map<std::string, std::string> architectures = {
      {"llama_bias", "llama"}, {"mistral_packed", "llama"}, {"mixtral", "llama"},     {"qwen2_tied", "qwen2"},
      {"qwen3_norm", "qwen3"}, {"qwen3_moe", "qwen3moe"},   {"phi3_long", "phi3"},    {"gpt_oss", "gpt-oss"},
      {"olmo2", "olmo2"},      {"olmo3", "olmo2"},          {"seed_oss", "seed_oss"}, {"ministral3", "mistral3"},
      {"glm4", "glm4"}};
  for (const auto& [name, architecture] : architectures) {
    const Golden golden(name);
    const ReadGguf file = golden.written(GgufType::f32);
    EXPECT_EQ(file.metadata.at("general.architecture"), architecture);
    EXPECT_EQ(file.metadata.at(architecture + ".block_count"), golden.model.layers);
    EXPECT_EQ(file.metadata.at(architecture + ".attention.head_count"), golden.model.heads);
    EXPECT_EQ(file.metadata.at(architecture + ".attention.head_count_kv"), golden.model.kv_heads);
    EXPECT_EQ(file.tensors.at("token_embd.weight").values, doubles(golden.values("model.embed_tokens.weight"))) << name;
    EXPECT_EQ(file.tensors.contains("output.weight"), !golden.model.tied) << name;
    // Together they hold every number of the model, in any order.
    double sum = 0, expected = 0;
    for (const auto& [tensor, read] : file.tensors) {
      if (tensor.starts_with("rope_")) continue;
      for (const double value : read.values) sum += value * value;
    }
    for (const TensorSpec* spec : golden.specs) {
      for (const double value : golden.values(spec->name)) expected += value * value;
    }
    EXPECT_NEAR(sum, expected, 1e-9 * expected) << name;
  }
}

TEST(WriteGguf, LlamasPairsStandSideBySide) {
  const Golden golden("llama_bias");
  const ReadGguf file = golden.written(GgufType::f32);
  const std::vector<float> q = golden.values("model.layers.1.self_attn.q_proj.weight"),
                           bias = golden.values("model.layers.1.self_attn.k_proj.bias");
  const int64_t dim = golden.model.head_dim, hidden = golden.model.hidden;
  for (int64_t head = 0; head < golden.model.heads; ++head) {
    for (int64_t pair = 0; pair < dim / 2; ++pair) {
      for (const int64_t half : {0, 1}) {
        const int64_t ours = head * dim + half * (dim / 2) + pair, theirs = head * dim + 2 * pair + half;
        for (int64_t i = 0; i < hidden; ++i)
          ASSERT_EQ(file.tensors.at("blk.1.attn_q.weight").values[static_cast<size_t>(theirs * hidden + i)],
                    q[static_cast<size_t>(ours * hidden + i)]);
        if (head < golden.model.kv_heads) {
          ASSERT_EQ(file.tensors.at("blk.1.attn_k.bias").values[static_cast<size_t>(theirs)],
                    bias[static_cast<size_t>(ours)]);
        }
      }
    }
  }
  EXPECT_EQ(file.tensors.at("blk.1.attn_v.weight").values,
            doubles(golden.values("model.layers.1.self_attn.v_proj.weight")));
  EXPECT_EQ(Golden("qwen3_norm").written(GgufType::f32).tensors.at("blk.0.attn_q.weight").values,
            doubles(Golden("qwen3_norm").values("model.layers.0.self_attn.q_proj.weight")));
}

TEST(WriteGguf, GemmasNormsAreWhole) {
  const Golden golden("gemma3_local", [](json& config) { config["query_pre_attn_scalar"] = config["head_dim"]; });
  const ReadGguf file = golden.written(GgufType::bf16);
  const std::map<std::string, std::string> norms = {{"attn_norm", "input_layernorm"},
                                                    {"post_attention_norm", "post_attention_layernorm"},
                                                    {"ffn_norm", "pre_feedforward_layernorm"},
                                                    {"post_ffw_norm", "post_feedforward_layernorm"},
                                                    {"attn_q_norm", "self_attn.q_norm"}};
  for (const auto& [theirs, ours] : norms) {
    std::vector<float> expected = golden.values("model.layers.0." + ours + ".weight");
    for (float& value : expected) value += 1.0f;
    const ReadTensor& read = file.tensors.at("blk.0." + theirs + ".weight");
    EXPECT_EQ(read.type, 0u);
    EXPECT_EQ(read.values, doubles(expected)) << theirs;
  }
  EXPECT_EQ(file.metadata.at("gemma3.attention.sliding_window"), 7);
  EXPECT_EQ(file.metadata.at("gemma3.rope.freq_base_swa"), golden.model.window_rope->theta);
}

TEST(WriteGguf, ExpertsOfALayerAreOneTensor) {
  const Golden golden("gpt_oss_mxfp4", [](json& config) { config["swiglu_limit"] = 7.0; });
  const ReadGguf file = golden.written(GgufType::f32);
  const ReadTensor& up = file.tensors.at("blk.1.ffn_up_exps.weight");
  EXPECT_EQ(up.shape, (std::vector<int64_t>{golden.model.hidden, golden.model.experts.ff, golden.model.experts.count}));
  std::vector<double> expected, bias;
  for (int64_t e = 0; e < golden.model.experts.count; ++e) {
    const std::string name = "model.layers.1.mlp.experts." + std::to_string(e);
    for (const double value : golden.values(name + ".up_proj.weight")) expected.push_back(value);
    for (const double value : golden.values(name + ".down_proj.bias")) bias.push_back(value);
  }
  EXPECT_EQ(up.values, expected);
  EXPECT_EQ(file.tensors.at("blk.1.ffn_down_exps.bias").values, bias);
  EXPECT_EQ(file.tensors.at("blk.1.attn_sinks.weight").values,
            doubles(golden.values("model.layers.1.self_attn.sinks")));
}

TEST(WriteGguf, KeepsVectorsAndRoutersInF32InEveryType) {
  const Golden golden("qwen3_moe");
  for (const GgufType type : {GgufType::f16, GgufType::bf16, GgufType::q8_0}) {
    const ReadGguf file = golden.written(type);
    EXPECT_EQ(file.metadata.at("general.file_type"), gguf_file_type(type));
    for (const auto& [name, tensor] : file.tensors) {
      const bool kept = tensor.shape.size() == 1 || name.find("ffn_gate_inp") != std::string::npos;
      const GgufType expected = kept ? GgufType::f32 : type_for_rows(type, tensor.shape.front());
      EXPECT_EQ(tensor.type, gguf_type_number(expected)) << name;
    }
    EXPECT_EQ(file.tensors.at("blk.0.ffn_gate_inp.weight").values,
              doubles(golden.values("model.layers.0.mlp.gate.weight")));
  }
}

TEST(WriteGguf, Llama3sRopeIsATensorOfFactors) {
  const Golden golden("llama_llama3");
  const ReadGguf file = golden.written(GgufType::f32);
  const std::vector<double> scaled = rope_frequencies(golden.model.rope, golden.model.head_dim);
  const std::vector<double>& factors = file.tensors.at("rope_freqs.weight").values;
  ASSERT_EQ(factors.size(), scaled.size());
  for (size_t i = 0; i < scaled.size(); ++i) {
    const double plain =
        std::pow(golden.model.rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(golden.model.head_dim));
    EXPECT_NEAR(plain / factors[i], scaled[i], 1e-6 * scaled[i]);
  }
  EXPECT_EQ(factors.front(), 1.0);
  EXPECT_GT(factors.back(), 1.5);
}

TEST(WriteGguf, ScalesOfRopeAreKeys) {
  const json yarn = Golden("llama_yarn").written(GgufType::f32).metadata;
  EXPECT_EQ(yarn.at("llama.rope.scaling.type"), "yarn");
  const RopeConfig rope = Golden("llama_yarn").model.rope;
  EXPECT_FLOAT_EQ(yarn.at("llama.rope.scaling.factor").get<float>(), static_cast<float>(rope.factor));
  EXPECT_NEAR(yarn.at("llama.rope.scaling.attn_factor").get<double>() * (1 + 0.1 * std::log(rope.factor)),
              rope.attention_factor, 1e-6);
  EXPECT_EQ(Golden("llama_linear").written(GgufType::f32).metadata.at("llama.rope.scaling.type"), "linear");
  const ReadGguf phi = Golden("phi3_long").written(GgufType::f32);
  EXPECT_EQ(phi.tensors.at("rope_factors_long.weight").values.size(),
            Golden("phi3_long").model.rope.long_factor.size());
}

TEST(WriteGguf, EndsTheContextWhereLlamaCppHasNoWindow) {
  const Golden golden("mistral_window");
  EXPECT_EQ(golden.written(GgufType::f32).metadata.at("llama.context_length"), golden.model.window.front());
  const Golden without("llama_mha");
  EXPECT_EQ(without.written(GgufType::f32).metadata.at("llama.context_length"), without.model.max_position);
}

TEST(WriteGguf, RefusesByNameWhatLlamaCppComputesOtherwise) {
  expect_refused(Golden("qwen3_moe_dense",
                        [](json& config) {
                          config.update({{"attention_bias", false}, {"norm_topk_prob", true}});
                        }),
                 {"Qwen3MoeForCausalLM", "dense layers"});
  expect_refused(Golden("gemma3_local"), {"query_pre_attn_scalar of 80", "takes 16"});
  expect_refused(Golden("gpt_oss", [](json& config) { config["swiglu_limit"] = 5.0; }), {"swiglu_limit of 5"});
  expect_refused(Golden("gpt_oss",
                        [](json& config) {
                          config["layer_types"] = {"full_attention", "full_attention"};
                        }),
                 {"layer_types"});
  expect_refused(Golden("qwen3_norm", [](json& config) { config["attention_bias"] = true; }), {"attention_bias"});
  expect_refused(Golden("qwen3_moe", [](json& config) { config["norm_topk_prob"] = false; }), {"norm_topk_prob"});
  const Family unknown{.architecture = "FalconForCausalLM", .read = nullptr, .tensors = nullptr, .phases = nullptr};
  expect_error(ExitCode::bad_input, {"FalconForCausalLM", "without --gguf"}, [&] { llama_cpp_of(unknown); });
}

TEST(WriteGguf, LeavesNothingWhenATensorCannotBeHeld) {
  const Golden golden("llama_mha");
  const TemporaryDirectory directory;
  const ModelText text = text_of(directory, "qwen");
  const auto read = [](const TensorSpec& part, int64_t, int64_t count, float* out) {
    std::fill(out, out + count, part.name.find("down_proj") != std::string::npos ? 1e6f : 0.5f);
  };
  expect_error(ExitCode::bad_input, {"ffn_down", "fp16"}, [&] {
    write_gguf({directory / "model.gguf", GgufType::f16, "golden", golden.model, golden.specs}, text, read,
               [](const TensorSpec&) {});
  });
  EXPECT_FALSE(fs::exists(directory / "model.gguf"));
  EXPECT_FALSE(fs::exists(directory / "model.gguf.partial"));
}

}  // namespace megatrain
