// The longest sequences that fit a machine.
#include "megatrain/advice/longest_context.h"
#include "megatrain/plan/planner.h"

#include "megatrain/advice/plan_inputs.h"
#include "megatrain/base/units.h"
#include "megatrain/model/model.h"
#include "megatrain/train/expert_groups.h"
#include "tests/advice/presets.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

bool fits_with(TrainConfig config, const ModelConfig& model, const PlannedMachine& planned, int64_t seq_len) {
  config.seq_len = seq_len;
  config.micro_batch = 1;
  return fit(plan_inputs(config, model, planned)).has_value();
}

// Returns the longest length after checking that it fits and that one grain more does not.
int64_t checked_longest(const TrainConfig& config, const char* name, const PlannedMachine& planned) {
  const ModelConfig model = preset(name);
  const int64_t longest = longest_context(config, model, planned);
  EXPECT_EQ(longest % kContextGrain, 0) << name;
  EXPECT_GE(longest, kContextGrain) << name;
  EXPECT_LT(longest, kMostContext) << name;
  EXPECT_TRUE(fits_with(config, model, planned, longest)) << name << " " << longest;
  EXPECT_FALSE(fits_with(config, model, planned, longest + kContextGrain)) << name << " " << longest;
  return longest;
}

// Finds the longest length by trying every one. Stops where even a step without workspace and scratch does not fit,
// since everything else only grows.
int64_t tried_longest(TrainConfig config, const ModelConfig& model, const PlannedMachine& planned) {
  config.micro_batch = 1;
  const Budgets budgets = make_budgets(config, planned);
  int64_t longest = 0;
  for (int64_t length = kContextGrain; length <= kMostContext; length += kContextGrain) {
    config.seq_len = length;
    const RunIdentity identity = make_identity(config, model);
    bool more = false;
    for (const int64_t experts_per_record : group_sizes(model, identity.dtype, budgets.gpu_bytes)) {
      Workload w = make_workload(config, model, identity, planned, {}, experts_per_record);
      if (can_fit(w, budgets, planned.profile)) longest = length;
      w.workspace_bytes = w.scratch_bytes = 0;
      more = more || can_fit(w, budgets, planned.profile);
    }
    if (!more) break;
  }
  return longest;
}

}  // namespace

TEST(LongestContext, IsWhatTryingEveryLengthFinds) {
  struct Case {
    const char* model;
    int64_t gpu_bytes, batch;
    TrainConfig config = {};
  };
  TrainConfig chunks;  // set by the user
  chunks.mlp_chunk = 4096;
  chunks.head_chunk = 512;
  TrainConfig exact;
  exact.precision = "fp32";
  TrainConfig sampling;  // needs more than the workspace can lend
  sampling.sample = {.every = 1, .prompts = std::vector<std::string>(8, "What is it?"), .max_tokens = 20000};
  int64_t longer = 0;  // cases in which some shorter length does not fit
  for (const Case& c : {Case{"qwen2.5-0.5b", 3 * kGiB, 1},
                        {"qwen2.5-0.5b", 4 * kGiB, 2},
                        {"qwen2.5-0.5b", 6 * kGiB, 1},
                        {"qwen2.5-0.5b", 6 * kGiB, 1, chunks},
                        {"qwen2.5-0.5b", 7 * kGiB, 1, exact},
                        {"qwen2.5-0.5b", 4 * kGiB, 1, sampling},
                        {"qwen2.5-0.5b", 6 * kGiB, 1, sampling},
                        {"qwen2.5-1.5b", 6 * kGiB, 1},
                        {"qwen2.5-1.5b", 8 * kGiB, 1},
                        {"llama3-1b", 5 * kGiB, 1},
                        {"qwen2.5-7b", 10 * kGiB, 1},
                        {"qwen3-4b", 9 * kGiB, 4},
                        {"gpt-oss-20b", 12 * kGiB, 1}}) {
    const ModelConfig model = preset(c.model);
    TrainConfig config = c.config;
    config.batch = c.batch;
    const PlannedMachine planned = machine_with("4090", 200 * kGiB, c.gpu_bytes);
    const int64_t longest = longest_context(config, model, planned);
    EXPECT_EQ(longest, tried_longest(config, model, planned)) << c.model << " within " << c.gpu_bytes;
    if (longest > 2 * kContextGrain && !fits_with(config, model, planned, 16 * kContextGrain))
      longer += longest > 16 * kContextGrain;
  }
  EXPECT_GE(longer, 2);
}

