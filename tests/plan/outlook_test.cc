// The figures that follow from a plan on a machine.
#include "megatrain/plan/outlook.h"

#include "megatrain/base/units.h"
#include "megatrain/machine/machines.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/planner.h"
#include "tests/support/dense_workload.h"
#include "tests/support/fixtures.h"
#include "tests/support/plan_changes.h"

namespace megatrain {

namespace {

// Seven billion parameters.
Workload some_work() {
  Workload w;
  constexpr int64_t kHidden = 4096, kVocab = 32000;
  w.micro_batches = 4;
  w.micro_tokens = 8192;
  w.workspace_bytes = kGiB;
  make_dense(w, {.hidden = kHidden,
                 .vocab = kVocab,
                 .blocks = 32,
                 .block_elements = 13 * kHidden * kHidden,
                 .head_elements = kVocab * kHidden,
                 .head_flops = 2.0 * static_cast<double>(kVocab * kHidden)});
  return w;
}

Outlook on(const MachineProfile& machine, const Workload& w) {
  const Budgets budgets{.gpu_bytes = 20 * kGiB, .host_bytes = 400 * kGiB, .state_on_host = true};
  return outlook(w, make_plan(w, budgets, machine, nullptr), machine);
}

}  // namespace

TEST(Outlook, AFasterLinkHidesBehindFewerTokensAndFasterMemoryHidesTheUpdateSooner) {
  const Workload w = some_work();
  const Outlook h200 = on(named_machine("h200"), w), gh200 = on(named_machine("gh200"), w);
  EXPECT_GT(h200.link_tokens(), 0);
  EXPECT_LT(gh200.link_tokens() * 4, h200.link_tokens());  // 450 GB/s each way compared with 50
  EXPECT_LT(gh200.optimizer_tokens, h200.optimizer_tokens);
}

TEST(Outlook, AtTheTokensThatHideTheOptimizerAStepIsNoLongerBoundByIt) {
  Workload w = some_work();
  w.clip = false;  // the update may hide behind all of backward
  const MachineProfile machine = named_machine("4090");
  const Outlook few = on(machine, w);
  ASSERT_GT(few.optimizer_tokens, 0);
  w.micro_batches = few.optimizer_tokens * 5 / 4 / w.micro_tokens + 1;
  const Outlook enough = on(machine, w);
  EXPECT_EQ(enough.estimate.bound_by, "compute");
  EXPECT_GE(enough.estimate.compute_s, enough.estimate.update_s);
}

// Two blocks and a head, a million parameters each. Per parameter and token: 2 flops forward, 4 backward, 2 recomputed.
TEST(Outlook, TheTokensThatHideWeightsGradientsAndUpdateFollowFromTheMachinesSpeeds) {
  constexpr int64_t kMillion = 1'000'000;
  Workload w;
  w.micro_batches = 2;
  w.micro_tokens = 100;
  make_dense(w, {.hidden = 100,
                 .vocab = 100,
                 .blocks = 2,
                 .block_elements = kMillion,
                 .head_elements = kMillion,
                 .head_flops = 2.0 * kMillion});
  freeze(w, {0});
  MachineProfile m;
  m.flops_per_s = 1e12;
  m.h2d_bytes_per_s = 1.1e9;
  m.d2h_bytes_per_s = 2e9;
  m.dram_bytes_per_s = 1e9;
  m.int8_updates_per_s = 5e7;
  Plan plan = make_plan(w, {.gpu_bytes = kGiB, .host_bytes = kGiB, .state_on_host = true}, m, nullptr);
  live_on_host(w, plan);
  keep(w, plan, "nothing");
  plan.sweeps = {2};
  ASSERT_NO_THROW(check_plan(w, plan));
  const auto look = [&] { return outlook(w, plan, m); };
  // 4 MB arrive in 3.64 ms; a token's forward through the blocks takes 4 us
  EXPECT_EQ(look().weights_tokens, 910);
  // 6 MB leave in 3 ms; a token's backward takes 12 us in the blocks and 6 in the head
  EXPECT_EQ(look().gradients_tokens, 167);
  EXPECT_EQ(look().link_tokens(), 910);
  // 26 bytes for each of three million parameters take 78 ms, behind the next forward
  EXPECT_EQ(look().optimizer_tokens, 19'500);
  w.clip = false;  // or behind backward, for the layers
  EXPECT_EQ(look().optimizer_tokens, 4334);
  w.clip = true;
  w.state.moments = MomentFormat::int8;  // the cores need 60 ms, the memory less
  EXPECT_EQ(look().optimizer_tokens, 15'000);
  plan.sweeps = {1, 1};
  plan.rings.weight_slots = 1;
  EXPECT_EQ(look().weights_tokens, 1364) << "the second sweep finds the first block in the slot";
  plan.record(1).weights = Tier::hbm;  // still fetched once per step
  EXPECT_EQ(look().weights_tokens, 910) << "and the other block stays in it";
  plan.sweeps = {2};
  for (const int64_t r : {1, 2}) plan.record(r).gradient = Tier::hbm;
  plan.rings.gradient_slabs = 2;
  plan.rings.host_gradients = 0;
  ASSERT_NO_THROW(check_plan(w, plan));
  EXPECT_EQ(look().gradients_tokens, 56) << "the blocks' leave once the norm is known";
  m.dram_bytes_per_s = m.int8_updates_per_s = 1e15;
  EXPECT_EQ(look().optimizer_tokens, 500) << "4 MB leave in 2 ms, and the update waits for them";

  Outlook o = look();
  o.estimate.bound_by = "compute";
  EXPECT_FALSE(size_matters(w, o));
  EXPECT_EQ(outlook_text(w, o, m, {}).find("within forward"), std::string::npos);
  w.active_parameters = w.parameters / 2;
  EXPECT_TRUE(size_matters(w, o)) << "it has experts";
  w.active_parameters = w.parameters;
  o.estimate.bound_by = "update";
  EXPECT_TRUE(size_matters(w, o));
  EXPECT_NE(outlook_text(w, o, m, {}).find("within forward from 910 tokens"), std::string::npos);
  o.weights_tokens = o.gradients_tokens = o.optimizer_tokens = 0;
  EXPECT_FALSE(size_matters(w, o)) << "there is nothing to hide";
}

TEST(Outlook, ACheckpointHasTheStateInItsFormatAndACostFollowsFromTheRate) {
  Workload w = some_work();
  const MachineProfile machine = named_machine("h200");
  const Outlook exact = on(machine, w);
  EXPECT_EQ(exact.checkpoint_bytes, 12 * w.all_elements());
  const double drive_s = 12.0 * static_cast<double>(w.all_elements()) / machine.disk_write_bytes_per_s;
  EXPECT_GT(exact.checkpoint_s, 1.2 * drive_s) << "a save has more to do than the drive";
  EXPECT_LT(exact.checkpoint_s, 2 * drive_s);
  EXPECT_NEAR(cost_per_billion_tokens(exact, 4.5), 4.5 * 1e9 / exact.tokens_per_s / 3600, 1e-9);
  w.state = {.moments = MomentFormat::bf16, .master = MasterFormat::fp32};
  EXPECT_EQ(on(machine, w).checkpoint_bytes, 8 * w.all_elements());
  const std::string text = outlook_text(w, exact, machine, 4.5);
  for (const char* part : {"tokens/s on h200 (from data sheets)", "checkpoint", "a billion tokens cost", "32,768"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Outlook, NothingToMoveIsHiddenAtAnySize) {
  const Workload w = some_work();
  const MachineProfile machine;
  Plan plan = make_plan(w, {.gpu_bytes = 1024 * kGiB, .host_bytes = 1024 * kGiB}, machine, nullptr);
  live_on_device(w, plan);
  ASSERT_NO_THROW(check_plan(w, plan));
  const Outlook o = outlook(w, plan, machine);
  EXPECT_EQ(o.optimizer_tokens, 0);
  EXPECT_NE(outlook_text(w, o, machine, {}).find("the optimizer at any step size"), std::string::npos);
}

}  // namespace megatrain
