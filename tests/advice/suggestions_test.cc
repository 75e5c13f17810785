// What is suggested if a configuration does not fit.
#include "megatrain/advice/suggestions.h"

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "megatrain/advice/plan_inputs.h"
#include "megatrain/advice/what_fits.h"
#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/model/model_source.h"
#include "tests/advice/presets.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

const Suggestion* starting_with(const std::vector<Suggestion>& list, const std::string& begin) {
  for (const Suggestion& s : list) {
    if (s.change.starts_with(begin)) return &s;
  }
  return nullptr;
}

int64_t size_behind(const std::string& text, const std::string& before) {
  const size_t at = text.find(before);
  EXPECT_NE(at, std::string::npos) << before << " in " << text;
  return at == std::string::npos ? 0 : parse_bytes(text.substr(at + before.size()));
}

// A step as given on the command line, and the same with a suggestion appended.
struct Typed {
  std::vector<std::string> words;
  TrainConfig config(const std::string& pasted = "") const {
    std::vector<std::string> all = words;
    std::istringstream more(pasted);
    for (std::string word; more >> word;) all.push_back(word);
    return parse_config("", "test", all, {.model = false, .data = false, .steps = false});
  }
};

// Checks that every suggestion made of options fits when appended, at the speed it states. Beside adapters the base has
// the types of its release.
std::vector<Suggestion> pasted(const Typed& typed, const ModelConfig& model, const PlannedMachine& planned) {
  const std::vector<Suggestion> list = what_would_fit(typed.config(), model, planned);
  EXPECT_FALSE(list.empty());
  EXPECT_LE(list.size(), 4u);
  for (const Suggestion& s : list) {
    if (s.change.ends_with("more RAM")) continue;
    const TrainConfig config = typed.config(s.change);
    const auto found =
        fit(plan_inputs(config, model, planned, config.adapter.rank > 0 ? declared_types(model) : TensorTypes()));
    EXPECT_TRUE(found) << s.change;
    if (found) {
      EXPECT_DOUBLE_EQ(found->outlook.tokens_per_s, s.tokens_per_s) << s.change;
    }
  }
  return list;
}

}  // namespace

TEST(Suggestions, OfAHostThatLacksMemorySmallerStateThenAdaptersThenAFrozenHalfAndTheDisk) {
  // 7.6 billion parameters: 91 GB of state, 53 in int8, 61 in bf16
  const Typed typed{{"--batch=32", "--micro_batch=8"}};
  const std::vector<Suggestion> list = pasted(typed, preset("qwen2.5-7b"), machine_with("4090", 80 * kGiB));
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[0].change, "--state.moments=bf16");
  for (const char* change : {"--adapter.rank=16", "--memory.nvme_path=DIR --memory.nvme=",
                             "--freeze=model.embed_tokens.*,model.layers.[0-9].*,model.layers.1[0-3].*"})
    EXPECT_TRUE(starting_with(list, change)) << change;
  EXPECT_FALSE(starting_with(list, "--freeze=")->note.empty());
  EXPECT_FALSE(starting_with(list, "--adapter.rank=")->note.empty());
}

TEST(Suggestions, OfAModelAloneHaveTheStepThatEachOfThemNeeds) {
  const ModelConfig model = preset("qwen2.5-7b");
  const PlannedMachine planned = machine_with("4090", 64 * kGiB);
  const TensorTypes stored = declared_types(model);
  const FreeStep free{.batch = true, .micro_batch = true};
  const std::vector<Suggestion> list = what_would_fit({}, model, planned, stored, free),
                                one_sequence = what_would_fit({}, model, planned, stored);
  const std::vector<FitRow> rows = what_fits({"qwen2.5-7b"}, {}, false, planned);
  const auto row = [&](const std::string& mode) { return *std::ranges::find(rows, mode, &FitRow::mode); };
  ASSERT_TRUE(starting_with(list, "--state.moments=int8"));
  EXPECT_EQ(list.front().change, "--state.moments=int8");
  EXPECT_NEAR(list.front().tokens_per_s / row("int8").tokens_per_s, 1, 0.02);
  for (const Suggestion& alone : one_sequence) {  // adapters have no update that more sequences would hide
    const Suggestion* same = starting_with(list, alone.change.c_str());
    if (same && alone.change.starts_with("--state.")) {
      EXPECT_GT(same->tokens_per_s, 3 * alone.tokens_per_s) << alone.change;
    }
  }
  EXPECT_NEAR(starting_with(list, "--adapter.rank=16")->tokens_per_s / row("LoRA").tokens_per_s, 1, 0.02);
}

