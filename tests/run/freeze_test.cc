// Runs with frozen tensors: what they write, and that they resume exactly and only as they began.
#include <fmt/format.h>

#include <map>

#include "megatrain/base/log.h"
#include "megatrain/hub/hash.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/io/json.h"
#include "megatrain/run/run.h"
#include "tests/hub/fixtures.h"

namespace megatrain {

namespace {

constexpr int64_t kSteps = 4;

using Tensors = std::map<std::string, std::pair<std::string, std::string>>;  // stored type and bytes

Tensors tensors_of(const std::string& path) {
  Tensors tensors;
  const ModelFiles files(path);
  for (const StoredTensor* stored : files.tensors())
    tensors[stored->name] = {fmt::format("{}", static_cast<int>(stored->dtype)),
                             {reinterpret_cast<const char*>(stored->data), static_cast<size_t>(stored->bytes)}};
  return tensors;
}

class FrozenRun : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { set_log_quiet(true); }
  void TearDown() override { set_log_quiet(false); }

  std::string model() const { return golden_ + "/model"; }

  TrainConfig config(const std::string& run) const {
    const nlohmann::json expected = nlohmann::json::parse(read_bytes(golden_ + "/expected.json"));
    TrainConfig c;
    c.model.path = model();
    c.data.tokens = golden_ + "/tokens.bin";
    c.data.dtype = expected.at("data").at("dtype");
    c.freeze = expected.at("freeze");
    c.device = "cpu";
    c.threads = 1;
    c.seq_len = 16;
    c.batch = 4;
    c.micro_batch = 2;
    c.steps = kSteps;
    c.optim.lr = 1e-3;
    c.run_dir = directory_ / run;
    return c;
  }

  static RunResult run_until(const TrainConfig& config, int64_t step) {
    volatile std::sig_atomic_t stop = 0;
    RunHooks hooks;
    hooks.stop = &stop;
    hooks.on_step = [&](const StepMetrics& metrics) {
      if (metrics.step == step) stop = SIGTERM;
    };
    return run_training(config, hooks);
  }

  std::string golden_ = std::string(MEGATRAIN_SOURCE_DIR) + "/tests/parity/goldens/" + GetParam();
  TemporaryDirectory directory_;
};

}  // namespace

TEST_P(FrozenRun, FrozenTensorsComeOutAsTheyWentInAndHaveNeitherGradientNorMoments) {
  for (const std::string precision : {"bf16", "fp32"}) {
    TrainConfig c = config(precision);
    c.precision = precision;
    c.dump.grads = c.dump.state = parse_steps("2");
    run_training(c, {});
    const Tensors before = tensors_of(model()), after = tensors_of(c.run_dir + "/model"),
                  gradients = tensors_of(c.run_dir + "/grads-2.safetensors"),
                  trained = tensors_of(golden_ + "/grads.safetensors"),
                  state = tensors_of(c.run_dir + "/state-2.safetensors");
    ASSERT_EQ(after.size(), before.size());
    ASSERT_LT(trained.size(), before.size());
    EXPECT_EQ(gradients.size(), trained.size());
    EXPECT_EQ(state.size(), before.size() + 2 * trained.size());
    for (const auto& [name, bytes] : before) {
      const bool moves = trained.count(name) > 0;
      EXPECT_EQ(after.at(name) != bytes, moves) << name;
      EXPECT_EQ(gradients.count(name), moves) << name;
      EXPECT_EQ(state.count(name), 1u) << name;
      EXPECT_EQ(state.count(name + ".exp_avg"), moves) << name;
      EXPECT_EQ(state.count(name + ".exp_avg_sq"), moves) << name;
    }
    EXPECT_EQ(hash_file(c.run_dir + "/state-2.safetensors").tensors.size(), state.size());
  }
}

TEST_P(FrozenRun, StoppedAfterAnyStepAndResumedItEndsTheSame) {
  for (const double clip : {1.0, 0.0}) {
    const auto made = [&](const std::string& run) {
      TrainConfig c = config(fmt::format("{}-{}", run, clip));
      c.optim.clip = clip;
      return c;
    };
    const std::string expected = run_training(made("straight"), {}).state_hash;
    for (int64_t step = 1; step < kSteps; ++step) {
      TrainConfig c = made(fmt::format("stop-{}", step));
      run_until(c, step);
      c.resume = true;
      EXPECT_EQ(run_training(c, {}).state_hash, expected) << "clip " << clip << ", stopped after step " << step;
    }
  }
}

TEST_P(FrozenRun, ResumeRefusesOtherPatterns) {
  TrainConfig c = config("run");
  run_until(c, 2);
  c.resume = true;
  const auto refused = [&](const std::string& key, auto&& change) {
    TrainConfig other = c;
    change(other);
    expect_error(ExitCode::bad_config, {key, "step-00000002"}, [&] { run_training(other, {}); });
  };
  refused("freeze", [](TrainConfig& o) { o.freeze.clear(); });
  refused("freeze", [](TrainConfig& o) { o.freeze.push_back("model.norm.weight"); });
  refused("train_only", [](TrainConfig& o) { o.train_only = {"*"}; });
}

TEST_P(FrozenRun, TrainOnlyNamesTheSameTensorsTheOtherWayRound) {
  TrainConfig c = config("freeze"), inverse = config("train_only");
  inverse.freeze.clear();
  for (const auto& [name, bytes] : tensors_of(golden_ + "/grads.safetensors")) inverse.train_only.push_back(name);
  EXPECT_EQ(run_training(c, {}).state_hash, run_training(inverse, {}).state_hash);
}

INSTANTIATE_TEST_SUITE_P(Goldens, FrozenRun, testing::Values("llama_frozen", "qwen3_frozen"),
                         [](const auto& info) { return info.param; });

}  // namespace megatrain
