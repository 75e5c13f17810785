// config.json and layouts of the MoE families: what released files contain, what is refused, where experts lie.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "megatrain/io/json.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/layers/channels/experts.h"
#include "megatrain/model/config_fields.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/model.h"
#include "megatrain/model/presets.h"
#include "megatrain/tensor/block_operand.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

// Like gpt-oss-20b's, with fewer and narrower layers.
json gpt_oss() {
  return {{"architectures", {"GptOssForCausalLM"}},
          {"attention_bias", true},
          {"attention_dropout", 0.0},
          {"eos_token_id", 2},
          {"experts_per_token", 4},
          {"head_dim", 8},
          {"hidden_act", "silu"},
          {"hidden_size", 32},
          {"initial_context_length", 4096},
          {"initializer_range", 0.02},
          {"intermediate_size", 64},
          {"layer_types", {"sliding_attention", "full_attention"}},
          {"max_position_embeddings", 131072},
          {"model_type", "gpt_oss"},
          {"num_attention_heads", 4},
          {"num_experts_per_tok", 4},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 2},
          {"num_local_experts", 6},
          {"output_router_logits", false},
          {"pad_token_id", 99},
          {"quantization_config",
           {{"modules_to_not_convert", {"model.layers.*.self_attn", "lm_head"}}, {"quant_method", "mxfp4"}}},
          {"rms_norm_eps", 1e-05},
          {"rope_scaling",
           {{"beta_fast", 32.0},
            {"beta_slow", 1.0},
            {"factor", 32.0},
            {"original_max_position_embeddings", 4096},
            {"rope_type", "yarn"},
            {"truncate", false}}},
          {"rope_theta", 150000},
          {"router_aux_loss_coef", 0.9},
          {"sliding_window", 128},
          {"swiglu_limit", 7.0},
          {"tie_word_embeddings", false},
          {"transformers_version", "4.55.0.dev0"},
          {"use_cache", true},
          {"vocab_size", 100}};
}

// Like Qwen3-30B-A3B's.
json qwen3_moe() {
  return {{"architectures", {"Qwen3MoeForCausalLM"}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", 1},
          {"decoder_sparse_step", 1},
          {"eos_token_id", 2},
          {"head_dim", 16},
          {"hidden_act", "silu"},
          {"hidden_size", 32},
          {"initializer_range", 0.02},
          {"intermediate_size", 96},
          {"max_position_embeddings", 40960},
          {"max_window_layers", 48},
          {"mlp_only_layers", json::array()},
          {"model_type", "qwen3_moe"},
          {"moe_intermediate_size", 24},
          {"norm_topk_prob", true},
          {"num_attention_heads", 4},
          {"num_experts", 5},
          {"num_experts_per_tok", 2},
          {"num_hidden_layers", 4},
          {"num_key_value_heads", 2},
          {"output_router_logits", false},
          {"rms_norm_eps", 1e-06},
          {"rope_scaling", nullptr},
          {"rope_theta", 1000000.0},
          {"router_aux_loss_coef", 0.001},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"use_cache", true},
          {"use_sliding_window", false},
          {"vocab_size", 100}};
}

// Like Mixtral-8x7B's.
json mixtral() {
  return {{"architectures", {"MixtralForCausalLM"}},
          {"attention_dropout", 0.0},
          {"bos_token_id", 1},
          {"eos_token_id", 2},
          {"hidden_act", "silu"},
          {"hidden_size", 32},
          {"initializer_range", 0.02},
          {"intermediate_size", 64},
          {"max_position_embeddings", 32768},
          {"model_type", "mixtral"},
          {"num_attention_heads", 4},
          {"num_experts_per_tok", 2},
          {"num_hidden_layers", 2},
          {"num_key_value_heads", 2},
          {"num_local_experts", 4},
          {"output_router_logits", false},
          {"rms_norm_eps", 1e-05},
          {"rope_theta", 1000000.0},
          {"router_aux_loss_coef", 0.02},
          {"sliding_window", nullptr},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"use_cache", true},
          {"vocab_size", 100}};
}

ModelConfig parse(json object, const json& changes = json::object(), const std::vector<std::string>& without = {}) {
  object.update(changes);
  for (const std::string& key : without) object.erase(key);
  return parse_model_config(object, "config.json");
}

void refused(const json& object, const json& changes, std::initializer_list<std::string> parts) {
  expect_error(ExitCode::bad_input, parts, [&] { parse(object, changes); });
}

