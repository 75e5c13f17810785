// The text part of a multimodal model's config.json: released ones, and what is refused.
#include "megatrain/model/multimodal.h"

#include <gtest/gtest.h>

#include "megatrain/model/parse_config.h"
#include "megatrain/model/known_fields.h"
#include "megatrain/model/model.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

using nlohmann::json;

// That of Gemma 3 4B, which leaves out most fields of its text part.
json gemma3_4b() {
  return {{"architectures", {"Gemma3ForConditionalGeneration"}},
          {"boi_token_index", 255999},
          {"eoi_token_index", 256000},
          {"eos_token_id", {1, 106}},
          {"image_token_index", 262144},
          {"initializer_range", 0.02},
          {"mm_tokens_per_image", 256},
          {"model_type", "gemma3"},
          {"text_config",
           {{"hidden_size", 2560},
            {"intermediate_size", 10240},
            {"model_type", "gemma3_text"},
            {"num_hidden_layers", 34},
            {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
            {"sliding_window", 1024}}},
          {"torch_dtype", "bfloat16"},
          {"transformers_version", "4.50.0.dev0"},
          {"vision_config", {{"hidden_size", 1152}, {"model_type", "siglip_vision_model"}}}};
}

// That of Qwen2.5-VL 7B, whose text part has no object of its own.
json qwen2_5_vl_7b() {
  return {{"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
          {"attention_dropout", 0.0},
          {"bos_token_id", 151643},
          {"eos_token_id", 151645},
          {"hidden_act", "silu"},
          {"hidden_size", 3584},
          {"image_token_id", 151655},
          {"initializer_range", 0.02},
          {"intermediate_size", 18944},
          {"max_position_embeddings", 128000},
          {"max_window_layers", 28},
          {"model_type", "qwen2_5_vl"},
          {"num_attention_heads", 28},
          {"num_hidden_layers", 28},
          {"num_key_value_heads", 4},
          {"rms_norm_eps", 1e-06},
          {"rope_scaling", {{"mrope_section", {16, 24, 24}}, {"type", "mrope"}}},
          {"rope_theta", 1000000.0},
          {"sliding_window", 32768},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"transformers_version", "4.41.2"},
          {"use_cache", true},
          {"use_sliding_window", false},
          {"video_token_id", 151656},
          {"vision_config", {{"depth", 32}}},
          {"vision_end_token_id", 151653},
          {"vision_start_token_id", 151652},
          {"vision_token_id", 151654},
          {"vocab_size", 152064}};
}

json qwen3_vl() {
  return {{"architectures", {"Qwen3VLForConditionalGeneration"}},
          {"image_token_id", 60},
          {"model_type", "qwen3_vl"},
          {"text_config",
           {{"attention_bias", false},
            {"dtype", "bfloat16"},
            {"head_dim", 16},
            {"hidden_size", 32},
            {"intermediate_size", 48},
            {"model_type", "qwen3_vl_text"},
            {"num_attention_heads", 4},
            {"num_hidden_layers", 2},
            {"num_key_value_heads", 2},
            {"rope_scaling", {{"mrope_interleaved", true}, {"mrope_section", {4, 2, 2}}, {"rope_type", "default"}}},
            {"rope_theta", 5000000},
            {"tie_word_embeddings", true},
            {"vocab_size", 64}}},
          {"tie_word_embeddings", true},
          {"video_token_id", 61},
          {"vision_config", {{"depth", 2}}},
          {"vision_end_token_id", 63},
          {"vision_start_token_id", 62}};
}

ModelConfig parse(const json& config) { return parse_model_config(config, "config.json"); }

void refused(const json& config, std::initializer_list<std::string> parts) {
  expect_error(ExitCode::bad_input, parts, [&] { parse(config); });
}

}  // namespace

TEST(Multimodal, ReadsWhatTextConfigLeavesOutAsTransformersDoes) {
  const ModelConfig c = parse(gemma3_4b());
  EXPECT_EQ(c.architecture, "Gemma3ForCausalLM");
  EXPECT_EQ(c.part_of, "Gemma3ForConditionalGeneration");
  EXPECT_EQ(c.vocab, 262208);
  EXPECT_EQ(c.heads, 8);
  EXPECT_EQ(c.kv_heads, 4);
  EXPECT_EQ(c.head_dim, 256);
  EXPECT_EQ(c.layers, 34);
  EXPECT_EQ(c.rope.factor, 8);
  EXPECT_EQ(c.dtype, DType::bf16);
  EXPECT_TRUE(c.tied);
}

