// What config.json means for each family, and what is refused rather than ignored.
#include "megatrain/model/config.h"

#include <nlohmann/json.hpp>

#include "megatrain/model/presets.h"
#include "tests/hub/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

// The least that a family's config.json must say.
json minimal(const std::string& architecture) {
  return {{"architectures", {architecture}}, {"vocab_size", 100},      {"hidden_size", 256},
          {"intermediate_size", 512},        {"num_hidden_layers", 3}, {"num_attention_heads", 32}};
}

ModelConfig parse(const std::string& architecture, const json& more = json::object()) {
  json object = minimal(architecture);
  object.update(more);
  return parse_model_config(object, "config.json");
}

void expect_refused(const std::string& architecture, const json& more, std::initializer_list<std::string> parts) {
  expect_error(ExitCode::bad_input, parts, [&] { parse(architecture, more); });
}

const char* const kLlama = "LlamaForCausalLM";
const char* const kMistral = "MistralForCausalLM";
const char* const kQwen2 = "Qwen2ForCausalLM";
const char* const kQwen3 = "Qwen3ForCausalLM";
const std::vector<std::string> kFamilies = {kLlama, kMistral, kQwen2, kQwen3};

using Windows = std::vector<int64_t>;

}  // namespace

TEST(ModelConfig, AbsentFieldsAreWhatTransformersTakes) {
  for (const std::string& family : kFamilies) {
    const ModelConfig c = parse(family);
    EXPECT_EQ(c.architecture, family);
    EXPECT_EQ(c.vocab, 100);
    EXPECT_EQ(c.hidden, 256);
    EXPECT_EQ(c.ff, 512);
    EXPECT_EQ(c.layers, 3);
    EXPECT_EQ(c.heads, 32);
    EXPECT_DOUBLE_EQ(c.norm_eps, 1e-6);
    EXPECT_DOUBLE_EQ(c.init_std, 0.02);
    EXPECT_DOUBLE_EQ(c.rope.theta, 10000);
    EXPECT_EQ(c.rope.scaling, RopeScaling::none);
    EXPECT_FALSE(c.tied);
    EXPECT_FALSE(c.dtype.has_value());
    EXPECT_FALSE(c.o_bias || c.mlp_bias);
    EXPECT_EQ(c.qkv_bias, family == kQwen2);
    EXPECT_EQ(c.qk_norm, family == kQwen3);
    EXPECT_EQ(c.head_dim, family == kQwen3 ? 128 : 8);
    EXPECT_EQ(c.kv_heads, family == kMistral ? 8 : 32);
    EXPECT_EQ(c.max_position, family == kLlama ? 2048 : family == kMistral ? 131072 : 32768);
    EXPECT_EQ(c.window, family == kMistral ? Windows(3, 4096) : Windows(3, 0)) << family;
  }
}

TEST(ModelConfig, NullHeadsMeanAsManyAsQueries) {
  for (const std::string& family : kFamilies)
    EXPECT_EQ(parse(family, {{"num_key_value_heads", nullptr}}).kv_heads, 32) << family;
}

TEST(ModelConfig, HeadSizeMayStandApartFromHidden) {
  const ModelConfig c = parse(kMistral, {{"head_dim", 10}, {"num_key_value_heads", 4}});
  EXPECT_EQ(c.q_dim(), 320);
  EXPECT_EQ(c.kv_dim(), 40);
  EXPECT_EQ(c.qkv_dim(), 400);
}

TEST(ModelConfig, BiasesFollowTheFamily) {
  EXPECT_TRUE(parse(kLlama, {{"attention_bias", true}}).o_bias);
  EXPECT_TRUE(parse(kLlama, {{"attention_bias", true}}).qkv_bias);
  EXPECT_TRUE(parse(kLlama, {{"mlp_bias", true}}).mlp_bias);
  EXPECT_TRUE(parse(kQwen3, {{"attention_bias", true}}).o_bias);
  EXPECT_FALSE(parse(kQwen2).o_bias);
  expect_refused(kQwen2, {{"attention_bias", true}}, {"attention_bias"});
  expect_refused(kMistral, {{"attention_bias", true}}, {"attention_bias"});
  expect_refused(kQwen3, {{"mlp_bias", true}}, {"mlp_bias"});
}

