// config.json and layouts of families with sigmoid routers: GLM 4.5, GLM 4.7 Flash and DeepSeek V3.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "megatrain/io/json.h"
#include "megatrain/model/parse_config.h"
#include "megatrain/model/model.h"
#include "megatrain/model/presets.h"
#include "megatrain/model/trained/adapter.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

// Like a preset's, with fewer and narrower layers.
json small(const char* preset, const json& changes = json::object()) {
  json object = *preset_config(preset);
  object.update({{"hidden_size", 32}, {"num_hidden_layers", 4}, {"vocab_size", 64}, {"n_routed_experts", 16}});
  object.update(changes);
  return object;
}

ModelConfig read(const json& object) { return parse_model_config(object, "config.json"); }

void refused_of(const char* preset, const json& changes, std::initializer_list<std::string> parts) {
  expect_error(ExitCode::bad_input, parts, [&] { read(small(preset, changes)); });
}

int64_t parameters(const char* preset) {
  int64_t sum = 0;
  for (const LayerLayout& layout : model_layouts(read(*preset_config(preset)))) {
    if (!layout.is_buffers()) sum += layout.parameters();
  }
  return sum;
}

}  // namespace

TEST(SigmoidExperts, PresetsHaveThePublishedParameters) {
  EXPECT_EQ(parameters("glm4.5-air"), 106'852'245'504);
  EXPECT_EQ(parameters("glm4.7-flash"), 29'943'390'976);
  EXPECT_EQ(parameters("deepseek-v3"), 671'026'404'352);
  EXPECT_EQ(parameters("kimi-k2"), 1'026'408'209'408);
}

TEST(SigmoidExperts, AreReadWithTheirRouterAndTheDenseLayersBeforeThem) {
  const ModelConfig air = read(small("glm4.5-air", {{"routed_scaling_factor", 1.5}, {"n_shared_experts", 2}}));
  EXPECT_EQ(air.experts.score, RouterScore::sigmoid);
  EXPECT_TRUE(air.experts.choice_bias);
  EXPECT_EQ(air.experts.weight_scale, 1.5);
  EXPECT_EQ(air.experts.shared_ff, 2 * 1408);
  EXPECT_FALSE(air.experts.shared_gate);
  EXPECT_EQ(air.experts.layers, (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(air.rope.rotary_dim, 64);
  EXPECT_TRUE(air.qkv_bias);
  EXPECT_FALSE(air.o_bias);
  const ModelConfig v3 = read(small("deepseek-v3"));
  EXPECT_EQ(v3.experts.groups, 8);
  EXPECT_EQ(v3.experts.kept_groups, 4);
  EXPECT_EQ(v3.experts.layers, (std::vector<bool>{false, false, false, true}));
  const double mscale = 0.1 * std::log(40) + 1;
  EXPECT_NEAR(v3.attention_scale, mscale * mscale / std::sqrt(192), 1e-12);
  EXPECT_EQ(v3.rope.attention_factor, 1);
  EXPECT_EQ(read(small("glm4.7-flash", {{"q_lora_rank", nullptr}})).latent.q_rank, 0);
}

TEST(SigmoidExperts, KimiK2IsDeepseekV3WithAModelTypeOfItsOwn) {
  const ModelConfig c = read(small("kimi-k2"));
  EXPECT_EQ(c.architecture, "DeepseekV3ForCausalLM");
  EXPECT_EQ(c.experts.groups, 1);
  EXPECT_EQ(c.experts.weight_scale, 2.827);
  EXPECT_EQ(c.experts.layers, (std::vector<bool>{false, true, true, true}));
  json without_name = small("kimi-k2");
  without_name.erase("architectures");
  EXPECT_EQ(read(without_name).architecture, "DeepseekV3ForCausalLM");
  refused_of("kimi-k2", {{"model_type", "kimi_linear"}}, {"model_type", "kimi_linear", "deepseek_v3"});
}

TEST(SigmoidExperts, KimiK25HasItAsItsTextPart) {
  for (const char* type : {"kimi_k2", "deepseek_v3"}) {
    for (const char* name : {"KimiK25ForConditionalGeneration", "Kimi_K25ForConditionalGeneration"}) {
      json text = small("kimi-k2");
      text["model_type"] = type;
      const json whole = {
          {"architectures", {name}},         {"model_type", "kimi_k25"},         {"ignore_index", -100},
          {"media_placeholder_token_id", 5}, {"use_unified_vision_chunk", true}, {"video_placeholder", "<video>"},
          {"tie_word_embeddings", false},    {"vision_config", json::object()},  {"text_config", text}};
      const ModelConfig c = read(whole);
      EXPECT_EQ(c.architecture, "DeepseekV3ForCausalLM");
      EXPECT_EQ(c.part_of, name);
    }
  }
}

TEST(SigmoidExperts, TheBiasOfTheChoiceIsAnFp32RecordThatNothingTrains) {
  const ModelConfig c = read(small("glm4.5-air"));
  for (const TrainRules& rules : {TrainRules{}, TrainRules{.train_only = {"*.mlp.gate.*"}},
                                  TrainRules{.adapter = {.rank = 2, .also_train = {"mlp.gate"}}}}) {
    int64_t found = 0;
    for (const LayerLayout& layout : model_layouts(c, DType::bf16, rules)) {
      if (!layout.is_buffers()) continue;
      ++found;
      EXPECT_EQ(layout.dtype(), DType::f32);
      EXPECT_EQ(layout.state_elements, 0);
      EXPECT_TRUE(layout.tensors.front().name.ends_with("mlp.gate.e_score_correction_bias"));
    }
    EXPECT_EQ(found, 3);
  }
}

TEST(SigmoidExperts, AllLinearAdaptsLatentAttentionAndTheSharedExpert) {
  std::set<std::string> modules;
  const std::vector<LayerLayout> layouts =
      model_layouts(read(small("deepseek-v3")), DType::bf16, {.adapter = {.rank = 2}});
  for (const LayerLayout& layout : layouts) {
    if (!layout.is_adapter()) continue;
    for (const std::string& module : adapted_modules({&layout})) {
      if (module.starts_with("model.layers.3.")) modules.insert(module.substr(15));
    }
  }
  EXPECT_EQ(modules, (std::set<std::string>{"self_attn.q_a_proj", "self_attn.q_b_proj", "self_attn.kv_a_proj_with_mqa",
                                            "self_attn.kv_b_proj", "self_attn.o_proj", "mlp.shared_experts.gate_proj",
                                            "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj"}));
}

TEST(SigmoidExperts, RefusesByName) {
  for (const char* preset : {"glm4.5-air", "glm4.7-flash", "deepseek-v3"}) {
    SCOPED_TRACE(preset);
    refused_of(preset, {{"norm_topk_prob", false}}, {"norm_topk_prob"});
    refused_of(preset, {{"output_router_logits", true}}, {"output_router_logits"});
    refused_of(preset, {{"n_group", 3}}, {"n_group", "topk_group"});
    refused_of(preset, {{"n_group", 8}, {"topk_group", 9}}, {"topk_group"});
    refused_of(preset, {{"num_experts_per_tok", 17}}, {"num_experts_per_tok"});
    refused_of(preset, {{"num_local_experts", 8}}, {"n_routed_experts", "num_local_experts"});
  }
  refused_of("glm4.5-air", {{"partial_rotary_factor", 2.0}}, {"partial_rotary_factor"});
  for (const char* preset : {"glm4.7-flash", "deepseek-v3"}) {
    SCOPED_TRACE(preset);
    refused_of(preset, {{"v_head_dim", 512}}, {"v_head_dim"});
    refused_of(preset, {{"qk_rope_head_dim", 7}}, {"qk_rope_head_dim", "even"});
    refused_of(preset, {{"num_key_value_heads", 4}}, {"num_key_value_heads"});
    refused_of(preset, {{"head_dim", 100}}, {"head_dim"});
    refused_of(preset, {{"q_lora_rank", nullptr}, {"attention_bias", true}}, {"attention_bias", "q_lora_rank"});
    refused_of(preset, {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}, {"yarn"});
  }
  refused_of("glm4.7-flash", {{"first_k_dense_replace", 2}}, {"first_k_dense_replace", "mlp_layer_types"});
  refused_of("glm4.7-flash", {{"mlp_layer_types", {"dense"}}}, {"mlp_layer_types", "4"});
  refused_of("deepseek-v3", {{"scoring_func", "softmax"}}, {"scoring_func"});
}

// transformers takes null for false in two of these fields, and refuses it or fails in the others.
TEST(SigmoidExperts, NullIsNotTheDefaultOfAFieldThatEntersTheMaths) {
  for (const char* field : {"norm_topk_prob", "routed_scaling_factor", "n_shared_experts", "num_experts_per_tok",
                            "n_routed_experts", "moe_intermediate_size", "n_group", "topk_group"}) {
    for (const char* preset : {"glm4.5-air", "glm4.7-flash", "deepseek-v3"})
      refused_of(preset, {{field, nullptr}}, {"config.json", field, "null"});
  }
  for (const char* field : {"rope_interleave", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"}) {
    for (const char* preset : {"glm4.7-flash", "deepseek-v3"})
      refused_of(preset, {{field, nullptr}}, {"config.json", field, "null"});
  }
}

}  // namespace megatrain
