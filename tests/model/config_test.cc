// What config.json means for each family, and which fields are refused rather than ignored.
#include "megatrain/model/parse_config.h"
#include "megatrain/model/layers/rope_table.h"

#include <map>
#include <tuple>

#include "megatrain/io/json.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/presets.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

// The minimum that a family's config.json must contain.
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
  for (const std::string& family : kFamilies) {
    if (family == kMistral) continue;  // transformers refuses it for Mistral
    EXPECT_EQ(parse(family, {{"num_key_value_heads", nullptr}}).kv_heads, 32) << family;
  }
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
              Windows(3, 0));  // windows begin at layer 28
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
  EXPECT_EQ(rope_frequencies(old_form.rope, old_form.head_dim), rope_frequencies(new_form.rope, new_form.head_dim));
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

TEST(ModelConfig, RefusesNumbersThatFloat32DoesNotHold) {
  for (const char* key : {"rms_norm_eps", "rope_theta", "initializer_range"}) {
    expect_refused(kLlama, {{key, 1e300}}, {"config.json", key, "1e+300", "float32"});
    expect_refused(kLlama, {{key, 1e-300}}, {"config.json", key, "1e-300", "float32"});
  }
  expect_refused(kLlama, {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 1e39}}}}, {"factor", "1e+39"});
  EXPECT_DOUBLE_EQ(parse(kLlama, {{"rope_theta", 1e30}}).rope.theta, 1e30);
  EXPECT_DOUBLE_EQ(parse(kLlama, {{"rms_norm_eps", 1e-30}}).norm_eps, 1e-30);
}

TEST(ModelConfig, AnEndThatIsNoTokenIsNamed) {
  const auto notes = [](const json& ends) {
    json object = minimal(kLlama);
    object["eos_token_id"] = ends;
    parse_model_config(object, "config.json");
    return passed_over_fields(object, "config.json");
  };
  for (const json& ends : {json(), json(0), json(99), json{1, 99}}) EXPECT_TRUE(notes(ends).empty()) << ends;
  for (const json& end : {json(100), json(-1), json(99999), json(UINT64_MAX)}) {
    for (const json& ends : {end, json{2, end}}) {
      const std::vector<std::string> said = notes(ends);
      ASSERT_EQ(said.size(), 1u) << ends;
      EXPECT_NE(said[0].find("'eos_token_id' is " + end.dump() + ", not a token id below vocab_size (100)"),
                std::string::npos)
          << said[0];
    }
  }
}

TEST(ModelConfig, RefusesWhatWouldChangeTheMaths) {
  expect_refused(kLlama, {{"hidden_act", "gelu"}}, {"hidden_act", "gelu", "silu"});
  expect_refused(kLlama, {{"attention_dropout", 0.1}}, {"attention_dropout"});
  expect_refused(kLlama, {{"pretraining_tp", 2}}, {"pretraining_tp"});
  expect_refused(kLlama, {{"partial_rotary_factor", 0.5}}, {"partial_rotary_factor"});
  expect_refused(kLlama, {{"quantization_config", {{"bits", 4}}}}, {"quantization_config"});
  expect_refused(kLlama, {{"logit_scale", 0.5}}, {"logit_scale"});
  for (const json& name : {json("LlamaForSequenceClassification"), json("FalconForCausalLM")}) {
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
                                       {"attention_dropout", 0.0},
                                       {"pretraining_tp", 1},
                                       {"activation", "swiglu"},
                                       {"use_flash_attention_2", false},
                                       {"dual_chunk_attention_config", {{"chunk_size", 262144}}}});
  EXPECT_EQ(c.hidden, 256);
  const ModelConfig yarn = parse(kLlama, {{"rope_scaling",
                                           {{"rope_type", "yarn"},
                                            {"factor", 4.0},
                                            {"original_max_position_embeddings", 32768},
                                            {"attn_factor", 0.8782488562869419},
                                            {"finetuned", true}}}});
  EXPECT_EQ(yarn.rope.factor, 4.0);
}

