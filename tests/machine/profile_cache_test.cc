// The measured profile in the user's cache, and how a run uses its tables.
#include "megatrain/machine/profile_cache.h"
#include "megatrain/model/parse_config.h"

#include "megatrain/base/units.h"
#include "megatrain/model/presets.h"
#include "megatrain/ops/note_cost.h"
#include "megatrain/train/planned_machine.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

MachineProfile measured() {
  MachineProfile profile;
  profile.name = "some GPU";
  profile.measured_on = "2026-11-16";
  profile.matmul_rates = {{1e9, 100e12}, {1e12, 500e12}};
  profile.attention_rates = {{1024, 200e12}, {8192, 400e12}};
  return profile;
}

MachineProfile fitted(const MachineProfile& machine, int64_t seq_len, const char* preset = "qwen2.5-0.5b") {
  const ModelConfig model = parse_model_config(*preset_config(preset), "preset");
  TrainConfig config;
  config.seq_len = seq_len;
  config.batch = config.micro_batch = 1;
  return profile_for(machine, config, model, make_identity(config, model));
}

}  // namespace

TEST(ProfileCache, GivesBackWhatWasKeptForTheSameMachineAndNothingForAnother) {
  const TemporaryDirectory directory;
  const ProfileCache cache(directory / "cache", "box 1"), other(directory / "cache", "box 2");
  EXPECT_FALSE(cache.load());
  cache.save(measured());
  EXPECT_EQ(cache.load(), measured());
  EXPECT_FALSE(other.load());
  EXPECT_NE(cache.path(), other.path());
}

TEST(ProfileCache, AProfileThatLiesOrIsDamagedOrWasNeverMeasuredIsNotUsed) {
  const TemporaryDirectory directory;
  const ProfileCache cache(directory / "", "box");
  cache.save(measured());
  const std::string text = read_bytes(cache.path());
  std::string lie = text;
  const std::string field = "\"h2d_bytes_per_s\": ";
  lie.insert(lie.find(field) + field.size(), "-");
  for (const std::string& bad : {lie, std::string("{"), std::string("{}"), text.substr(0, text.size() / 2)}) {
    write_bytes(cache.path(), bad);
    EXPECT_FALSE(cache.load()) << bad;
  }
  cache.save(MachineProfile{});
  EXPECT_FALSE(cache.load());
}

TEST(ProfileFor, WithoutTablesAttentionHasAShareOfTheRateOfLayersByItsLength) {
  const double layers = MachineProfile{}.flops_per_s;
  for (const char* preset : {"qwen2.5-0.5b", "gpt-oss-20b"})
    EXPECT_NEAR(fitted(MachineProfile{}, 4096, preset).attention_flops_per_s, 0.75 * layers, 1) << preset;
  EXPECT_NEAR(fitted(MachineProfile{}, 1024).attention_flops_per_s, 0.49 * layers, 1);
  EXPECT_NEAR(fitted(MachineProfile{}, 256).flops_per_s, layers, 0.02 * layers);
  EXPECT_NEAR(fitted(MachineProfile{}, 1 << 20).flops_per_s, 0.75 * layers, 0.02 * layers);
}

TEST(ProfileFor, ItsTablesGiveTheRateOfARunBetweenTheirEnds) {
  const double small = fitted(measured(), 128).flops_per_s, large = fitted(measured(), 4096).flops_per_s;
  EXPECT_GT(small, 50e12);
  EXPECT_LT(large, 500e12);
  EXPECT_LT(small, large);  // larger matmuls run at a higher rate
  MachineProfile slow = measured();
  for (RatePoint& point : slow.attention_rates) point.per_s /= 100;
  EXPECT_LT(fitted(slow, 4096).flops_per_s, large / 2);
  EXPECT_NEAR(fitted(slow, 8192).attention_flops_per_s, 4e12, 1);
}

TEST(ProfileFor, ExpertsHaveARateOfTheirOwn) {
  MachineProfile slow = measured(), fast = measured();
  slow.expert_rates = {{1e6, 20e12}, {1e12, 40e12}};
  fast.expert_rates = {{1e6, 200e12}, {1e12, 400e12}};
  EXPECT_LT(fitted(slow, 4096, "gpt-oss-20b").flops_per_s, fitted(fast, 4096, "gpt-oss-20b").flops_per_s / 2);
  EXPECT_EQ(fitted(slow, 4096).flops_per_s, fitted(fast, 4096).flops_per_s);
  // without a measurement they are slower than dense layers
  EXPECT_LT(fitted(MachineProfile{}, 4096, "gpt-oss-20b").flops_per_s, MachineProfile{}.flops_per_s);
}

// 3.18 ms and 9.65 ms on an H200 (docs/benchmarks/h200/tests.txt).
TEST(ProfileFor, RecurrencesTakeWhatTheyTookAndAreInNoOtherRate) {
  const DeltaRuleShape shape{.tokens = 16384, .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128};
  const MachineProfile machine = fitted(MachineProfile{}, 1024, "qwen3.5-9b");
  const double forward = machine.compute_seconds(0, recurrence_flops(DeltaRuleForward{.shape = shape})),
               backward = machine.compute_seconds(0, recurrence_flops(DeltaRuleBackward{.shape = shape}));
  EXPECT_NEAR(forward, 3.18e-3, 0.1e-3);
  EXPECT_NEAR(backward, 9.65e-3, 0.3e-3);
  EXPECT_EQ(note_flops(DeltaRuleForward{.shape = shape}), 0);
  EXPECT_NEAR(machine.flops_per_s / fitted(MachineProfile{}, 1024, "qwen3-8b").flops_per_s, 1, 0.02);
}

// Matmuls with adapters of rank 16 move far more bytes than they compute.
TEST(ProfileFor, AdaptersOfExpertsAreBoundByMemory) {
  const ModelConfig model = parse_model_config(*preset_config("qwen3-30b-a3b"), "preset");
  TrainConfig config;
  config.batch = config.micro_batch = 16;
  const auto seconds_per_flop = [&] {
    const RunIdentity identity = make_identity(config, model);
    return 1 / profile_for(MachineProfile{}, config, model, identity).flops_per_s;
  };
  const double all = seconds_per_flop();
  config.adapter.rank = 16;
  const double attention = seconds_per_flop();
  config.adapter.target_parameters = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
  const double experts = seconds_per_flop();
  EXPECT_LT(attention, 1.3 * all);
  EXPECT_GT(experts, 1.3 * attention);
}

}  // namespace megatrain
