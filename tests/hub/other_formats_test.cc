#include "megatrain/hub/other_formats.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "megatrain/hub/hub_cache.h"
#include "tests/support/said.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

class OtherFormats : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "other_formats";
    fs::remove_all(folder_);
    fs::create_directories(folder_ / "d");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text = "x") {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  static std::string of_model(const std::string& path) {
    return refused_with(ExitCode::bad_input, [&] { find_model(path, ModelParts::weights); });
  }
  static bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

  fs::path folder_;
};

TEST_F(OtherFormats, AreAnsweredWithTheCommandThatHelps) {
  EXPECT_TRUE(has(of_model(write("a.gguf")), "is GGUF, an inference format")) << of_model(write("a.gguf"));
  for (const char* const name : {"a.bin", "a.pt", "a.pth", "a.ckpt"})
    EXPECT_TRUE(has(of_model(write(name)), "is a pickled checkpoint, which is not read; give the directory")) << name;
  const std::string folder = (folder_ / "d").string();
  EXPECT_EQ(of_model(folder), "accepted");  // opening it reports what is missing
  write("d/model-q4.gguf");
  EXPECT_TRUE(has(of_model(folder), "model-q4.gguf is GGUF"));
  write("d/adapter_config.json", R"({"base_model_name_or_path": "Org/Base"})");
  const std::string adapter = of_model(folder + "/");
  EXPECT_TRUE(has(adapter, folder + " is an adapter (LoRA) of Org/Base, not a whole model; model.adapter: "))
      << adapter;
  EXPECT_TRUE(has(adapter, "megatrain merge Org/Base " + folder + " --out " + folder + "-merged, and give " + folder +
                               "-merged as the model"))
      << adapter;
  write("d/config.json", "{}");
  EXPECT_EQ(of_model(folder + "/"), adapter) << "trainers put its base's config.json there";
  std::filesystem::remove(folder_ / "d/adapter_config.json");
  EXPECT_EQ(of_model(folder), "accepted") << "a model, whatever stands beside it";
}

TEST_F(OtherFormats, AnAdaptersNameIsAWordOfTheShellAndNoCode) {
  fs::create_directories(folder_ / "x'$(touch y)'");
  write("x'$(touch y)'/adapter_config.json", "{}");
  const std::string said = of_model((folder_ / "x'$(touch y)'").string());
  const std::string quoted = "'" + (folder_ / "x'\\''$(touch y)'\\''").string();
  EXPECT_TRUE(has(said, "megatrain merge BASE " + quoted + "' --out " + quoted + "-merged', and give ")) << said;
}

TEST_F(OtherFormats, ARunIsTakenWhateverStandsInIt) {
  write("d/adapter_config.json", "{}");
  write("d/config.resolved.yaml", "{}");
  EXPECT_EQ(of_model((folder_ / "d").string()), "accepted");
}

TEST_F(OtherFormats, QuantisedWeightsAreNamedByTheirMethod) {
  const auto said = [](const nlohmann::json& field) {
    return refused_with(ExitCode::bad_input, [&] {
      refuse_quantised({{"quantization_config", field}}, "m/config.json");
    });
  };
  EXPECT_TRUE(
      has(said({{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}), "quantised (\"bitsandbytes\", 4 bits)"))
      << said({{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}});
  EXPECT_TRUE(has(said({{"quant_method", "gptq"}, {"bits", 8}}), "quantised (\"gptq\", 8 bits)"));
  for (const char* const method : {"awq", "compressed-tensors", "gptq"})
    EXPECT_TRUE(has(said({{"quant_method", method}}), "hf download ORG/NAME")) << method;
  EXPECT_TRUE(has(said({{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"bnb_4bit_quant_type", "nf4"}}),
                  "(\"bitsandbytes\", 4 bits, \"nf4\")"));
  EXPECT_TRUE(has(said({{"quant_method", "compressed-tensors"}, {"format", "nvfp4-pack-quantized"}}),
                  "(\"compressed-tensors\", \"nvfp4-pack-quantized\")"));
  EXPECT_TRUE(has(said({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}), "(\"modelopt\", \"NVFP4\")"));
  EXPECT_EQ(said({{"quant_method", "mxfp4"}}), "accepted");  // accepted for the families that support it
  EXPECT_EQ(said(nullptr), "accepted");
}

TEST_F(OtherFormats, OfFp8OnlyBlocksAreAccepted) {
  const nlohmann::json released = {{"quant_method", "fp8"},          {"fmt", "e4m3"},
                                   {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}},
                                   {"scale_fmt", "ue8m0"},           {"modules_to_not_convert", {"lm_head"}}};
  const auto said = [&](const std::string& key, const nlohmann::json& value) {
    nlohmann::json field = released;
    field[key] = value;
    return refused_with(ExitCode::bad_input, [&] {
      refuse_quantised({{"quantization_config", field}}, "m/config.json");
    });
  };
  EXPECT_EQ(said("fmt", "e4m3"), "accepted");
  EXPECT_EQ(said("modules_to_convert", nlohmann::json::array()), "accepted");
  EXPECT_TRUE(has(said("weight_block_size", {64, 64}), "(\"fp8\", weight_block_size \"[64,64]\")"));
  EXPECT_TRUE(has(said("weight_block_size", {64, 64}), "blocks of 128 x 128")) << said("weight_block_size", {64, 64});
  EXPECT_TRUE(has(said("weight_block_size", nullptr), "weight_block_size \"null\""));  // one scale for a tensor
  EXPECT_TRUE(has(said("activation_scheme", "static"), "activation_scheme"));
  EXPECT_TRUE(has(said("fmt", "e5m2"), "e5m2"));
  EXPECT_TRUE(has(said("expert_dtype", "fp4"), "expert_dtype"));
  EXPECT_TRUE(has(said("modules_to_convert", {"embed_tokens"}), "modules_to_convert"));
}

TEST_F(OtherFormats, TheBaseThatTheModelPageNamesIsSaid) {
  const auto said = [&](const std::string& page) {
    write("d/README.md", page);
    return refused_with(ExitCode::bad_input, [&] {
      refuse_quantised({{"quantization_config", {{"quant_method", "awq"}}}}, (folder_ / "d/config.json").string());
    });
  };
  for (const char* page :
       {"---\nlicense: mit\nbase_model: Qwen/Qwen3-8B\n---\ntext", "---\nbase_model:\n- Qwen/Qwen3-8B\n---\n",
        "---\nbase_model:\n  - \"Qwen/Qwen3-8B\"\ntags: [a]\n---\n"})
    EXPECT_TRUE(has(said(page), "README.md names: hf download Qwen/Qwen3-8B")) << said(page);
  for (const char* page : {"", "base_model: Qwen/Qwen3-8B", "---\ntags: [a]\n---\nbase_model: Qwen/Qwen3-8B\n",
                           "---\nbase_model: $(rm)\n---\n"})
    EXPECT_TRUE(has(said(page), "hf download ORG/NAME")) << page;
}

}  // namespace
}  // namespace megatrain