TEST(ModelConfig, MistralsWindowIsOnUnlessNull) {
  EXPECT_EQ(parse(kMistral, {{"sliding_window", 64}}).window, Windows(3, 64));
  EXPECT_EQ(parse(kMistral, {{"sliding_window", nullptr}}).window, Windows(3, 0));
  expect_refused(kMistral, {{"sliding_window", -1}}, {"sliding_window", "-1"});
}

TEST(ModelConfig, QwensWindowNeedsItsSwitch) {
  for (const char* family : {kQwen2, kQwen3}) {
    EXPECT_EQ(parse(family, {{"sliding_window", 64}}).window, Windows(3, 0));
    EXPECT_EQ(parse(family, {{"sliding_window", 64}, {"use_sliding_window", true}}).window,
              Windows(3, 0));  // from layer 28 on
    EXPECT_EQ(parse(family, {{"use_sliding_window", true}, {"max_window_layers", 0}}).window, Windows(3, 4096));
    EXPECT_EQ(parse(family, {{"sliding_window", 64}, {"use_sliding_window", true}, {"max_window_layers", 1}}).window,
              (Windows{0, 64, 64}));
    const json mixed = {{"sliding_window", 64},
                        {"use_sliding_window", true},
                        {"layer_types", {"sliding_attention", "full_attention", "sliding_attention"}}};
    EXPECT_EQ(parse(family, mixed).window, (Windows{64, 0, 64}));
    expect_refused(family, {{"layer_types", {"full_attention"}}}, {"layer_types", "3 layers"});
    expect_refused(family, {{"layer_types", {"full_attention", "chunked_attention", "full_attention"}}},
                   {"layer_types[1]", "chunked_attention"});
    expect_refused(family, {{"layer_types", {"full_attention", "full_attention", "sliding_attention"}}},
                   {"layer_types[2]", "sliding_window"});
    expect_refused(family, {{"max_window_layers", -1}, {"use_sliding_window", true}}, {"max_window_layers", "-1"});
  }
}

TEST(ModelConfig, LlamaHasNoWindow) {
  EXPECT_EQ(parse(kLlama, {{"sliding_window", nullptr}}).window, Windows(3, 0));
  expect_refused(kLlama, {{"sliding_window", 64}}, {"sliding_window", "64"});
}

TEST(ModelConfig, ReadsTheStoredType) {
  EXPECT_EQ(parse(kLlama, {{"torch_dtype", "bfloat16"}}).dtype, DType::bf16);
  EXPECT_EQ(parse(kLlama, {{"dtype", "float16"}}).dtype, DType::f16);
  EXPECT_EQ(parse(kLlama, {{"torch_dtype", "float32"}}).dtype, DType::f32);
  expect_refused(kLlama, {{"torch_dtype", "int8"}}, {"torch_dtype", "int8"});
}

TEST(ModelConfig, BothFormsOfRopeMeanTheSame) {
  const json scaling = {{"rope_type", "llama3"},
                        {"factor", 8.0},
                        {"low_freq_factor", 1.0},
                        {"high_freq_factor", 4.0},
                        {"original_max_position_embeddings", 8192}};
  json parameters = scaling;
  parameters["rope_theta"] = 500000.0;
  const ModelConfig old_form = parse(kLlama, {{"rope_theta", 500000.0}, {"rope_scaling", scaling}}),
                    new_form = parse(kLlama, {{"rope_parameters", parameters}});
  EXPECT_EQ(old_form.rope.theta, 500000.0);
  EXPECT_EQ(new_form.rope.theta, 500000.0);
  EXPECT_EQ(rope_frequencies(old_form), rope_frequencies(new_form));
}