struct Placed {
  const TensorSpec* tensor;
  int64_t record;
};
std::map<std::string, Placed> by_name(const std::vector<LayerLayout>& layouts) {
  std::map<std::string, Placed> found;
  for (size_t i = 0; i < layouts.size(); ++i) {
    for (const TensorSpec& tensor : layouts[i].tensors) found[tensor.name] = {&tensor, static_cast<int64_t>(i)};
  }
  return found;
}

std::set<std::string> trained(const std::vector<LayerLayout>& layouts) {
  std::set<std::string> names;
  for (const auto& [name, placed] : by_name(layouts)) {
    if (placed.tensor->trainable) names.insert(name);
  }
  return names;
}

}  // namespace

TEST(GptOss, ReadsAsTransformersDoes) {
  const ModelConfig c = parse(gpt_oss());
  EXPECT_TRUE(c.sinks && c.qkv_bias && c.o_bias && !c.qk_norm);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.window, (std::vector<int64_t>{128, 0}));
  EXPECT_EQ(c.rope.scaling, RopeScaling::yarn);
  EXPECT_FALSE(c.rope.truncate);
  EXPECT_EQ(c.rope.theta, 150000);
  EXPECT_DOUBLE_EQ(c.rope.attention_factor, 0.1 * std::log(32.0) + 1);
  const ExpertsConfig& e = c.experts;
  EXPECT_EQ(e.count, 6);
  EXPECT_EQ(e.chosen, 4);
  EXPECT_EQ(e.ff, 64);
  EXPECT_EQ(e.layers, (std::vector<bool>{true, true}));
  EXPECT_EQ(e.score, RouterScore::softmax_of_chosen);
  EXPECT_TRUE(e.router_bias && e.bias);
  EXPECT_EQ(e.gate.activation, Activation::gelu_sigmoid);
  EXPECT_EQ(e.gate.limit, 7);
  EXPECT_EQ(e.gate.up_offset, 1);
  EXPECT_EQ(e.aux_coef, 0.9);
  EXPECT_FALSE(e.aux_in_loss);
  EXPECT_EQ(passed_over_fields(gpt_oss(), "config.json"), std::vector<std::string>());
}

TEST(GptOss, AbsentFieldsAreWhatTransformersTakes) {
  const ModelConfig c = parse(gpt_oss(), {{"num_hidden_layers", 3}, {"num_attention_heads", 16}},
                              {"head_dim", "layer_types", "sliding_window", "rope_scaling", "rope_theta",
                               "rms_norm_eps", "swiglu_limit", "num_local_experts", "num_experts_per_tok",
                               "attention_bias", "quantization_config", "router_aux_loss_coef", "num_key_value_heads"});
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.kv_heads, 8);
  EXPECT_EQ(c.window, (std::vector<int64_t>{128, 0, 128}));
  EXPECT_EQ(c.rope.scaling, RopeScaling::yarn);
  EXPECT_EQ(c.rope.factor, 32);
  EXPECT_EQ(c.rope.original_max_position, 4096);
  EXPECT_FALSE(c.rope.truncate);
  EXPECT_EQ(c.rope.theta, 150000);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_TRUE(c.qkv_bias);
  EXPECT_EQ(c.experts.count, 128);
  EXPECT_EQ(c.experts.chosen, 4);
  EXPECT_EQ(c.experts.gate.limit, 7);
  EXPECT_EQ(c.experts.aux_coef, 0.001);
}

TEST(Qwen3Moe, ReadsAsTransformersDoes) {
  const ModelConfig c = parse(qwen3_moe());
  EXPECT_TRUE(c.qk_norm && !c.qkv_bias && !c.sinks);
  EXPECT_EQ(c.ff, 96);
  EXPECT_EQ(c.experts.ff, 24);
  EXPECT_EQ(c.experts.count, 5);
  EXPECT_EQ(c.experts.chosen, 2);
  EXPECT_EQ(c.experts.score, RouterScore::softmax_of_chosen);
  EXPECT_EQ(c.experts.gate.activation, Activation::silu);
  EXPECT_EQ(c.experts.aux_coef, 0.001);
  EXPECT_EQ(c.window, std::vector<int64_t>(4, 0));
  EXPECT_EQ(parse(qwen3_moe(), {{"norm_topk_prob", false}}).experts.score, RouterScore::softmax_of_all);
  EXPECT_EQ(parse(qwen3_moe(), json::object(), {"norm_topk_prob"}).experts.score, RouterScore::softmax_of_all);
  EXPECT_TRUE(parse(qwen3_moe(), {{"output_router_logits", true}}).experts.aux_in_loss);
  EXPECT_EQ(passed_over_fields(qwen3_moe(), "config.json"), std::vector<std::string>());
}