TEST(ModelConfig, AttentionIsCausalOrRefused) {
  EXPECT_EQ(parse(kLlama, {{"is_causal", true}}).hidden, 256);
  for (const std::string& family : kFamilies) {
    for (const json& value : {json(false), json(nullptr), json(0), json("true")})
      expect_refused(family, {{"is_causal", value}}, {"config.json", "is_causal", value.dump(), "true"});
  }
}

TEST(ModelConfig, AnUnknownFieldIsRefusedWhateverItHoldsButNullWhichIsNamed) {
  for (const json& value : {json(false), json(true), json(0), json(1), json(""), json("x"), json::array(),
                            json::object(), json({{"a", 1}})})
    expect_refused(kLlama, {{"unheard_of", value}}, {"config.json", "unheard_of", "remove it"});
  json object = minimal(kLlama);
  object["unheard_of"] = nullptr;
  parse_model_config(object, "config.json");
  const std::vector<std::string> notes = passed_over_fields(object, "config.json");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("'unheard_of'"), std::string::npos) << notes[0];
}

TEST(ModelConfig, CodeThatComesWithTheModelIsNamed) {
  json object = minimal(kLlama);
  object["auto_map"] = {{"AutoModelForCausalLM", "modeling_other.Other"}};
  parse_model_config(object, "config.json");
  const std::vector<std::string> notes = passed_over_fields(object, "config.json");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("auto_map"), std::string::npos) << notes[0];
}

TEST(ModelConfig, AFieldWithOneSupportedValueIsRefusedAtEveryOther) {
  const std::vector<std::tuple<const char*, json, std::vector<json>>> fields = {
      {"hidden_act", "silu", {"gelu", "SiLU", nullptr, 1}},
      {"attention_dropout", 0.0, {0.1, "0.0", false, -1}},
      {"attention_dropout", 0, {1}},
      {"attention_dropout", nullptr, {}},
      {"pretraining_tp", 1, {2, 0, "1"}},
      {"partial_rotary_factor", 1.0, {0.5, "1"}},
      {"quantization_config", nullptr, {{{"bits", 4}}, json::object(), false}},
      {"compression_config", nullptr, {{{"format", "dense"}}}},
      {"is_encoder_decoder", false, {true}},
      {"add_cross_attention", false, {true}},
      {"pruned_heads", json::object(), {{{"0", {1}}}}},
      {"per_layer_config", nullptr, {{{"0", {{"num_attention_heads", 2}}}}}},
      {"rope_interleaved", false, {true}},
      {"use_mrope", false, {true}},
  };
  for (const auto& [key, supported, others] : fields) {
    EXPECT_EQ(parse(kLlama, {{key, supported}}).hidden, 256) << key;
    for (const json& other : others) expect_refused(kLlama, {{key, other}}, {"config.json", key});
  }
}

TEST(ModelConfig, TheModelTypeMustBeTheArchitectures) {
  const std::map<std::string, std::string> types = {
      {kLlama, "llama"}, {kMistral, "mistral"}, {kQwen2, "qwen2"}, {kQwen3, "qwen3"}};
  for (const auto& [architecture, type] : types) {
    for (const auto& [other, other_type] : types) {
      if (architecture == other) {
        EXPECT_EQ(parse(architecture, {{"model_type", type}}).architecture, architecture);
      } else {
        expect_refused(architecture, {{"model_type", other_type}},
                       {"model_type", other_type, "architectures", architecture, "transformers"});
      }
    }
    expect_refused(architecture, {{"model_type", "mixtral"}}, {"model_type", "mixtral"});
    expect_refused(architecture, {{"model_type", 7}}, {"model_type", "7"});
    // like transformers, which does not need architectures
    EXPECT_EQ(parse(architecture, {{"architectures", nullptr}, {"model_type", type}}).architecture, architecture);
  }
}

