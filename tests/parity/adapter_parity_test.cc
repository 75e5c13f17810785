// Adapters against PEFT: losses, gradients and ten clipped steps; directories in and out.
#include "megatrain/config/adapter_file.h"
#include "megatrain/io/file.h"
#include "megatrain/train/adapter_files.h"
#include "tests/parity/parity.h"
#include "tests/support/fixtures.h"

namespace megatrain::parity {

class AdapterGolden : public ::testing::TestWithParam<std::string> {
 protected:
  std::string name() const { return kAdapterGoldens + GetParam(); }
  std::string adapter() const { return golden_path(name()) + "/adapter"; }
  TrainConfig config() const {
    const nlohmann::json golden = read_json_file(golden_path(name()) + "/expected.json");
    TrainConfig config;
    config.device = "cpu";
    config.precision = "fp32";
    config.threads = 2;
    config.model.path = golden_path(name()) + "/" + golden.at("base").get<std::string>();
    config.model.adapter = adapter();
    config.adapter = read_adapter_file(adapter()).settings;
    config.seq_len = 16;
    config.memory.gpu_bytes = config.memory.host_bytes = int64_t{4} << 30;
    return config;
  }
};

TEST_P(AdapterGolden, Fp32LossGradientsAndTenClippedStepsMatchPeft) { expect_fp32_parity(name(), {.micro_batch = 2}); }

TEST_P(AdapterGolden, Fp32MatchesWithTheWholeStepInOneMicroBatchAndBlocksInChunks) {
  const int64_t batch = read_json_file(golden_path(name()) + "/expected.json").at("batch").get<int64_t>();
  expect_fp32_parity(name(), {.micro_batch = batch, .mlp_chunk = 24});
}

TEST_P(AdapterGolden, Bf16LossAndGradientDirectionsMatchPeft) { expect_bf16_parity(name(), {.micro_batch = 2}); }

// What PEFT wrote of its settings names the same modules with the same ranks and scales.
TEST_P(AdapterGolden, SettingsReadFromPeftAreThoseOfTheRun) {
  const nlohmann::json golden = read_json_file(golden_path(name()) + "/expected.json");
  TrainConfig given = config(), ours = given;
  ours.adapter = adapter_of(golden);
  const ModelSource source = read_model_source(given);
  const auto adapters_of = [&](const TrainConfig& c) {
    std::map<std::string, std::tuple<int64_t, int64_t, float>> found;
    for (const LayerLayout& layout : model_layouts(source.config, DType::f32, {.adapter = adapter_rules(c.adapter)})) {
      for (const TensorSpec& t : layout.tensors) {
        if (t.trainable) found[t.name] = {t.rows, t.cols, t.adapter.scale};
      }
    }
    return found;
  };
  EXPECT_EQ(adapters_of(given), adapters_of(ours));
}

// An adapter that is not trained comes out with the values that went in, under PEFT's names.
TEST_P(AdapterGolden, AnUntrainedAdapterComesOutAsItWentIn) {
  Session session(config());
  session.trainer();
  const TensorTypes types = session.fill_weights();
  TemporaryDirectory out;
  const std::string directory = out / "adapter";
  const StateHash hash = session.export_model(directory, types);
  EXPECT_EQ(hash_directory(directory).weights, hash.weights);
  EXPECT_EQ(read_tensors(directory + "/adapter_model.safetensors"),
            read_tensors(adapter() + "/adapter_model.safetensors"));
  const AdapterFile before = read_adapter_file(adapter()), after = read_adapter_file(directory);
  EXPECT_EQ(after.settings.rank, before.settings.rank);
  EXPECT_EQ(after.settings.alpha, before.settings.alpha);
  EXPECT_EQ(after.settings.rank_pattern, before.settings.rank_pattern);
  EXPECT_EQ(after.settings.also_train, before.settings.also_train);
  EXPECT_TRUE(std::filesystem::exists(after.base + "/config.json")) << after.base;
}

INSTANTIATE_TEST_SUITE_P(Adapters, AdapterGolden, ::testing::ValuesIn(adapter_golden_names()),
                         [](const auto& info) { return info.param; });

}  // namespace megatrain::parity