TEST(Qwen3Moe, LayersAreDenseByBothFields) {
  const auto layers = [](const json& changes) { return parse(qwen3_moe(), changes).experts.layers; };
  EXPECT_EQ(layers(json::object()), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(layers({{"decoder_sparse_step", 2}}), (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(layers({{"mlp_only_layers", {0, 3, 4}}}), (std::vector<bool>{false, true, true, false}));
  EXPECT_EQ(layers({{"decoder_sparse_step", 2}, {"mlp_only_layers", {1}}}),
            (std::vector<bool>{false, false, false, true}));
  const auto names = by_name(model_layouts(parse(qwen3_moe(), {{"mlp_only_layers", {0}}})));
  EXPECT_TRUE(names.contains("model.layers.0.mlp.gate_proj.weight"));
  EXPECT_FALSE(names.contains("model.layers.0.mlp.gate.weight"));
  EXPECT_TRUE(names.contains("model.layers.1.mlp.gate.weight"));
  EXPECT_EQ(names.at("model.layers.0.mlp.up_proj.weight").tensor->rows, 96);
  EXPECT_EQ(names.at("model.layers.1.mlp.experts.4.up_proj.weight").tensor->rows, 24);
}

TEST(Qwen3Moe, ItsWindowIsInAllLayersOrNone) {
  EXPECT_EQ(parse(qwen3_moe(), {{"use_sliding_window", true}, {"sliding_window", 9}}, {"max_window_layers"}).window,
            std::vector<int64_t>(4, 9));
  EXPECT_EQ(parse(qwen3_moe(), {{"sliding_window", 9}}).window, std::vector<int64_t>(4, 0));
  refused(qwen3_moe(), {{"use_sliding_window", true}, {"sliding_window", 9}}, {"max_window_layers", "48"});
}

TEST(Mixtral, ReadsAsTransformersDoes) {
  const ModelConfig c = parse(mixtral(), json::object(), {"rope_theta", "rms_norm_eps", "sliding_window"});
  EXPECT_EQ(c.rope.theta, 1e6);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.window, std::vector<int64_t>(2, 0));
  EXPECT_EQ(c.experts.count, 4);
  EXPECT_EQ(c.experts.ff, 64);
  EXPECT_EQ(c.experts.score, RouterScore::softmax_of_chosen);
  EXPECT_EQ(c.experts.aux_coef, 0.02);
  EXPECT_EQ(parse(mixtral(), {{"sliding_window", 7}}).window, std::vector<int64_t>(2, 7));
}

TEST(Experts, RefusesWhatItCannotObey) {
  for (const json& model : {gpt_oss(), qwen3_moe(), mixtral()}) {
    refused(model, {{"num_experts_per_tok", 7}}, {"num_experts_per_tok", "7"});
    refused(model, {{"num_experts", 4}, {"num_local_experts", 3}, {"num_experts_per_tok", 2}},
            {"num_experts", "num_local_experts", "4", "3"});
    refused(model, {{"num_experts_per_tok", 0}}, {"num_experts_per_tok"});
    refused(model, {{"router_aux_loss_coef", -0.1}}, {"router_aux_loss_coef", "-0.1"});
    refused(model, {{"hidden_act", "gelu"}}, {"hidden_act", "gelu"});
    refused(model, {{"n_shared_experts", 1}}, {"n_shared_experts", "does not know"});
    refused(model, {{"scoring_func", "sigmoid"}}, {"scoring_func", "does not know"});
  }
  refused(mixtral(), {{"router_jitter_noise", 0.1}}, {"router_jitter_noise", "0.1", "noise"});
  refused(mixtral(), {{"attention_bias", true}}, {"attention_bias"});
  refused(mixtral(), {{"quantization_config", {{"quant_method", "mxfp4"}}}}, {"quantization_config"});
  refused(mixtral(), {{"moe_intermediate_size", 9}}, {"moe_intermediate_size"});
  refused(qwen3_moe(), {{"mlp_only_layers", {-1}}}, {"mlp_only_layers", "[-1]", "numbers of layers"});
  refused(qwen3_moe(), {{"mlp_only_layers", 1}}, {"mlp_only_layers", "list"});
  refused(qwen3_moe(), {{"decoder_sparse_step", 0}}, {"decoder_sparse_step"});
  refused(qwen3_moe(), {{"router_jitter_noise", 0.0}}, {"router_jitter_noise"});
  refused(gpt_oss(), {{"experts_per_token", 2}}, {"experts_per_token", "num_experts_per_tok"});
  refused(gpt_oss(), {{"initial_context_length", 2048}}, {"initial_context_length", "2048", "4096"});
  refused(gpt_oss(), {{"swiglu_alpha", 1.5}}, {"swiglu_alpha", "1.5"});
  refused(gpt_oss(), {{"swiglu_limit", 0}}, {"swiglu_limit"});
  refused(gpt_oss(), {{"sliding_window", nullptr}}, {"sliding_window", "null"});
  refused(gpt_oss(), {{"rope_scaling", nullptr}}, {"rope_scaling", "null", "rope_type"});
  refused(gpt_oss(), {{"layer_types", {"sliding_attention", "chunked_attention"}}}, {"layer_types[1]", "chunked"});
  refused(gpt_oss(), {{"quantization_config", {{"quant_method", "fp8"}}}}, {"quant_method", "fp8", "mxfp4"});
  refused(gpt_oss(), {{"quantization_config", {{"quant_method", "mxfp4"}, {"group", 16}}}}, {"group"});
}

// As transformers 5 writes it.
json qwen2_moe() {
  return {{"architectures", {"Qwen2MoeForCausalLM"}},
          {"model_type", "qwen2_moe"},
          {"vocab_size", 64},
          {"hidden_size", 16},
          {"intermediate_size", 24},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"max_position_embeddings", 128},
          {"num_experts", 5},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 6},
          {"shared_expert_intermediate_size", 20},
          {"norm_topk_prob", false},
          {"mlp_only_layers", json::array()},
          {"use_sliding_window", false},
          {"sliding_window", 0},
          {"max_window_layers", 28},
          {"layer_types", {"full_attention", "full_attention"}}};
}