TEST(Suggestions, WhatIsFasterIsFasterAndNothingIsSaidOfARunThatNothingHelps) {
  const ModelConfig model = preset("qwen2.5-3b");
  const PlannedMachine planned = machine_with("4090", 64 * kGiB);
  const Typed small{{"--batch=8"}};
  const double now = fit(plan_inputs(small.config(), model, planned))->outlook.tokens_per_s;
  const std::vector<Suggestion> list = what_is_faster(small.config(), model, planned, {}, {}, now);
  ASSERT_TRUE(starting_with(list, "--batch=32"));
  ASSERT_TRUE(starting_with(list, "--adapter.rank=16"));
  for (const Suggestion& s : list) EXPECT_GT(s.tokens_per_s, now) << s.change;
  const Typed adapters{{"--batch=128", "--adapter.rank=16"}};
  const TensorTypes stored = declared_types(model);
  const double fast = fit(plan_inputs(adapters.config(), model, planned, stored))->outlook.tokens_per_s;
  EXPECT_TRUE(what_is_faster(adapters.config(), model, planned, stored, {}, fast).empty());
}

TEST(Suggestions, WhereTheUsersOwnLimitIsShortItIsRaisedAndNoRamIsBought) {
  const ModelConfig model = preset("qwen2.5-7b");
  const Typed host{{"--batch=8", "--memory.host=60GiB"}};
  const std::vector<Suggestion> list = pasted(host, model, machine_with("4090", 128 * kGiB));
  const int64_t raised = size_behind(list.front().change, "--memory.host=");
  EXPECT_GT(raised, 60 * kGiB);
  EXPECT_LE(raised, host_budget(128 * kGiB));
  // not suggested for a machine that has no more than that
  EXPECT_FALSE(starting_with(pasted(host, model, machine_with("4090", 66 * kGiB)), "--memory.host="));

  const Typed disk{{"--batch=8", "--memory.nvme_path=/nowhere", "--memory.nvme=5GB"}};
  EXPECT_TRUE(starting_with(pasted(disk, model, machine_with("4090", 80 * kGiB)), "--memory.nvme="));
}

TEST(Suggestions, OfADeviceThatLacksMemoryFewerTokensAtATime) {
  const Typed typed{{"--batch=32", "--micro_batch=32", "--seq_len=4096", "--mlp_chunk=131072"}};
  const std::vector<Suggestion> list = pasted(typed, preset("qwen2.5-7b"), machine_with("4090", 256 * kGiB));
  ASSERT_EQ(list.size(), 3u);  // adapters alone would not fit either
  for (const char* change : {"--micro_batch=", "--mlp_chunk=", "--seq_len="})
    EXPECT_TRUE(starting_with(list, change)) << change;
}

// Each suggestion is planned with the division of experts into records that suits it best.
TEST(Suggestions, OfAModelWithExpertsHaveTheSpeedOfTheirOwnPlans) {
  const Typed host{{"--batch=32", "--micro_batch=8"}}, device{{"--batch=4", "--seq_len=16384", "--memory.gpu=12GiB"}};
  pasted(host, preset("gpt-oss-20b"), machine_with("4090", 200 * kGiB));
  pasted(device, preset("gpt-oss-20b"), machine_with("h200", 500 * kGiB));
  pasted(host, preset("qwen3-30b-a3b"), machine_with("4090", 300 * kGiB));
}