TEST(ModelConfig, LayerTypesMustAgreeWithTheWindowWhereTheFamilyDoesNotReadThem) {
  const json full = {"full_attention", "full_attention", "full_attention"},
             sliding = {"sliding_attention", "sliding_attention", "sliding_attention"},
             mixed = {"full_attention", "sliding_attention", "full_attention"};
  EXPECT_EQ(parse(kMistral, {{"sliding_window", 16}, {"layer_types", sliding}}).window, Windows(3, 16));
  EXPECT_EQ(parse(kMistral, {{"sliding_window", nullptr}, {"layer_types", full}}).window, Windows(3, 0));
  expect_refused(kMistral, {{"sliding_window", 16}, {"layer_types", mixed}}, {"layer_types[0]", "full_attention"});
  expect_refused(kMistral, {{"sliding_window", 16}, {"layer_types", full}}, {"layer_types[0]", "sliding_window"});
  expect_refused(kMistral, {{"layer_types", full}}, {"layer_types[0]", "4096"});
  expect_refused(kMistral, {{"sliding_window", nullptr}, {"layer_types", mixed}}, {"layer_types[1]", "sliding_window"});
  EXPECT_EQ(parse(kLlama, {{"layer_types", full}}).window, Windows(3, 0));
  expect_refused(kLlama, {{"layer_types", mixed}}, {"layer_types[1]"});
  for (const std::string& family : kFamilies) {
    expect_refused(family, {{"sliding_window", nullptr}, {"layer_types", {"full_attention"}}}, {"layer_types", "3"});
    expect_refused(family, {{"sliding_window", nullptr}, {"layer_types", "full_attention"}}, {"layer_types"});
    expect_refused(family, {{"sliding_window", nullptr}, {"layer_types", {"full_attention", "chunked_attention", 3}}},
                   {"layer_types[1]", "chunked_attention"});
  }
}

TEST(ModelConfig, FieldsOfTheWindowThatContradictEachOtherAreRefused) {
  expect_refused(kMistral, {{"use_sliding_window", false}}, {"use_sliding_window", "sliding_window"});
  expect_refused(kMistral, {{"sliding_window", 8}, {"max_window_layers", 2}}, {"max_window_layers"});
  EXPECT_EQ(parse(kMistral, {{"sliding_window", nullptr}, {"use_sliding_window", false}}).window, Windows(3, 0));
  EXPECT_EQ(parse(kMistral, {{"sliding_window", 8}, {"use_sliding_window", true}}).window, Windows(3, 8));
  for (const std::string& family : kFamilies) {
    for (const json& value : {json("8"), json(0), json(-1), json(1.5), json(false)}) {
      expect_refused(family, {{"sliding_window", value}}, {"sliding_window"});
      if (value != json(0)) expect_refused(family, {{"max_window_layers", value}}, {"max_window_layers"});
      if (!value.is_boolean()) expect_refused(family, {{"use_sliding_window", value}}, {"use_sliding_window"});
    }
  }
}

TEST(ModelConfig, FieldsOfRopeThatContradictEachOtherAreRefused) {
  const json linear2 = {{"rope_type", "linear"}, {"factor", 2.0}}, linear4 = {{"rope_type", "linear"}, {"factor", 4.0}};
  const auto with = [](json object, const char* key, const json& value) {
    object[key] = value;
    return object;
  };
  expect_refused(kLlama, {{"rope_scaling", linear2}, {"rope_parameters", linear4}},
                 {"rope_scaling", "rope_parameters", "2.0", "4.0", "transformers"});
  expect_refused(kLlama, {{"rope_scaling", linear2}, {"rope_parameters", {{"rope_type", "default"}}}},
                 {"rope_scaling", "rope_parameters"});
  // transformers uses the whole of rope_scaling, and with it the default theta
  expect_refused(kLlama, {{"rope_scaling", linear2}, {"rope_parameters", with(linear2, "rope_theta", 5e5)}},
                 {"rope_scaling", "rope_parameters"});
  expect_refused(kLlama, {{"rope_theta", 1e6}, {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}}},
                 {"rope_theta", "1000000.0", "rope_parameters", "500000.0"});
  expect_refused(kLlama, {{"rope_theta", 1e6}, {"rope_scaling", with(linear2, "rope_theta", 5e5)}}, {"rope_theta"});
  expect_refused(kLlama, {{"rope_scaling", with(linear2, "type", "yarn")}}, {"rope_type", "linear", "yarn"});
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
  expect_refused(kLlama, {{"rope_scaling", yarn}, {"original_max_position_embeddings", 256}},
                 {"original_max_position_embeddings", "256", "512"});

  EXPECT_EQ(parse(kLlama, {{"rope_scaling", linear2}, {"rope_parameters", linear2}}).rope.factor, 2);
  EXPECT_EQ(parse(kLlama, {{"rope_scaling", json::object()}, {"rope_parameters", linear2}}).rope.factor, 2);
  EXPECT_EQ(parse(kLlama, {{"rope_scaling", linear2}, {"rope_parameters", nullptr}}).rope.factor, 2);
  EXPECT_EQ(
      parse(kLlama,
            {{"rope_theta", 5e5}, {"rope_scaling", linear2}, {"rope_parameters", with(linear2, "rope_theta", 5e5)}})
          .rope.theta,
      5e5);
  EXPECT_EQ(parse(kLlama, {{"rope_scaling", with(linear2, "type", "linear")}}).rope.scaling, RopeScaling::linear);
  EXPECT_EQ(
      parse(kLlama, {{"rope_scaling", yarn}, {"original_max_position_embeddings", 512}}).rope.original_max_position,
      512);
}