TEST(Experts, ASharedExpertIsAnMlpOfItsOwnWidthWithAGateInTheFirstRecord) {
  const ModelConfig c = parse(qwen2_moe());
  EXPECT_EQ(c.experts.shared_ff, 20);
  EXPECT_TRUE(c.experts.shared_gate);
  EXPECT_TRUE(c.qkv_bias);
  const LayerLayout first = model_layouts(c)[1];
  std::map<std::string, std::pair<int64_t, int64_t>> shapes;
  for (const TensorSpec& tensor : first.tensors) shapes[tensor.name] = {tensor.rows, tensor.cols};
  EXPECT_EQ(shapes.at("model.layers.0.mlp.shared_expert.gate_proj.weight"), std::pair(int64_t{20}, int64_t{16}));
  EXPECT_EQ(shapes.at("model.layers.0.mlp.shared_expert.down_proj.weight"), std::pair(int64_t{16}, int64_t{20}));
  EXPECT_EQ(shapes.at("model.layers.0.mlp.shared_expert_gate.weight"), std::pair(int64_t{1}, int64_t{16}));
  refused(qwen2_moe(), {{"shared_expert_intermediate_size", 0}}, {"shared_expert_intermediate_size"});
  refused(qwen2_moe(), {{"use_sliding_window", true}}, {"use_sliding_window", "Qwen2MoeForCausalLM"});
  refused(qwen2_moe(), {{"layer_types", {"full_attention", "sliding_attention"}}}, {"layer_types"});
  refused(qwen2_moe(), {{"attention_bias", true}}, {"attention_bias"});
}

TEST(Experts, OtherArchitecturesAreRefusedWithTheReason) {
  refused(mixtral(), {{"architectures", {"KimiK2ForCausalLM"}}},
          {"KimiK2ForCausalLM", "DeepseekV3ForCausalLM", "supported are"});
  refused(mixtral(), {{"architectures", {"Ernie4_5_MoeForCausalLM"}}}, {"Ernie4_5_MoeForCausalLM", "softmax"});
}

