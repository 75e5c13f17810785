// A plan changes where bytes live and when they move, never their values.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>

#include "megatrain/base/error.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan_json.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/plan/verify.h"
#include "tests/pipeline/expert_groups_check.h"
#include "tests/pipeline/tiny.h"
#include "tests/support/plan_changes.h"

namespace megatrain::tiny {

constexpr int kPlansAShape = kSanitized ? 4 : 60;       // half of the first four stream more than the slots hold
constexpr uint64_t kExpertPlans = kSanitized ? 1 : 40;  // each shape has others under a sanitizer
constexpr int64_t kSteps = kSanitized ? 3 : 5;

struct Case {
  const char* name;
  Shape shape;
};

class PlanInvariance : public ::testing::TestWithParam<Case> {};

TEST_P(PlanInvariance, EveryRandomPlanGivesOneStateHash) {
  Tiny tiny(GetParam().shape);
  const std::string expected = tiny.train(tiny.default_plan(), kSteps);
  std::set<std::string> schedules;
  int streaming = 0;
  for (uint64_t seed = 0; seed < kPlansAShape; ++seed) {
    const Plan plan = random_plan(tiny.workload(), seed);
    schedules.insert(build_schedule(tiny.workload(), plan, StepMode::train).hash());
    streaming += streams_more_than_slots_hold(tiny.workload(), plan);
    ASSERT_EQ(tiny.train(plan, kSteps), expected)
        << "plan " << seed << ": " << plan_to_json(tiny.workload(), plan).dump();
  }
  EXPECT_GE(static_cast<int>(schedules.size()), kPlansAShape / 2);
  EXPECT_GE(2 * streaming, kPlansAShape) << "at least half of the plans stream more than the slots hold";
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PlanInvariance,
    ::testing::Values(Case{"bf16_clipped", {}}, Case{"bf16_tied_unclipped", {.layers = 7, .tied = true, .clip = false}},
                      Case{"fp32_unclipped", {.layers = 6, .clip = false, .precision = "fp32"}},
                      Case{"fp32_tied_clipped", {.layers = 8, .micro_batches = 8, .tied = true, .precision = "fp32"}}),
    [](const auto& info) { return info.param.name; });

// Every state format, with and without clipping, tied weights and frozen layers.
INSTANTIATE_TEST_SUITE_P(
    Formats, PlanInvariance,
    ::testing::Values(
        Case{"bf16_moments", {.moments = "bf16"}}, Case{"int8_moments", {.clip = false, .moments = "int8"}},
        Case{"stochastic", {.layers = 6, .clip = false, .master = "stochastic"}},
        Case{"int8_stochastic_tied", {.layers = 7, .tied = true, .moments = "int8", .master = "stochastic"}},
        Case{"int8_frozen", {.freezing = {.freeze = {"model.layers.1.*", "*.k_proj.weight"}}, .moments = "int8"}},
        Case{"bf16_fp32_weights", {.layers = 6, .precision = "fp32", .moments = "bf16"}}),
    [](const auto& info) { return info.param.name; });

TEST(ExpertGroups, AndEveryRandomPlanGiveOneStateHash) {
  uint64_t first = 0;
  for (const Shape& shape : expert_shapes()) {
    expect_one_hash(shape, "cpu", kExpertPlans, kSteps, first);
    if (kSanitized) first += kExpertPlans;
  }
}

// A gradient that waits on the device for the norm takes the memory of its phase's input, unless that waits on the
// host.
TEST(WaitingGradients, TakeThePlaceOfInputsOnTheDeviceAndChangeNoBit) {
  Tiny tiny({.layers = 5});
  const Workload& w = tiny.workload();
  const std::string expected = tiny.train(tiny.default_plan(), kSteps);
  Plan plan = tiny.default_plan();
  live_on_device(w, plan);
  plan.sweeps = {w.micro_batches};
  const auto bytes = [&](ResourceKind kind) { return memory_need(w, plan).bytes_of(kind); };
  int64_t before = 0;  // in device bytes
  for (const int64_t every : {1, 2, 5}) {
    plan.input_every = every;
    for (const Tier tier : {Tier::host, Tier::hbm}) {
      inputs_wait(plan, tier);
      EXPECT_EQ(tiny.train(plan, kSteps), expected) << every << " on " << tier_name(tier);
      const int64_t gradient = w.gradient_bytes(1), waiting = (5 + every - 1) / every;
      EXPECT_EQ(bytes(ResourceKind::device_gradient), (tier == Tier::host ? 5 : 5 - waiting) * gradient);
      if (tier == Tier::host) before = bytes(ResourceKind::boundary);  // the head's input
    }
    const int64_t input = w.activation_bytes(1),
                  count = std::max(w.micro_batches, ceil_div(w.record(1).trained * 2, input));
    EXPECT_EQ(bytes(ResourceKind::boundary) - before, (5 + every - 1) / every * count * input);
  }
}

// The gradients of blocks that the host updates then need no host memory but that of a ring.
TEST(WaitingGradients, OfTheHostsBlocksMayWaitOnTheDeviceToo) {
  for (const std::vector<int64_t>& sweeps : {std::vector<int64_t>{4}, std::vector<int64_t>{1, 3}}) {
    Tiny tiny({.layers = 6});
    const Workload& w = tiny.workload();
    Plan plan = tiny.default_plan();
    plan.sweeps = sweeps;
    inputs_wait(plan, Tier::hbm);
    const MemoryNeed before = memory_need(w, plan);
    const std::string expected = tiny.train(plan, kSteps);
    for (int64_t record = 1; record < w.head_record(); ++record) plan.record(record).gradient = Tier::hbm;
    plan.rings.gradient_slabs = 2;
    plan.rings.host_gradients = 0;
    EXPECT_EQ(tiny.train(plan, kSteps), expected);
    const MemoryNeed after = memory_need(w, plan);
    EXPECT_EQ(after.bytes_of(ResourceKind::host_gradient), 0);
    EXPECT_EQ(after.bytes_of(ResourceKind::gradient_slab), 2 * w.disk_gradient_bytes(1));
    EXPECT_LE(after.hbm_bytes() - before.hbm_bytes(), before.bytes_of(ResourceKind::host_gradient));
    plan.phase(3).input = Tier::host;
    EXPECT_THROW(check_plan(w, plan), Error) << "there is no place that the input leaves";
  }
}

// With inputs on the device and on the host, with one sweep and two, and with frozen layers at the bottom.
TEST(BoundaryEvery, ChangesNoBitAndTakesLessMemory) {
  for (const TrainRules& freezing :
       {TrainRules{}, TrainRules{.freeze = {"model.embed_tokens.*", "model.layers.0.*"}}}) {
    Tiny tiny({.layers = 7, .freezing = freezing});
    Plan plan = tiny.default_plan();
    const std::string expected = tiny.train(plan, kSteps);
    for (const Tier tier : {Tier::hbm, Tier::host}) {
      for (const std::vector<int64_t>& sweeps : {std::vector<int64_t>{4}, std::vector<int64_t>{3, 1}}) {
        if (kSanitized && (tier == Tier::hbm) != (sweeps.size() == 1)) continue;
        int64_t before = std::numeric_limits<int64_t>::max();
        for (const int64_t every : {1, 2, 3, 7}) {
          if (kSanitized && every == 2) continue;
          inputs_wait(plan, tier);
          plan.sweeps = sweeps;
          plan.input_every = every;
          EXPECT_EQ(tiny.train(plan, kSteps), expected) << every << " on " << tier_name(tier);
          if (every > 3) continue;
          const MemoryNeed need = memory_need(tiny.workload(), plan);
          const int64_t bytes = need.bytes_of(ResourceKind::boundary) + need.bytes_of(ResourceKind::host_boundary);
          EXPECT_LT(bytes, before);
          before = bytes;
        }
      }
    }
  }
}

TEST(MicroBatches, OneOrEightCrossTheLinkEquallyOften) {
  Tiny one({.micro_batches = 1}), eight({.micro_batches = 8});
  Plan plan = one.default_plan();
  live_on_host(one.workload(), plan);
  plan.rings.weight_slots = 2;
  const auto bytes = [&](Tiny& tiny, int64_t micro_batches) {
    Plan sweep = plan;
    sweep.sweeps = {micro_batches};
    const auto trainer = tiny.trainer(sweep);
    const StepReport report = tiny.step(*trainer, 1);
    trainer->drain();
    return report.h2d_bytes;
  };
  EXPECT_EQ(bytes(one, 1), bytes(eight, 8));
}

TEST(SteadyState, AllocatesNothingAfterTheFirstStep) {
  Tiny tiny({});
  const auto trainer = tiny.trainer(random_plan(tiny.workload(), 3));
  tiny.step(*trainer, 1);
  const Device& device = *tiny.machine().device;
  const int64_t after_first = device.ledger().allocations() + device.host_ledger().allocations();
  for (int64_t step = 2; step <= 6; ++step) tiny.step(*trainer, step);
  trainer->drain();
  EXPECT_EQ(device.ledger().allocations() + device.host_ledger().allocations(), after_first);
}

TEST(Memory, TheDeviceHoldsWhatThePlanSaid) {
  for (const char* moments : {"fp32", "int8"}) {  // scales end in the middle of an alignment unit of the planes
    Tiny tiny({.moments = moments});
    for (uint64_t seed = 0; seed < 10; ++seed) {
      const Plan plan = random_plan(tiny.workload(), seed);
      const auto trainer = tiny.trainer(plan);
      const MemoryNeed need = memory_need(tiny.workload(), plan);
      EXPECT_EQ(tiny.machine().device->ledger().bytes(), need.hbm_bytes()) << tiny.machine().device->ledger().table();
      EXPECT_EQ(tiny.machine().device->host_ledger().bytes(), need.host_bytes())
          << tiny.machine().device->host_ledger().table();
    }
  }
}

TEST(Evaluation, ChangesNoStateAndRepeats) {
  Tiny tiny({});
  const auto trainer = tiny.trainer(random_plan(tiny.workload(), 5));
  tiny.step(*trainer, 1);
  trainer->drain();
  const std::string before = hash_state(trainer->records(), 1).state;
  const Batch batch = make_batch({}, 9);
  const double first = trainer->evaluate(batch).loss, second = trainer->evaluate(batch).loss;
  EXPECT_EQ(first, second);
  EXPECT_EQ(hash_state(trainer->records(), 1).state, before);
}

TEST(PaddingId, HasNoEmbeddingGradientAndOthersAreAsWithoutIt) {
  const int32_t pad = make_batch({}, 0).micro_batches[0].tokens[5];
  const auto gradients = [&](int64_t pad_id) {
    Tiny tiny({.pad_id = pad_id});
    const auto trainer = tiny.trainer(tiny.default_plan());
    const int64_t hidden = tiny.workload().record(0).row_width;
    // the padding id's row starts at zero, so give both models the same row
    const std::vector<float> row(static_cast<size_t>(hidden), 0.25f);
    LayerRecord& embedding = trainer->records()[0];
    embedding.write_master(embedding.layout().tensors[0], pad * hidden, hidden, row.data());
    std::map<int32_t, std::vector<uint16_t>> rows;
    trainer->updater().observe([&](int64_t record, const HostGradient& gradient) {
      if (record != 0) return;
      const uint16_t* values = reinterpret_cast<const uint16_t*>(gradient.data);
      for (const int32_t id : *gradient.rows) {
        rows[id].assign(values, values + hidden);
        values += hidden;
      }
    });
    tiny.step(*trainer, 1);
    trainer->drain();
    return rows;
  };
  auto with = gradients(pad), without = gradients(-1);
  ASSERT_EQ(with.size(), without.size());
  EXPECT_EQ(with.at(pad), std::vector<uint16_t>(with.at(pad).size(), 0));
  EXPECT_NE(without.at(pad), with.at(pad));
  with.erase(pad);
  without.erase(pad);
  EXPECT_EQ(with, without);
}

TEST(NonFinite, AStepWithAnInfiniteNormChangesNoByte) {
  Tiny tiny({});
  const auto trainer = tiny.trainer(tiny.default_plan());
  const float some = 0.25f;  // so that not all moments are zero
  LayerRecord& record = trainer->records()[2];
  record.write_moment(LayerRecord::Moment::first, record.layout().tensors.front(), 0, 1, &some);
  float infinite = INFINITY;
  trainer->records()[3].write_master(trainer->records()[3].layout().tensors[0], 0, 1, &infinite);
  const std::string before = hash_state(trainer->records(), 0).state;
  try {
    tiny.step(*trainer, 1);
    FAIL() << "an infinite weight must not train";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::non_finite);
  }
  EXPECT_EQ(hash_state(trainer->records(), 0).state, before);
}

TEST(NonFinite, AWeightThatTheLastUpdateMadeInfiniteIsFoundWhereverItWasUpdated) {
  for (const bool on_device : {false, true}) {
    Tiny tiny({});
    Plan plan = tiny.default_plan();
    if (on_device) live_on_device(tiny.workload(), plan);
    const auto trainer = tiny.trainer(plan);
    tiny.step(*trainer, 1);
    trainer->settle();
    try {
      trainer->step(make_batch({}, 1), {.adamw = {.lr = 1e39, .t = 2}, .clip = 0.5});  // the loss is still finite
    } catch (const Error& error) {  // the host's update may finish before the step returns
      EXPECT_EQ(error.code(), ExitCode::non_finite);
    }
    EXPECT_THROW(trainer->settle(), Error) << "on the device: " << on_device;
  }
}

}  // namespace megatrain::tiny
