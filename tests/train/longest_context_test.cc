// The longest sequences that fit a machine.
#include "megatrain/train/longest_context.h"

#include "megatrain/base/units.h"
#include "megatrain/train/prospect.h"
#include "tests/hub/fixtures.h"
#include "tests/train/presets.h"

namespace megatrain {

namespace {

bool fits_with(TrainConfig config, const ModelConfig& model, const Site& site, int64_t seq_len) {
  config.seq_len = seq_len;
  config.micro_batch = 1;
  return fit(prospect_of(config, model, site)).has_value();
}

// Returns it where it fits and a grain more does not.
int64_t checked_longest(const TrainConfig& config, const char* name, const Site& site) {
  const ModelConfig model = preset(name);
  const int64_t longest = longest_context(config, model, site);
  EXPECT_EQ(longest % kContextGrain, 0) << name;
  EXPECT_GE(longest, kContextGrain) << name;
  EXPECT_LT(longest, kMostContext) << name;
  EXPECT_TRUE(fits_with(config, model, site, longest)) << name << " " << longest;
  EXPECT_FALSE(fits_with(config, model, site, longest + kContextGrain)) << name << " " << longest;
  return longest;
}

}  // namespace

TEST(LongestContext, FitsAndAGrainMoreDoesNot) {
  const Site small = machine_with("h200", 125 * kGiB, 24 * kGiB), large = machine_with("h200", 125 * kGiB);
  const int64_t on_small = checked_longest(step_of(1, 1), "qwen2.5-7b", small);
  EXPECT_GT(checked_longest(step_of(1, 1), "qwen2.5-7b", large), on_small);
  EXPECT_GT(checked_longest(step_of(1, 1), "qwen2.5-1.5b", small), on_small);
  // what a step's sequences leave behind waits in host memory
  EXPECT_LT(checked_longest(step_of(64, 1), "qwen2.5-7b", large), checked_longest(step_of(1, 1), "qwen2.5-7b", large));
  // experts in records of every size that is tried
  checked_longest(step_of(1, 1), "gpt-oss-20b", machine_with("h200", 500 * kGiB, 24 * kGiB));
  checked_longest(step_of(4, 1), "qwen3-30b-a3b", machine_with("4090", 600 * kGiB));
}

TEST(LongestContext, ADiskHoldsWhatMemoryDoesNot) {
  Site site = machine_with("4090", 80 * kGiB);
  EXPECT_EQ(longest_context(step_of(8, 1), preset("qwen2.5-7b"), site), 0);
  site.budgets.disk_bytes = 400 * kGiB;
  checked_longest(step_of(8, 1), "qwen2.5-7b", site);
}

TEST(LongestContext, DependsOnTheSequencesOfAStepAndNotOnHowTheStepIsCutNorOnSeqLen) {
  const Site site = machine_with("4090", 256 * kGiB);
  const ModelConfig model = preset("qwen2.5-3b");
  const int64_t longest = longest_context(step_of(8, 1), model, site);
  EXPECT_EQ(longest_context(step_of(8, 8, 256), model, site), longest);
  EXPECT_EQ(longest_context(step_of(8, 2, 1 << 20), model, site), longest);
}

TEST(LongestContext, IsZeroWhereNothingFitsAndEndsAtTwoMillion) {
  const ModelConfig model = preset("qwen2.5-0.5b");
  EXPECT_EQ(longest_context(step_of(1, 1), model, machine_with("h200", 500 * kGiB)), kMostContext);
  EXPECT_EQ(longest_context(step_of(1, 1), model, machine_with("h200", 500 * kGiB, 2 * kGiB)), 0);
  TrainConfig beyond = step_of(1, 1);
  beyond.memory.host_bytes = 501 * kGiB;
  EXPECT_EQ(longest_context(beyond, model, machine_with("h200", 500 * kGiB)), 0);
}

}  // namespace megatrain
