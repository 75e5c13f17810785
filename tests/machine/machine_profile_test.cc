// The machine's profile: JSON round trip, implausible profiles, and their use in the estimate.
#include <cmath>
#include <limits>

#include "megatrain/base/rng.h"
#include "megatrain/base/units.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/plan.h"
#include "megatrain/plan/planner.h"
#include "tests/support/dense_workload.h"
#include "tests/support/fixtures.h"

namespace megatrain {

namespace {

MachineProfile measured_profile() {
  return {.flops_per_s = 300e12,
          .hbm_bytes_per_s = 1.5e12,
          .h2d_bytes_per_s = 25e9,
          .d2h_bytes_per_s = 26e9,
          .dram_bytes_per_s = 90e9,
          .link_both_bytes_per_s = 44e9,
          .dram_beside_dma_bytes_per_s = 70e9,
          .disk_read_bytes_per_s = 6.5e9,
          .disk_write_bytes_per_s = 3.5e9,
          .disk_both_bytes_per_s = 7e9,
          .int8_updates_per_s = 3e9,
          .matmul_rates = {{1e9, 50e12}, {1e12, 350e12}},
          .expert_rates = {{1e9, 300e12}, {5e10, 500e12}},
          .attention_rates = {{512, 100e12}, {8192, 220e12}},
          .hbm_bytes = 40 * kGiB,
          .host_bytes = 128 * kGiB,
          .disk_bytes = 1024 * kGiB,
          .name = "some GPU",
          .measured_on = "2026-11-16"};
}

const std::vector<std::string> kSpeedNames = {"flops_per_s",
                                              "hbm_bytes_per_s",
                                              "h2d_bytes_per_s",
                                              "d2h_bytes_per_s",
                                              "link_both_bytes_per_s",
                                              "dram_bytes_per_s",
                                              "disk_read_bytes_per_s",
                                              "disk_write_bytes_per_s",
                                              "disk_both_bytes_per_s",
                                              "int8_updates_per_s",
                                              "hbm_bytes",
                                              "dram_beside_dma_bytes_per_s"};

Workload streamed_workload() {
  Workload w;
  constexpr int64_t kHidden = 1024, kVocab = 32000;
  w.micro_batches = 2;
  w.micro_tokens = 1024;
  w.workspace_bytes = 64 * kMiB;
  make_dense(w, {.hidden = kHidden,
                 .vocab = kVocab,
                 .blocks = 8,
                 .block_elements = 12 * kHidden * kHidden,
                 .head_elements = kVocab * kHidden,
                 .head_flops = 2.0 * static_cast<double>(kVocab * kHidden)});
  return w;
}

double step_seconds(const MachineProfile& machine) {
  const Workload w = streamed_workload();
  const Budgets budgets{.gpu_bytes = kGiB, .host_bytes = 64 * kGiB, .state_on_host = true};
  return estimate(w, make_plan(w, budgets, MachineProfile{}, nullptr), machine).step_s;
}

}  // namespace

TEST(MachineProfile, GoesThroughJsonUnchanged) {
  for (const MachineProfile& profile : {MachineProfile{}, measured_profile()}) {
    const nlohmann::json json = nlohmann::json::parse(profile_to_json(profile).dump());
    EXPECT_EQ(profile_from_json(json, "here"), profile);
    EXPECT_EQ(json.at("measured"), profile.measured());
  }
}

TEST(MachineProfile, ALieIsRefusedByTheNameOfItsField) {
  const nlohmann::json good = profile_to_json(measured_profile());
  for (const std::string& name : kSpeedNames) {
    for (const nlohmann::json& lie : {nlohmann::json(-1), nlohmann::json(1e30), nlohmann::json("fast"),
                                      nlohmann::json(), nlohmann::json(std::numeric_limits<double>::quiet_NaN())}) {
      nlohmann::json bad = good;
      bad[name] = lie;
      expect_error(ExitCode::bad_config, {"profile.json", name, "megatrain doctor"},
                   [&] { profile_from_json(bad, "profile.json"); });
    }
    nlohmann::json without = good;
    without.erase(name);
    expect_error(ExitCode::bad_config, {"profile.json", name}, [&] { profile_from_json(without, "profile.json"); });
  }
  for (const char* name : {"flops_per_s", "h2d_bytes_per_s", "disk_write_bytes_per_s"}) {
    nlohmann::json zero = good;
    zero[name] = 0;
    expect_error(ExitCode::bad_config, {name, "is 0"}, [&] { profile_from_json(zero, "profile.json"); });
  }
  const auto refused = [&](const char* name, const nlohmann::json& value) {
    nlohmann::json bad = good;
    bad[name] = value;
    expect_error(ExitCode::bad_config, {name}, [&] { profile_from_json(bad, "profile.json"); });
  };
  refused("measured", false);
  refused("speed_of_light", 3e8);
  refused("link_both_bytes_per_s", 5e9);
  refused("link_both_bytes_per_s", 500e9);
  refused("dram_beside_dma_bytes_per_s", 900e9);
  refused("product_rates", {{{"flops", 2e9}, {"flops_per_s", 1e12}}, {{"flops", 1e9}, {"flops_per_s", 1e12}}});
  refused("attention_rates", {{{"length", 512}, {"flops_per_s", 0}}});
  refused("expert_rates", {{{"flops", 512}}});
  refused("attention_rates", {{{"flops", 512}, {"flops_per_s", 1e12}}});
  expect_error(ExitCode::bad_config, {"not a JSON object"}, [&] { profile_from_json({1, 2}, "profile.json"); });
}

TEST(MachineProfile, OneFromBeforeExpertsWereTimedIsRead) {
  MachineProfile profile;
  nlohmann::json before = profile_to_json(profile);
  before.erase("expert_rates");
  EXPECT_EQ(profile_from_json(before, "profile.json"), profile);
}

TEST(MachineProfile, ANumberThatIsNoneIsRefusedBeforeItIsUsed) {
  MachineProfile profile;
  profile.dram_bytes_per_s = std::nan("");
  expect_error(ExitCode::bad_config, {"dram_bytes_per_s", "nan"}, [&] { check_profile(profile, "here"); });
}

TEST(MachineProfile, ARateIsBetweenItsNeighboursAndTheEndsBeyondThem) {
  const RateTable table = {{10, 1e9}, {1000, 5e9}};
  EXPECT_EQ(rate_at(table, 1), 1e9);
  EXPECT_EQ(rate_at(table, 10), 1e9);
  EXPECT_NEAR(rate_at(table, 100), 3e9, 1);
  EXPECT_EQ(rate_at(table, 1e6), 5e9);
}

TEST(MachineProfile, ALinkThatBothWaysShareAndDramBesideCopiesMakeAStepLonger) {
  MachineProfile machine;
  const double free = step_seconds(machine);
  machine.link_both_bytes_per_s = machine.h2d_bytes_per_s + machine.d2h_bytes_per_s;
  machine.dram_beside_dma_bytes_per_s = machine.dram_bytes_per_s;
  EXPECT_EQ(step_seconds(machine), free);  // as much as each direction has alone
  machine.h2d_bytes_per_s = machine.d2h_bytes_per_s = 10e9;
  machine.link_both_bytes_per_s = 20e9;
  const double slow = step_seconds(machine);
  machine.link_both_bytes_per_s = 10e9;
  EXPECT_GT(step_seconds(machine), slow);
  machine = {};
  machine.dram_beside_dma_bytes_per_s = machine.dram_bytes_per_s / 8;
  EXPECT_GT(step_seconds(machine), free);
}

TEST(MachineProfile, UpdatesSlowDownByTheShareOfTheLinkThatCopiesTake) {
  MachineProfile machine{.dram_bytes_per_s = 100e9, .dram_beside_dma_bytes_per_s = 60e9, .int8_updates_per_s = 2e9};
  EXPECT_DOUBLE_EQ(machine.update_seconds(1e9, 26e9, MomentFormat::fp32), 0.26);
  EXPECT_DOUBLE_EQ(machine.update_seconds(1e9, 26e9, MomentFormat::fp32, 0.5), 26.0 / 80);
  EXPECT_DOUBLE_EQ(machine.update_seconds(1e9, 26e9, MomentFormat::fp32, 1), 26.0 / 60);
  EXPECT_DOUBLE_EQ(machine.update_seconds(1e9, 14e9, MomentFormat::int8, 1), 0.5);  // bound by the cores
  machine.int8_updates_per_s = 0;
  EXPECT_DOUBLE_EQ(machine.update_seconds(1e9, 14e9, MomentFormat::int8), 0.14);
}

TEST(MachineProfile, LanesThatShareCoresTakeTheSumOfTheirWork) {
  MachineProfile machine{.flops_per_s = 60e9, .shared_cores = 2};
  const Workload w = streamed_workload();
  const Plan plan = make_plan(w, {.gpu_bytes = kGiB, .host_bytes = 64 * kGiB}, machine, nullptr);
  const Estimate e = estimate(w, plan, machine);
  EXPECT_GE(e.step_s, e.compute_s + e.update_s);
}

}  // namespace megatrain
