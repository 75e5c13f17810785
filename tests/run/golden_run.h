// Whole runs of a tiny golden model on its tokens, in process and without output.
#pragma once

#include <csignal>

#include "megatrain/base/log.h"
#include "megatrain/io/json.h"
#include "megatrain/run/run.h"
#include "tests/support/fixtures.h"
#include "tests/support/places.h"

namespace megatrain {

class GoldenRun : public testing::Test {
 protected:
  void SetUp() override { set_log_quiet(true); }
  void TearDown() override { set_log_quiet(false); }

  // The caller sets the model.
  TrainConfig run_config(const std::string& run) const {
    TrainConfig c;
    c.data.tokens = golden_ + "/tokens.bin";
    c.data.dtype = nlohmann::json::parse(read_bytes(golden_ + "/expected.json")).at("data").at("dtype");
    c.device = "cpu";
    c.threads = 1;
    c.seq_len = 16;
    c.micro_batch = 2;
    c.run_dir = directory_ / run;
    return c;
  }

  // Requests a stop once `step` is done.
  static RunResult run_until(const TrainConfig& config, int64_t step) {
    volatile std::sig_atomic_t stop = 0;
    RunHooks hooks;
    hooks.stop = &stop;
    hooks.on_step = [&](const StepMetrics& metrics) {
      if (metrics.step == step) stop = SIGTERM;
    };
    return run_training(config, hooks);
  }

  TemporaryDirectory directory_;
  std::string golden_ = in_repository("tests/parity/goldens/qwen2_tied");
};

}  // namespace megatrain
