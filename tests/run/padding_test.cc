// Without packing, a step costs what its samples need, and seq_len changes no bit.
#include <gtest/gtest.h>

#include "megatrain/run/run.h"
#include "tests/run/dataset_run.h"

namespace megatrain {
namespace {

TEST_F(DatasetRun, WithoutPackingSeqLenChangesNoBit) {
  write("data.jsonl", conversations(30));
  const auto trained = [&](const std::string& name, int64_t seq_len, int64_t micro_batch) {
    TrainConfig config = run_config(name);
    config.data.packing = false;
    config.data.eval_split = 5;
    config.eval.every = 2;
    config.seq_len = seq_len;
    config.batch = 6;
    config.micro_batch = micro_batch;
    config.steps = 6;
    return run_training(config, {});
  };
  for (const int64_t micro_batch : {1, 3}) {
    const std::string suffix = std::to_string(micro_batch);
    const RunResult fitting = trained("fitting" + suffix, 128, micro_batch);
    const RunResult longer = trained("longer" + suffix, 2048, micro_batch);
    EXPECT_EQ(longer.state_hash, fitting.state_hash);
    EXPECT_EQ(longer.last_loss, fitting.last_loss);
    EXPECT_EQ(longer.eval_loss, fitting.eval_loss);
  }
}

}  // namespace
}  // namespace megatrain