TEST(ModelConfig, FieldsOfTheWrongTypeAreRefusedByName) {
  const std::vector<json> not_a_number = {"1", true, json::array(), json::object()};
  for (const char* key : {"rms_norm_eps", "initializer_range", "rope_theta"}) {
    for (const json& value : not_a_number) expect_refused(kLlama, {{key, value}}, {"config.json", key});
    expect_refused(kLlama, {{key, -1.0}}, {key, "above 0"});
  }
  for (const char* key : {"num_key_value_heads", "head_dim", "max_position_embeddings"}) {
    for (const json& value : not_a_number) expect_refused(kLlama, {{key, value}}, {"config.json", key});
    for (const json& value : {json(0), json(-8), json(8.0), json(8.5), json(~uint64_t{0})})
      expect_refused(kLlama, {{key, value}}, {"config.json", key, value.dump()});
  }
  for (const char* key : {"tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window"}) {
    for (const json& value : {json(1), json("false"), json::array()})
      expect_refused(kLlama, {{key, value}}, {"config.json", key});
  }
  for (const json& value : {json(100), json(-101), json(1.0), json("0"), json(~uint64_t{0})})
    expect_refused(kLlama, {{"pad_token_id", value}}, {"pad_token_id", value.dump(), "100"});
  expect_refused(kLlama, {{"torch_dtype", 16}}, {"torch_dtype"});
  expect_refused(kLlama, {{"torch_dtype", "bfloat16"}, {"dtype", "float32"}}, {"torch_dtype", "dtype", "remove"});
  expect_refused(kQwen3, {{"head_dim", nullptr}}, {"head_dim", "null"});
  expect_refused(kLlama, {{"rope_parameters", 3}}, {"rope_parameters", "object"});
}