TEST(Experts, PresetsHaveThePublishedParameters) {
  const auto parameters = [](const char* name) {
    int64_t sum = 0;
    for (const LayerLayout& layout : model_layouts(parse(*preset_config(name)))) sum += layout.parameters();
    return sum;
  };
  EXPECT_EQ(parameters("gpt-oss-20b"), 20'914'757'184);
  EXPECT_EQ(parameters("gpt-oss-120b"), 116'829'156'672);
  EXPECT_EQ(parameters("qwen3-30b-a3b"), 30'532'122'624);
  EXPECT_EQ(parameters("mixtral-8x7b"), 46'702'792'704);
}

// OpenAI publishes 5.1 and 3.6 billion. Mistral's 12.9 and Qwen's 3.3 include the embedding.
TEST(Experts, PresetsHaveThePublishedActiveParameters) {
  const auto active = [](const char* name) {
    const ModelConfig config = parse(*preset_config(name));
    int64_t sum = 0;
    for (const LayerLayout& layout : model_layouts(config)) sum += layout.parameters();
    return sum - idle_parameters(config);
  };
  const int64_t head = int64_t{201088} * 2880 + 2880;                                 // includes the last norm
  const int64_t attention = 2880 * 5120 + 5120 + 4096 * 2880 + 2880 + 64 + 2 * 2880;  // includes sinks and norms
  const int64_t expert = 3 * 2880 * 2880 + 3 * 2880;
  EXPECT_EQ(active("gpt-oss-20b"), 24 * (attention + 32 * 2881 + 4 * expert) + head);
  EXPECT_EQ(active("gpt-oss-120b"), 36 * (attention + 128 * 2881 + 4 * expert) + head);
  EXPECT_NEAR(static_cast<double>(active("gpt-oss-20b")), 3.61e9, 0.005e9);
  EXPECT_NEAR(static_cast<double>(active("gpt-oss-120b")), 5.13e9, 0.005e9);
  const int64_t layer = 2048 * (4096 + 2 * 512) + 4096 * 2048 + 2 * 2048 + 2 * 128 + 128 * 2048 + 8 * 3 * 2048 * 768;
  EXPECT_EQ(active("qwen3-30b-a3b"), 48 * layer + int64_t{151936} * 2048 + 2048);
  EXPECT_NEAR(static_cast<double>(active("qwen3-30b-a3b")) + 151936.0 * 2048, 3.35e9, 0.005e9);
  EXPECT_NEAR(static_cast<double>(active("mixtral-8x7b")) + 32000.0 * 4096, 12.88e9, 0.005e9);
}

TEST(Experts, ADenseLayerAndATiedTableAreActive) {
  const ModelConfig dense = parse(*preset_config("qwen3-0.6b"));
  EXPECT_EQ(idle_parameters(dense), 0);
  nlohmann::json json = *preset_config("qwen3-30b-a3b");
  json["num_hidden_layers"] = 3;
  const int64_t layer = 120 * 3 * 2048 * 768, table = int64_t{151936} * 2048;
  EXPECT_EQ(idle_parameters(parse(json)), 3 * layer + table);
  json["mlp_only_layers"] = {1};
  EXPECT_EQ(idle_parameters(parse(json)), 2 * layer + table);
  json["tie_word_embeddings"] = true;
  EXPECT_EQ(idle_parameters(parse(json)), 2 * layer);
}

TEST(Experts, EveryFieldDecidesTheIdentityOfARun) {
  const auto field = [](const ModelConfig& c) {
    for (const ModelField& field : model_fields(c)) {
      if (field.name == "experts") return field;
    }
    return ModelField{};
  };
  const nlohmann::ordered_json base = field(parse(qwen3_moe())).value;
  EXPECT_TRUE(field(parse(qwen3_moe())).decides_steps);
  for (const json& change : std::initializer_list<json>{{{"num_experts", 6}},
                                                        {{"num_experts_per_tok", 3}},
                                                        {{"moe_intermediate_size", 25}},
                                                        {{"mlp_only_layers", {1}}},
                                                        {{"norm_topk_prob", false}},
                                                        {{"router_aux_loss_coef", 0.5}},
                                                        {{"output_router_logits", true}}})
    EXPECT_NE(field(parse(qwen3_moe(), change)).value, base) << change;
  EXPECT_NE(field(parse(gpt_oss(), {{"swiglu_limit", 6.0}})).value, field(parse(gpt_oss())).value);
}

TEST(Experts, AnyGroupingHoldsTheSameTensorsAtEqualDistances) {
  for (const json& model : {gpt_oss(), qwen3_moe(), mixtral()}) {
    const ModelConfig c = parse(model);
    const int64_t count = c.experts.count;
    const std::vector<LayerLayout> whole = model_layouts(c);
    const auto names = by_name(whole);
    ASSERT_EQ(std::ssize(whole), 2 + 2 * c.layers);
    for (int64_t group = 0; group <= count + 1; ++group) {
      const std::vector<LayerLayout> layouts = model_layouts(c, DType::bf16, {}, group);
      const auto grouped = by_name(layouts);
      const int64_t size = group == 0 ? count : std::min(group, count);
      const int64_t per_layer = 1 + ceil_div(count, size);
      ASSERT_EQ(std::ssize(layouts), 2 + per_layer * c.layers);
      ASSERT_EQ(grouped.size(), names.size());
      int64_t stride = 0;
      for (const auto& [name, placed] : grouped) ASSERT_TRUE(names.contains(name)) << name;
      for (int64_t layer = 0; layer < c.layers; ++layer) {
        for (int64_t record = 1; record < per_layer; ++record) {
          const LayerLayout& layout = layouts[static_cast<size_t>(1 + layer * per_layer + record)];
          const int64_t held = std::min(size, count - (record - 1) * size);
          const int64_t tensors = std::ssize(layout.tensors) / held;
          ASSERT_EQ(std::ssize(layout.tensors), tensors * held);
          if (held > 1 && stride == 0) stride = layout.tensors[static_cast<size_t>(tensors)].offset;
          for (int64_t i = 0; i < std::ssize(layout.tensors); ++i) {
            const TensorSpec& tensor = layout.tensors[static_cast<size_t>(i)];
            const TensorSpec& first = layout.tensors[static_cast<size_t>(i % tensors)];
            EXPECT_EQ(tensor.offset, first.offset + i / tensors * stride) << tensor.name;
            EXPECT_EQ(tensor.state_offset, tensor.offset);
            EXPECT_EQ(tensor.operand, first.operand);
            const int before = i % tensors > 0 ? layout.tensors[static_cast<size_t>(i - 1)].operand : -1;
            const bool packed = before == tensor.operand;
            EXPECT_TRUE(packed || tensor.offset % kTensorAlign == 0) << tensor.name;
          }
        }
      }
    }
  }
}

TEST(Experts, FirstRecordHasAttentionNormsAndRouterAlone) {
  const LayerLayout layout = model_layouts(parse(gpt_oss()))[1];
  std::vector<std::string> names;
  for (const TensorSpec& tensor : layout.tensors) names.push_back(tensor.name.substr(15));
  EXPECT_EQ(names, (std::vector<std::string>{
                       "input_layernorm.weight", "self_attn.q_proj.weight", "self_attn.k_proj.weight",
                       "self_attn.v_proj.weight", "self_attn.q_proj.bias", "self_attn.k_proj.bias",
                       "self_attn.v_proj.bias", "self_attn.o_proj.weight", "self_attn.o_proj.bias",
                       "post_attention_layernorm.weight", "mlp.router.weight", "mlp.router.bias", "self_attn.sinks"}));
  EXPECT_EQ(layout.tensors[10].operand, BlockOperand::router);
  EXPECT_EQ(layout.tensors[12].operand, BlockOperand::sinks);
  const LayerLayout experts = model_layouts(parse(gpt_oss()))[2];
  std::vector<int> operands;
  for (size_t i = 0; i < 6; ++i) operands.push_back(experts.tensors[i].operand);
  using At = BlockOperand;
  EXPECT_EQ(operands, (std::vector<int>{At::expert_gate_up, At::expert_gate_up, At::expert_gate_up_bias,
                                        At::expert_gate_up_bias, At::expert_down, At::expert_down_bias}));
}

TEST(Experts, PatternsFreezeThemOrTheRouter) {
  const ModelConfig c = parse(qwen3_moe(), {{"mlp_only_layers", {0}}});
  const std::set<std::string> all = trained(model_layouts(c));
  std::set<std::string> without_experts, without_router;
  for (const std::string& name : all) {
    if (name.find(".experts.") == std::string::npos) without_experts.insert(name);
    if (!name.ends_with("mlp.gate.weight")) without_router.insert(name);
  }
  for (const int64_t group : {0, 1, 2}) {
    const std::vector<LayerLayout> frozen = model_layouts(c, DType::bf16, {.freeze = {"*.experts.*"}}, group);
    EXPECT_EQ(trained(frozen), without_experts);
    EXPECT_EQ(frozen[3].state_elements, 0);
    EXPECT_EQ(trained(model_layouts(c, DType::bf16, {.freeze = {"*.gate.weight"}}, group)), without_router);
  }
  EXPECT_EQ(all.size(), without_router.size() + 3);
  EXPECT_EQ(all.size(), without_experts.size() + 3 * 5 * 3);
}

}  // namespace megatrain