TEST(LongestContext, OneLayerOfEachKindHasTheWorkspaceOfAll) {
  for (const char* name : {"qwen2.5-0.5b", "gpt-oss-20b", "qwen3-30b-a3b"}) {
    const ModelConfig model = preset(name), few = one_layer_of_each_kind(model);
    EXPECT_LT(few.layers, 3) << name;
    for (const int64_t experts : {0, 8}) {
      const RunIdentity identity = make_identity(step_of(1, 1, 40960), model);
      const ModelShape shape = model_shape(identity, 40960, model.experts.count > 0 ? experts : 0);
      const int64_t workspace = make_model(few, shape).workspace_bytes();
      EXPECT_EQ(make_model(model, shape).workspace_bytes(), workspace) << name;
      EXPECT_EQ(make_model(model, shape, {.freeze = {"*.self_attn.*"}}).workspace_bytes(), workspace) << name;
    }
  }
}

TEST(LongestContext, FitsAndAGrainMoreDoesNot) {
  const PlannedMachine small = machine_with("h200", 125 * kGiB, 24 * kGiB), large = machine_with("h200", 125 * kGiB);
  const int64_t on_small = checked_longest(step_of(1, 1), "qwen2.5-7b", small);
  EXPECT_GT(checked_longest(step_of(1, 1), "qwen2.5-7b", large), on_small);
  EXPECT_GT(checked_longest(step_of(1, 1), "qwen2.5-1.5b", small), on_small);
  // activations of a step's other sequences wait in host memory
  EXPECT_LT(checked_longest(step_of(64, 1), "qwen2.5-7b", large), checked_longest(step_of(1, 1), "qwen2.5-7b", large));
  // covers every record size for experts that is tried
  checked_longest(step_of(1, 1), "gpt-oss-20b", machine_with("h200", 500 * kGiB, 24 * kGiB));
  checked_longest(step_of(4, 1), "qwen3-30b-a3b", machine_with("4090", 600 * kGiB));
}

TEST(LongestContext, ADiskHoldsWhatMemoryDoesNot) {
  PlannedMachine planned = machine_with("4090", 80 * kGiB);
  EXPECT_EQ(longest_context(step_of(8, 1), preset("qwen2.5-7b"), planned), 0);
  planned.budgets.disk_bytes = 400 * kGiB;
  checked_longest(step_of(8, 1), "qwen2.5-7b", planned);
}

TEST(LongestContext, DependsOnTheSequencesOfAStepAndNotOnHowTheStepIsCutNorOnSeqLen) {
  const PlannedMachine planned = machine_with("4090", 256 * kGiB);
  const ModelConfig model = preset("qwen2.5-3b");
  const int64_t longest = longest_context(step_of(8, 1), model, planned);
  EXPECT_EQ(longest_context(step_of(8, 8, 256), model, planned), longest);
  EXPECT_EQ(longest_context(step_of(8, 2, 1 << 20), model, planned), longest);
}

TEST(LongestContext, IsZeroWhereNothingFitsAndEndsAtTwoMillion) {
  const ModelConfig model = preset("qwen2.5-0.5b");
  EXPECT_EQ(longest_context(step_of(1, 1), model, machine_with("h200", 500 * kGiB)), kMostContext);
  EXPECT_EQ(longest_context(step_of(1, 1), model, machine_with("h200", 500 * kGiB, 2 * kGiB)), 0);
  TrainConfig chunks = step_of(1, 1);  // at most 1024 in a micro-batch
  chunks.mlp_chunk = 16;
  EXPECT_EQ(longest_context(chunks, model, machine_with("h200", 500 * kGiB)), 16 * kMostParts);
  chunks.mlp_chunk = 4096;
  chunks.head_chunk = 1;
  EXPECT_EQ(longest_context(chunks, model, machine_with("h200", 500 * kGiB)), kMostParts);
  TrainConfig beyond = step_of(1, 1);
  beyond.memory.host_bytes = 501 * kGiB;
  EXPECT_EQ(longest_context(beyond, model, machine_with("h200", 500 * kGiB)), 0);
}

}  // namespace megatrain