// The fields, at their defaults, that saving a model writes for every class of transformers 4 and 5.
TEST(ModelConfig, AcceptsWhatTransformersWrites) {
  const json common = {{"_name_or_path", ""},
                       {"attention_dropout", 0.0},
                       {"bos_token_id", 1},
                       {"chunk_size_feed_forward", 0},
                       {"dtype", "bfloat16"},
                       {"eos_token_id", 2},
                       {"hidden_act", "silu"},
                       {"id2label", {{"0", "LABEL_0"}, {"1", "LABEL_1"}}},
                       {"initializer_range", 0.02},
                       {"is_encoder_decoder", false},
                       {"label2id", {{"LABEL_0", 0}, {"LABEL_1", 1}}},
                       {"num_key_value_heads", 8},
                       {"output_attentions", false},
                       {"output_hidden_states", false},
                       {"pad_token_id", nullptr},
                       {"problem_type", nullptr},
                       {"return_dict", true},
                       {"rms_norm_eps", 1e-06},
                       {"tie_word_embeddings", false},
                       {"use_cache", true}};
  const json fifth = {{"transformers_version", "5.0.0"},
                      {"rope_parameters", {{"rope_theta", 10000.0}, {"rope_type", "default"}}}};
  const json fourth = {{"transformers_version", "4.57.6"},
                       {"rope_theta", 10000.0},
                       {"rope_scaling", nullptr},
                       {"add_cross_attention", false},
                       {"bad_words_ids", nullptr},
                       {"begin_suppress_tokens", nullptr},
                       {"cross_attention_hidden_size", nullptr},
                       {"decoder_start_token_id", nullptr},
                       {"diversity_penalty", 0.0},
                       {"do_sample", false},
                       {"early_stopping", false},
                       {"encoder_no_repeat_ngram_size", 0},
                       {"exponential_decay_length_penalty", nullptr},
                       {"finetuning_task", nullptr},
                       {"forced_bos_token_id", nullptr},
                       {"forced_eos_token_id", nullptr},
                       {"is_decoder", false},
                       {"length_penalty", 1.0},
                       {"max_length", 20},
                       {"min_length", 0},
                       {"no_repeat_ngram_size", 0},
                       {"num_beam_groups", 1},
                       {"num_beams", 1},
                       {"num_return_sequences", 1},
                       {"output_scores", false},
                       {"prefix", nullptr},
                       {"pruned_heads", json::object()},
                       {"remove_invalid_values", false},
                       {"repetition_penalty", 1.0},
                       {"return_dict_in_generate", false},
                       {"sep_token_id", nullptr},
                       {"suppress_tokens", nullptr},
                       {"task_specific_params", nullptr},
                       {"temperature", 1.0},
                       {"tf_legacy_loss", false},
                       {"tie_encoder_decoder", false},
                       {"tokenizer_class", nullptr},
                       {"top_k", 50},
                       {"top_p", 1.0},
                       {"torchscript", false},
                       {"typical_p", 1.0},
                       {"use_bfloat16", false}};
  const json types = {"full_attention", "full_attention", "full_attention"};
  const std::map<std::string, json> own = {
      {kLlama,
       {{"model_type", "llama"},
        {"attention_bias", false},
        {"head_dim", 8},
        {"mlp_bias", false},
        {"pretraining_tp", 1},
        {"max_position_embeddings", 2048}}},
      {kMistral,
       {{"model_type", "mistral"}, {"head_dim", 8}, {"sliding_window", 4096}, {"max_position_embeddings", 131072}}},
      {kQwen2,
       {{"model_type", "qwen2"},
        {"layer_types", types},
        {"max_window_layers", 28},
        {"sliding_window", nullptr},
        {"use_sliding_window", false}}},
      {kQwen3,
       {{"model_type", "qwen3"},
        {"attention_bias", false},
        {"head_dim", 128},
        {"layer_types", types},
        {"max_window_layers", 28},
        {"sliding_window", nullptr},
        {"use_sliding_window", false}}}};
  for (const auto& [family, fields] : own) {
    for (const json& version : {fourth, fifth}) {
      json object = minimal(family);
      for (const json* part : {&common, &version, &fields}) object.update(*part);
      EXPECT_EQ(parse_model_config(object, "config.json").kv_heads, 8) << family;
      EXPECT_EQ(passed_over_fields(object, "config.json"), std::vector<std::string>());
    }
  }
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

// Each of these gives transformers 5 a KeyError, a division by zero or an angle that is NaN.
TEST(ModelConfig, RefusesRopeThatDividesByZeroOrOverflows) {
  const json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 1024}};
  const auto with = [](json object, const char* key, const json& value) {
    object[key] = value;
    return object;
  };
  const auto refused = [](const json& scaling, std::initializer_list<std::string> parts) {
    expect_refused(kLlama, {{"rope_scaling", scaling}}, parts);
  };
  refused({{"rope_type", "yarn"}, {"original_max_position_embeddings", 1024}}, {"factor", "yarn"});
  refused(with(yarn, "rope_theta", 1.0), {"rope_theta", "yarn"});
  refused(with(yarn, "factor", 0.0), {"factor"});
  for (const json& scaling : {yarn, llama3})
    refused(with(scaling, "original_max_position_embeddings", nullptr), {"original_max_position_embeddings", "null"});
  refused({{"rope_type", "linear"}, {"factor", 2e-38}, {"rope_theta", 1e-30}}, {"infinite", "rope_theta"});
  // null means the ratio of the two lengths, as in transformers; equal and swapped betas still have a ramp
  const ModelConfig ratio = parse(kLlama, {{"rope_scaling", with(yarn, "factor", nullptr)}});
  EXPECT_EQ(ratio.rope.factor, static_cast<double>(ratio.max_position) / 1024);
  for (const double slow : {32.0, 64.0}) parse(kLlama, {{"rope_scaling", with(yarn, "beta_slow", slow)}});
}

