// Freezing as scripts see it.
#include "tests/support/command.h"

namespace megatrain::cli {

namespace {

const std::string kFreeze = "steps: 3\nfreeze: [model.embed_tokens.*, \"model.layers.[0-0].*\"]\n";

}  // namespace

TEST(Freeze, ARunWithItsPatternsIsReproducedByItsResolvedConfiguration) {
  const Place place("llama_linear", kFreeze);
  succeed({"train", place.config()});
  const json hash = hash_of(place.run());
  EXPECT_TRUE(hash.at("tensors").contains("model.layers.1.mlp.up_proj.weight.exp_avg"));
  EXPECT_TRUE(hash.at("tensors").contains("model.layers.0.mlp.up_proj.weight"));
  EXPECT_FALSE(hash.at("tensors").contains("model.layers.0.mlp.up_proj.weight.exp_avg"));
  EXPECT_FALSE(hash.at("tensors").contains("model.embed_tokens.weight.exp_avg_sq"));
  const RawSafetensors source(golden("llama_linear") + "/model/model.safetensors"),
      made(place.run() + "/model/model.safetensors");
  for (const char* name :
       {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.0.input_layernorm.weight"})
    EXPECT_EQ(made.bytes_of(name), source.bytes_of(name)) << name;
  EXPECT_NE(made.bytes_of("lm_head.weight"), source.bytes_of("lm_head.weight"));

  succeed({"train", place.run() + "/config.resolved.yaml", "--run_dir=" + (place / "again")});
  EXPECT_EQ(hash_of(place / "again"), hash);
  succeed({"train", place.config(), "--freeze=none", "--train_only=model.layers.1.*,model.norm.weight,lm_head.*",
           "--run_dir=" + (place / "inverse")});
  EXPECT_EQ(hash_of(place / "inverse"), hash);
}

TEST(Freeze, RefusesPatternsThatMatchNothingOrEverything) {
  const Place place("llama_linear", "steps: 3\n");
  expect_refusal({"train", place.config(), "--freeze=model.embed_token.*"}, ExitCode::bad_config,
                 {"freeze", "model.embed_token.*", "model.embed_tokens.weight"});
  expect_refusal({"train", place.config(), "--train_only=*", "--freeze=model.*,lm_head.weight"}, ExitCode::bad_config,
                 {"no tensor to train"});
  expect_refusal({"train", place.config(), "--freeze=a,,b"}, ExitCode::bad_config, {"freeze", "list of patterns"});
}

TEST(Freeze, APlanOfAFrozenModelNeedsLessMemory) {
  const auto plan = [](const Words& more) {
    Words words = {"plan", "llama3-70b", "--json", "--device=cpu", "--memory.gpu=80GiB", "--memory.host=2000GiB"};
    words.insert(words.end(), more.begin(), more.end());
    return json::parse(succeed(words).out);
  };
  const json whole = plan({}), frozen = plan({"--train_only=model.layers.7[6-9].*"});
  EXPECT_LT(frozen.at("peaks").at("host"), 0.5 * whole.at("peaks").at("host").get<double>());
  EXPECT_LT(frozen.at("memory").at("host").at("first moments"), int64_t{16} << 30);
  EXPECT_LT(frozen.at("step_s"), whole.at("step_s"));
}

TEST(Freeze, APlanCountsLowBitsByTheTypeOfTheFilesOrElseOfTheConfigJson) {
  const TemporaryDirectory place;
  const std::string model = place / "model";
  fs::copy(golden("qwen2_tied") + "/model", model, fs::copy_options::recursive);
  const auto low_bits = [&](const std::string& target, const Words& more = {}) {
    Words words = {"plan", target, "--json", "--machine=4090", "--seq_len=16", "--freeze=model.layers.0.*"};
    words.insert(words.end(), more.begin(), more.end());
    const json memory = json::parse(succeed(words).out).at("memory");
    int64_t sum = 0;
    for (const char* tier : {"hbm", "host"}) sum += memory.at(tier).value("low bits", int64_t{0});
    return sum;
  };
  const int64_t without = low_bits(model), preset = low_bits("qwen2.5-0.5b");
  write_bytes(place / "path.yaml", fmt::format("model.path: {}\n", model));
  write_bytes(place / "random.yaml", fmt::format("model.config: {}/config.json\n", model));
  const int64_t whole = low_bits(place / "random.yaml");
  EXPECT_LT(without, whole);
  EXPECT_EQ(low_bits(place / "path.yaml"), without);
  fs::remove(model + "/model.safetensors");
  EXPECT_EQ(low_bits(model), without) << "torch_dtype is bfloat16";
  json config = json::parse(read_bytes(model + "/config.json"));
  config["torch_dtype"] = "float32";
  write_bytes(model + "/config.json", config.dump());
  EXPECT_EQ(low_bits(model), whole);
  EXPECT_EQ(low_bits(model, {"--precision=fp32"}), 0);
  EXPECT_LT(preset, low_bits("qwen2.5-0.5b", {"--freeze=model.layers.0.input_layernorm.weight"}));
}

}  // namespace megatrain::cli
