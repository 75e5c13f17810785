#include <gtest/gtest.h>

#include "megatrain/io/json.h"
#include "megatrain/model/parse_config.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

nlohmann::json granite(const nlohmann::json& more = nlohmann::json::object()) {
  nlohmann::json config = {{"architectures", {"GraniteForCausalLM"}},
                           {"model_type", "granite"},
                           {"vocab_size", 64},
                           {"hidden_size", 32},
                           {"intermediate_size", 48},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"embedding_multiplier", 12.0},
                           {"attention_multiplier", 0.2},
                           {"residual_multiplier", 0.22},
                           {"logits_scaling", 8.0}};
  config.update(more);
  return config;
}

ModelConfig read(const nlohmann::json& more = nlohmann::json::object()) {
  return parse_model_config(granite(more), "config.json");
}

}  // namespace

TEST(Granite, ReadsItsFourMultipliers) {
  const ModelConfig c = read();
  EXPECT_EQ(c.embedding_scale, 12);
  EXPECT_EQ(c.attention_scale, 0.2);
  EXPECT_EQ(c.branch_scale, 0.22);
  EXPECT_EQ(c.logits_scale, 0.125);
}

TEST(Granite, TakesOneForAMultiplierThatIsAbsent) {
  nlohmann::json config = granite();
  for (const char* key : {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"})
    config.erase(key);
  const ModelConfig c = parse_model_config(config, "config.json");
  EXPECT_EQ(c.embedding_scale, 1);
  EXPECT_EQ(c.attention_scale, 1);  // not 1 / sqrt(head_dim)
  EXPECT_EQ(c.branch_scale, 1);
  EXPECT_EQ(c.logits_scale, 1);
}

TEST(Granite, RefusesAMultiplierThatIsNotAboveZero) {
  for (const char* key : {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"}) {
    for (const nlohmann::json& value : {nlohmann::json(0), nlohmann::json(-0.5), nlohmann::json("1")})
      expect_error(ExitCode::bad_input, {key}, [&] { read({{key, value}}); });
  }
}

TEST(Granite, RefusesBiasesInBranchesThatAreMultiplied) {
  expect_error(ExitCode::bad_input, {"attention_bias"}, [] { read({{"attention_bias", true}}); });
  expect_error(ExitCode::bad_input, {"mlp_bias"}, [] { read({{"mlp_bias", true}}); });
  EXPECT_TRUE(read({{"attention_bias", true}, {"residual_multiplier", 1.0}}).o_bias);
}

TEST(Granite, ItsFieldsAreRefusedInOtherFamilies) {
  for (const char* key : {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"}) {
    nlohmann::json config = granite();
    config["architectures"] = {"LlamaForCausalLM"};
    config["model_type"] = "llama";
    for (const char* other :
         {"embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"}) {
      if (std::string(other) != key) config.erase(other);
    }
    expect_error(ExitCode::bad_input, {key}, [&] { parse_model_config(config, "config.json"); });
  }
}

}  // namespace megatrain