TEST(Multimodal, TakesARopeOfThreeAxesForOneOfText) {
  const ModelConfig flat = parse(qwen2_5_vl_7b());
  EXPECT_EQ(flat.architecture, "Qwen2ForCausalLM");
  EXPECT_EQ(flat.part_of, "Qwen2_5_VLForConditionalGeneration");
  EXPECT_EQ(flat.rope.scaling, RopeScaling::none);
  EXPECT_EQ(flat.rope.theta, 1e6);
  EXPECT_EQ(flat.vocab, 152064);
  EXPECT_FALSE(flat.tied);
  const ModelConfig interleaved = parse(qwen3_vl());
  EXPECT_EQ(interleaved.rope.scaling, RopeScaling::none);
  EXPECT_EQ(interleaved.rope.theta, 5e6);
  json absent = qwen3_vl();
  absent["text_config"].erase("rope_theta");
  EXPECT_EQ(parse(absent).rope.theta, 5e5);
  absent["text_config"]["rope_scaling"]["rope_theta"] = 7e5;
  EXPECT_EQ(parse(absent).rope.theta, 7e5);
}

TEST(Multimodal, TiesAsTheWholeModelSays) {
  json config = qwen3_vl();
  config["tie_word_embeddings"] = false;
  EXPECT_FALSE(parse(config).tied);
  config.erase("tie_word_embeddings");
  EXPECT_TRUE(parse(config).tied);
}

TEST(Multimodal, HasATextPartThatIsAModelByItself) {
  for (const json& config : {gemma3_4b(), qwen2_5_vl_7b(), qwen3_vl()}) {
    const TextPart text = text_part_of(config, "config.json");
    const ModelConfig alone = parse(text.config);
    EXPECT_EQ(alone.part_of, "");
    EXPECT_EQ(alone.architecture, parse(config).architecture);
    EXPECT_EQ(alone.hidden, parse(config).hidden);
    EXPECT_EQ(alone.tied, parse(config).tied);
    EXPECT_FALSE(text.config.contains("vision_config"));
  }
}

TEST(Multimodal, NamesFieldsOfTheTextPartByTheirPlace) {
  json config = qwen3_vl();
  config["text_config"]["hidden_act"] = "relu";
  refused(config, {"config.json: text_config", "'hidden_act' is \"relu\""});
  config = qwen3_vl();
  config["text_config"]["num_experts"] = 8;
  refused(config, {"config.json: text_config", "num_experts"});
  config = qwen3_vl();
  config["text_config"]["use_sliding_window"] = true;
  refused(config, {"config.json: text_config", "'use_sliding_window' is true", "Qwen3VLForConditionalGeneration"});
}

TEST(Multimodal, RefusesFieldsOutsideTheTextPartThatContradictItOrAreUnknown) {
  json config = qwen3_vl();
  config["hidden_size"] = 32;
  EXPECT_EQ(parse(config).hidden, 32);
  config["hidden_size"] = 64;
  refused(config, {"config.json: 'hidden_size' is 64 beside text_config, where it is 32"});
  config = qwen3_vl();
  config["rope_theta_of_images"] = 3;
  refused(config, {"config.json: field 'rope_theta_of_images' is 3"});
}

// transformers 4.52 and later saved the fields of Qwen2.5-VL twice, and switched the window off in text_config.
TEST(Multimodal, ReadsTextConfigWhereItsFieldsAreOutsideAsWell) {
  json config = qwen2_5_vl_7b();
  json text = config;
  for (const char* key : {"architectures", "image_token_id", "video_token_id", "vision_config", "vision_end_token_id",
                          "vision_start_token_id", "vision_token_id", "transformers_version"})
    text.erase(key);
  text["model_type"] = "qwen2_5_vl_text";
  text["sliding_window"] = nullptr;
  config["text_config"] = text;
  EXPECT_EQ(parse(config).hidden, 3584);
  config["hidden_size"] = 64;
  refused(config, {"'hidden_size' is 64 beside text_config, where it is 3584"});
}

TEST(Multimodal, RefusesTextPartsOfOtherModels) {
  json config = qwen3_vl();
  config["text_config"]["model_type"] = "qwen9_text";
  refused(config, {"text_config: 'model_type' is 'qwen9_text'", "qwen3_vl_text"});
  config = qwen3_vl();
  config["model_type"] = "qwen2_5_vl";
  refused(config, {"'model_type' is \"qwen2_5_vl\"", "Qwen3VLForConditionalGeneration", "qwen3_vl"});
  config = qwen3_vl();
  config.erase("text_config");
  refused(config, {"'text_config' is missing"});
  config["architectures"] = {"LlavaForConditionalGeneration"};
  refused(config, {"LlavaForConditionalGeneration", "is not supported", "Qwen3VLForConditionalGeneration"});
}

TEST(Multimodal, IsFoundByItsModelTypeAlone) {
  json config = gemma3_4b();
  config.erase("architectures");
  EXPECT_EQ(parse(config).part_of, "Gemma3ForConditionalGeneration");
}

TEST(Multimodal, WarnsOfFieldsWithoutEffectInTheTextPart) {
  json config = qwen3_vl();
  config["text_config"]["no_such_field"] = nullptr;
  const std::vector<std::string> notes = passed_over_fields(config, "config.json");
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("text_config: field 'no_such_field'"), std::string::npos) << notes[0];
}

}  // namespace megatrain