TEST(ModelConfig, RefusesNullsThatTransformersRefuses) {
  for (const char* key : {"rope_theta", "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings"})
    expect_refused(kLlama, {{key, nullptr}}, {key, "null"});
  expect_refused(kMistral, {{"num_key_value_heads", nullptr}}, {"num_key_value_heads", "null"});
  EXPECT_EQ(parse(kLlama, {{"num_key_value_heads", nullptr}}).kv_heads, parse(kLlama, json::object()).heads);
}

TEST(ModelConfig, EveryPresetParses) {
  EXPECT_FALSE(preset_names().empty());
  for (const std::string& name : preset_names()) {
    const ModelConfig c = parse_model_config(*preset_config(name), name);
    EXPECT_GT(c.layers, 0) << name;
    EXPECT_EQ(c.window.size(), static_cast<size_t>(c.layers)) << name;
    EXPECT_EQ(preset_of(name), name);
    EXPECT_EQ(presets_meant(name), std::vector<std::string>{name});
  }
}

TEST(Presets, AreKnownByTheNamesOfReleasesInAnyCase) {
  for (const auto& [name, preset] : {std::pair{"Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"},
                                     {"qwen/qwen2.5-7b-instruct", "qwen2.5-7b"},
                                     {"Qwen2.5-7B", "qwen2.5-7b"},
                                     {"qwen2.5_7b", "qwen2.5-7b"},
                                     {"Qwen/Qwen2.5-Coder-7B", "qwen2.5-7b"},
                                     {"meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"},
                                     {"meta-llama/Meta-Llama-3-8B", "llama3-8b"},
                                     {"unsloth/Llama-3.2-1B-Instruct", "llama3-1b"},
                                     {"Llama-3.3-70B-Instruct", "llama3-70b"},
                                     {"Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"},
                                     {"openai/gpt-oss-120b", "gpt-oss-120b"},
                                     {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b"},
                                     {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"},
                                     {"mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-24b"},
                                     {"zai-org/GLM-4.5-Air", "glm4.5-air"},
                                     {"GLM-4.6", "glm4.5-355b"},
                                     {"allenai/OLMo-2-1124-7B-Instruct", "olmo2-7b"},
                                     {"google/gemma-4-31b-it", "gemma4-31b"},
                                     {"LGAI-EXAONE/EXAONE-4.0-32B", "exaone4-32b"},
                                     {"Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-next-80b-a3b"},
                                     {"deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"},
                                     {"ByteDance-Seed/Seed-OSS-36B-Base", "seed-oss-36b"}})
    EXPECT_EQ(preset_of(name), preset) << name;
}

TEST(Presets, ANameThatMayBeSeveralIsNoneOfThemAndAMistypedOneHasItsNearest) {
  const std::vector<std::string> sevens = presets_meant("7b");
  EXPECT_GE(sevens.size(), 3u);
  for (const char* preset : {"qwen2.5-7b", "mistral-7b", "olmo2-7b"})
    EXPECT_EQ(std::ranges::count(sevens, preset), 1) << preset;
  EXPECT_EQ(preset_of("7b"), "");
  EXPECT_FALSE(preset_config("7b"));
  EXPECT_GE(presets_meant("Qwen3").size(), 6u);
  EXPECT_TRUE(presets_meant("nonsense").empty());
  EXPECT_EQ(nearest_preset("qwen2.5-7bb"), "qwen2.5-7b");
  EXPECT_EQ(nearest_preset("lama3-8b"), "llama3-8b");
  EXPECT_EQ(nearest_preset("nonsense"), "");
}

}  // namespace megatrain
