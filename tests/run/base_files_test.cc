// Runs whose frozen base stays in its files: the bits of runs that load it, exact resume, answers and evaluation.
#include <fmt/format.h>

#include <filesystem>

#include "megatrain/hub/hash.h"
#include "megatrain/plan/plan.h"
#include "megatrain/run/run.h"
#include "tests/run/golden_run.h"

namespace megatrain {

namespace {

class BaseFilesRun : public GoldenRun {
 protected:
  static constexpr int64_t kSteps = 4;

  // A run on a copy of a golden model; `base`: memory.base.
  TrainConfig config(const std::string& golden, const std::string& base) {
    golden_ = in_repository("tests/parity/goldens/" + golden);
    const std::string model = directory_ / golden;
    if (!std::filesystem::exists(model)) std::filesystem::copy(golden_ + "/model", model);
    TrainConfig c = run_config(fmt::format("{}-{}", golden, base));
    c.model.path = model;
    c.batch = 4;
    c.steps = kSteps;
    c.optim.lr = 1e-2;
    c.adapter = {.rank = 4, .alpha = 8, .dropout = 0.1};
    c.memory.base = base;
    return c;
  }
};

// The state hash of a run that must, or must not, have read its base from files in every step.
std::string trained(const TrainConfig& c, bool reads) {
  RunHooks hooks;
  hooks.on_step = [&](const StepMetrics& metrics) { EXPECT_EQ(metrics.report.disk_read_bytes > 0, reads); };
  return run_training(c, hooks).state_hash;
}

TEST_F(BaseFilesRun, EndsAsOneThatLoadsTheBase) {
  for (const char* golden :
       {"llama_mha", "gpt_oss", "gpt_oss_mxfp4", "phi3_packed", "qwen3_moe", "qwen3_fp8", "qwen3_moe_fp8"}) {
    for (const char* precision : {"bf16", "fp32"}) {
      SCOPED_TRACE(std::string(golden) + " in " + precision);
      std::filesystem::remove_all(directory_ / (std::string(golden) + "-host"));
      std::filesystem::remove_all(directory_ / (std::string(golden) + "-files"));
      TrainConfig host = config(golden, "host"), files = config(golden, "files");
      host.precision = files.precision = precision;
      const std::string before = read_bytes(files.model.path + "/model.safetensors");
      EXPECT_EQ(trained(files, true), trained(host, false));
      EXPECT_EQ(read_bytes(files.model.path + "/model.safetensors"), before);
      EXPECT_EQ(hash_file(files.run_dir + "/model/adapter_model.safetensors").weights,
                hash_file(host.run_dir + "/model/adapter_model.safetensors").weights);
    }
  }
}

TEST_F(BaseFilesRun, StoppedAndResumedItEndsTheSameWhereverTheBaseIs) {
  const std::string expected = run_training(config("gpt_oss", "host"), {}).state_hash;
  for (const auto& [first, second] : {std::pair{"files", "files"}, {"files", "host"}, {"auto", "files"}}) {
    TrainConfig c = config("gpt_oss", first);
    c.run_dir = directory_ / fmt::format("{}-{}", first, second);
    run_until(c, 2);
    c.resume = true;
    c.memory.base = second;
    EXPECT_EQ(run_training(c, {}).state_hash, expected) << first << ", then " << second;
  }
}

TEST_F(BaseFilesRun, AFileThatChangesEndsTheRunAndItsCheckpointStays) {
  TrainConfig c = config("llama_mha", "files");
  const std::string expected = run_training(config("llama_mha", "host"), {}).state_hash;
  const std::string file = c.model.path + "/model.safetensors", bytes = read_bytes(file);
  c.checkpoint.every = 1;
  RunHooks hooks;
  hooks.on_step = [&](const StepMetrics& metrics) {
    if (metrics.step == 2) std::filesystem::resize_file(file, 4096);
  };
  expect_error(ExitCode::io, {file, "had", "restore it, then resume"}, [&] { run_training(c, hooks); });
  EXPECT_FALSE(std::filesystem::exists(c.run_dir + "/model"));
  write_bytes(file, bytes);
  c.resume = true;
  EXPECT_EQ(run_training(c, {}).state_hash, expected);
}

TEST_F(BaseFilesRun, IsRefusedWhereNothingCouldStay) {
  TrainConfig c = config("llama_mha", "files");
  c.adapter.also_train = {"layernorm"};  // in every block
  expect_error(ExitCode::bad_config, {"memory.base is files", "trained whole"}, [&] { run_training(c, {}); });
}

}  // namespace

}  // namespace megatrain