TEST(ModelConfig, RefusesNonsenseByName) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    for (const json& value :
         {json(0), json(-1), json(1.5), json("4"), json(int64_t{1} << 50), json(true), json::array()})
      expect_refused(kLlama, {{key, value}}, {"config.json", key, value.dump()});
    expect_error(ExitCode::bad_input, {key, "missing"}, [&] {
      json object = minimal(kLlama);
      object.erase(key);
      parse_model_config(object, "config.json");
    });
  }
  expect_refused(kLlama, {{"rms_norm_eps", 0}}, {"rms_norm_eps"});
  expect_refused(kLlama, {{"rope_theta", -1.0}}, {"rope_theta"});
  expect_refused(kLlama, {{"initializer_range", "wide"}}, {"initializer_range"});
  expect_refused(kLlama, {{"tie_word_embeddings", 1}}, {"tie_word_embeddings"});
  expect_refused(kLlama, {{"num_key_value_heads", 5}}, {"num_key_value_heads 5"});
  expect_refused(kLlama, {{"num_attention_heads", 3}}, {"hidden_size 256", "num_attention_heads 3"});
  expect_refused(kLlama, {{"head_dim", 7}}, {"head_dim is 7"});
  expect_refused(kLlama, {{"head_dim", 512}}, {"head_dim is 512"});
  expect_error(ExitCode::bad_input, {"config.json"}, [] { parse_model_config(json::array(), "config.json"); });
}

TEST(ModelConfig, RefusesWhatWouldChangeTheMaths) {
  expect_refused(kLlama, {{"hidden_act", "gelu"}}, {"hidden_act", "gelu", "silu"});
  expect_refused(kLlama, {{"attention_dropout", 0.1}}, {"attention_dropout"});
  expect_refused(kLlama, {{"pretraining_tp", 2}}, {"pretraining_tp"});
  expect_refused(kLlama, {{"partial_rotary_factor", 0.5}}, {"partial_rotary_factor"});
  expect_refused(kLlama, {{"quantization_config", {{"bits", 4}}}}, {"quantization_config"});
  expect_refused(kLlama, {{"logit_scale", 0.5}}, {"logit_scale"});
  for (const json& name : {json("LlamaForSequenceClassification"), json("MixtralForCausalLM")}) {
    expect_refused(kLlama, {{"architectures", {name}}}, {name.get<std::string>(), "LlamaForCausalLM"});
  }
  expect_refused(kLlama, {{"architectures", {kLlama, kQwen2}}}, {"architectures"});
  expect_refused(kLlama, {{"architectures", nullptr}}, {"architectures"});
}

TEST(ModelConfig, PassesWhatSaysNothingOfTheMaths) {
  const ModelConfig c = parse(kLlama, {{"use_cache", true},
                                       {"bos_token_id", 1},
                                       {"eos_token_id", {1, 2}},
                                       {"transformers_version", "4.45.0"},
                                       {"_name_or_path", "x"},
                                       {"unheard_of", nullptr},
                                       {"unheard_of_switch", false},
                                       {"attention_dropout", 0.0},
                                       {"pretraining_tp", 1}});
  EXPECT_EQ(c.hidden, 256);
}

TEST(ModelConfig, RefusesRopeItCannotDo) {
  const auto refused = [](const json& scaling, std::initializer_list<std::string> parts) {
    expect_refused(kLlama, {{"rope_scaling", scaling}}, parts);
  };
  refused({{"rope_type", "dynamic"}, {"factor", 2.0}}, {"dynamic", "yarn"});
  refused({{"type", "longrope"}}, {"longrope"});
  refused({{"rope_type", "linear"}}, {"factor", "linear"});
  refused({{"rope_type", "linear"}, {"factor", 0}}, {"factor"});
  refused({{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0}}, {"high_freq_factor"});
  refused({{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 4.0}, {"high_freq_factor", 4.0}},
          {"high_freq_factor", "low_freq_factor"});
  refused({{"rope_type", "linear"}, {"factor", 2.0}, {"long_factor", {1.0}}}, {"long_factor"});
  refused({{"rope_type", "default"}, {"partial_rotary_factor", 0.25}}, {"partial_rotary_factor"});
  refused("linear", {"rope_scaling"});
}

TEST(ModelConfig, EveryPresetParses) {
  EXPECT_FALSE(preset_names().empty());
  for (const std::string& name : preset_names()) {
    const ModelConfig c = parse_model_config(*preset_config(name), name);
    EXPECT_GT(c.layers, 0) << name;
    EXPECT_EQ(c.window.size(), static_cast<size_t>(c.layers)) << name;
  }
}

}  // namespace megatrain
