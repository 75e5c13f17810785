// `megatrain merge`: what it prints, what it leaves, and what it refuses.
#include <filesystem>

#include "megatrain/io/json_file.h"
#include "tests/support/command.h"
#include "tests/support/fixtures.h"
#include "tests/support/places.h"

namespace megatrain::cli {

namespace {

const std::string kGoldens = in_repository("tests/parity/");

}  // namespace

TEST(Merge, WritesAWholeModelThatTheProgramTakes) {
  TemporaryDirectory out;
  const std::string base = kGoldens + "goldens/llama_bias/model",
                    adapter = kGoldens + "adapter_goldens/llama_bias/adapter", model = out / "merged";
  const Outcome outcome = succeed({"merge", base, adapter, "--out", model, "--json"});
  const nlohmann::json result = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(result.at("model"), model);
  EXPECT_GT(result.at("adapted"), result.at("unmoved"));
  EXPECT_TRUE(std::filesystem::exists(model + "/config.json"));
  EXPECT_FALSE(std::filesystem::exists(model + "/adapter_config.json"));
  EXPECT_EQ(nlohmann::json::parse(succeed({"inspect", model, "--json"}).out).at("parameters"),
            nlohmann::json::parse(succeed({"inspect", base, "--json"}).out).at("parameters"));
}

TEST(Merge, WarnsOfAnAdapterThatNamesAnotherBase) {
  TemporaryDirectory out;
  const std::string base = kGoldens + "goldens/llama_bias/model", adapter = out / "adapter";
  std::filesystem::copy(kGoldens + "adapter_goldens/llama_bias/adapter", adapter);
  nlohmann::json config = read_json_file(adapter + "/adapter_config.json");
  const auto said = [&](const std::string& named) {
    config["base_model_name_or_path"] = named;
    write_bytes(adapter + "/adapter_config.json", config.dump());
    std::filesystem::remove_all(out / "merged");
    return succeed({"merge", base, adapter, "--out", out / "merged"}).err;
  };
  for (const std::string& other : {kGoldens + "goldens/llama_mha/model", std::string("Org/Absent")})
    EXPECT_NE(said(other).find("names the base " + other + ", and this one is " + base), std::string::npos) << other;
  EXPECT_EQ(said(base).find("names the base"), std::string::npos);
  EXPECT_EQ(said(base + "/../model").find("names the base"), std::string::npos);
}

TEST(Merge, RefusesAnotherBaseAnExistingDirectoryAndWhatIsNoAdapter) {
  TemporaryDirectory out;
  const std::string base = kGoldens + "goldens/llama_bias/model",
                    adapter = kGoldens + "adapter_goldens/llama_bias/adapter", model = out / "merged";
  expect_refusal({"merge", base, adapter}, ExitCode::bad_config, {"--out"});
  expect_refusal({"merge", base, "--out", model}, ExitCode::bad_config, {"BASE", "ADAPTER"});
  expect_refusal({"merge", base, adapter, "--out", model, "--dtype", "int8"}, ExitCode::bad_config, {"int8", "bf16"});
  expect_refusal({"merge", base, adapter, "--out", out / ""}, ExitCode::bad_config, {"exists"});
  expect_refusal({"merge", base, base, "--out", model}, ExitCode::bad_input, {"adapter_config.json"});
  expect_refusal({"merge", kGoldens + "goldens/qwen3_norm/model", adapter, "--out", model}, ExitCode::bad_input,
                 {"adapter_model.safetensors"});
  EXPECT_FALSE(std::filesystem::exists(model));
}

}  // namespace megatrain::cli