TEST(Suggestions, OfAUsersOwnLimitOfTheDeviceTheLeastThatFits) {
  const Typed typed{{"--batch=8", "--micro_batch=8", "--memory.gpu=3GiB"}};
  const std::vector<Suggestion> list = pasted(typed, preset("qwen2.5-7b"), machine_with("4090", 256 * kGiB));
  const int64_t raised = size_behind(list.front().change, "--memory.gpu=");
  EXPECT_LE(raised, 23 * kGiB);
  const std::string less = fmt::format("--memory.gpu={}", raised * 95 / 100);
  EXPECT_FALSE(fit(plan_inputs(typed.config(less), preset("qwen2.5-7b"), machine_with("4090", 256 * kGiB))));
}

TEST(Suggestions, WhereBothLackMemoryAChangeOfTheDeviceStandsBeforeThatOfTheHost) {
  const Typed typed{{"--batch=32", "--micro_batch=32", "--seq_len=4096", "--mlp_chunk=131072"}};
  const std::vector<Suggestion> list = pasted(typed, preset("qwen2.5-7b"), machine_with("4090", 80 * kGiB));
  for (const Suggestion& s : list) EXPECT_TRUE(s.change.starts_with("--micro_batch=")) << s.change;
  EXPECT_TRUE(std::any_of(list.begin(), list.end(),
                          [](const Suggestion& s) { return s.change.find(" --state.moments=") != std::string::npos; }));
}

TEST(Suggestions, BudgetsThatTheMachineLacksAreLeftOut) {
  const Typed typed{{"--batch=1", "--memory.host=1TiB", "--memory.gpu=80GiB"}};
  const PlannedMachine planned = machine_with("4090", 64 * kGiB);
  EXPECT_THROW(plan_inputs(typed.config(), preset("qwen2.5-3b"), planned), Error);
  const std::vector<Suggestion> list = pasted(typed, preset("qwen2.5-3b"), planned);
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list[0].change, "--memory.gpu=auto --memory.host=auto");
}

// Includes machines whose device is the CPU, which gets half of the memory, and machines with less than the system
// needs.
TEST(Suggestions, TheRamThatIsToldIsEnoughOnEveryMachine) {
  // something is already frozen, which leaves a place for the RAM among the three suggestions
  const Typed typed{{"--batch=1", "--micro_batch=1", "--seq_len=128", "--freeze=model.layers.0.mlp.gate_proj.weight"}};
  const ModelConfig model = preset("qwen2.5-0.5b");
  MachineProfile cpu = named_machine("4090"), gpu = cpu;
  cpu.shared_cores = 8;
  cpu.updates_on_device = false;
  cpu.host_bytes = 9 * kGiB;
  gpu.host_bytes = 2 * kGiB;
  for (MachineProfile machine : {cpu, gpu}) {
    const std::vector<Suggestion> list = what_would_fit(typed.config(), model, machine_from_profile(machine));
    const auto told =
        std::find_if(list.begin(), list.end(), [](const Suggestion& s) { return s.change.ends_with(" more RAM"); });
    ASSERT_NE(told, list.end()) << (list.empty() ? "none" : list.front().change);
    machine.host_bytes += parse_bytes(told->change.substr(0, told->change.find(" more")));
    EXPECT_TRUE(fit(plan_inputs(typed.config(), model, machine_from_profile(machine)))) << told->change;
  }
}

TEST(Suggestions, AModelFarTooLargeIsToldTheRamItNeeds) {
  const Typed typed{{"--batch=16", "--micro_batch=8"}};
  const TrainConfig config = typed.config();
  const ModelConfig model = preset("llama3-70b");
  const std::vector<Suggestion> list = what_would_fit(config, model, machine_with("3090", 32 * kGiB));
  ASSERT_FALSE(list.empty());
  const std::string& change = list.back().change;
  ASSERT_TRUE(change.ends_with("more RAM")) << change;
  const int64_t more = parse_bytes(change.substr(0, change.find(" more")));
  EXPECT_TRUE(fit(plan_inputs(config, model, machine_with("3090", 32 * kGiB + more))));
  EXPECT_FALSE(fit(plan_inputs(config, model, machine_with("3090", 32 * kGiB + more * 95 / 100))));
}

}  // namespace megatrain
