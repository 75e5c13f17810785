// Layers that alias the memory of a few: a step computes and moves as much as if each had memory of its own.
#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/planner.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {

namespace {

constexpr int64_t kLayers = 6, kHomes = 2;

}  // namespace

// One layer's update writes what another layer's copy reads. Both write the same bytes, so the race is deliberate.
#ifndef __SANITIZE_THREAD__
namespace {

// Copies the weights that a step uses from one trainer to the other.
void copy_weights(Trainer& from, Trainer& to) {
  for (size_t r = 0; r < to.records().size(); ++r) {
    for (const TensorSpec& tensor : to.records()[r].layout().tensors) {
      std::vector<float> master(static_cast<size_t>(tensor.elements()));
      from.records()[r].read_master(tensor, 0, tensor.elements(), master.data());
      to.records()[r].write_master(tensor, 0, tensor.elements(), master.data());
    }
  }
}

}  // namespace

TEST(AliasedLayers, ComputeWhatCopiesWould) {
  for (const Shape& shape : {Shape{}, Shape{.clip = false}, Shape{.experts = 8, .experts_below = true},
                             Shape{.experts = 8, .experts_below = true, .experts_per_record = 3}}) {
    Shape one = shape;
    one.layers = kLayers;
    Tiny apart(one);
    one.alias_layers = kHomes;
    Tiny aliased(one);
    const Plan plan = aliased.default_plan();
    const auto sharing = aliased.trainer(plan), copies = apart.trainer(plan);
    copy_weights(*sharing, *copies);
    for (int64_t step = 1; step <= 3; ++step) {
      const StepReport a = aliased.step(*sharing, step, 0), b = apart.step(*copies, step, 0);
      EXPECT_EQ(a.loss, b.loss) << step;
      EXPECT_EQ(a.grad_norm, b.grad_norm) << step;
      EXPECT_EQ(a.h2d_bytes, b.h2d_bytes) << step;
      EXPECT_EQ(a.d2h_bytes, b.d2h_bytes) << step;
    }
    sharing->drain();
    copies->drain();
  }
}
#endif

TEST(AliasedLayers, TakeTheMemoryOfTheirHomesAlone) {
  for (const bool clip : {true, false}) {
    Tiny aliased({.layers = kLayers, .clip = clip, .alias_layers = kHomes});
    const Workload& w = aliased.workload();
    Workload apart = w;
    apart.alias_records = 0;
    const Plan plan = aliased.default_plan();
    const int64_t layer = w.weight_bytes(1) + w.low_bytes(1) + 2 * w.moment_bytes(1),
                  gradient = clip ? w.gradient_bytes(1) : 0;
    EXPECT_EQ(memory_need(apart, plan).host_bytes() - memory_need(w, plan).host_bytes(),
              (kLayers - kHomes) * (layer + gradient));
    EXPECT_EQ(memory_need(apart, plan).hbm_bytes(), memory_need(w, plan).hbm_bytes());
  }
}

TEST(AliasedLayers, NeverStayOnTheDevice) {
  Tiny aliased({.layers = kLayers, .alias_layers = kHomes});
  MachineProfile gpu;
  Plan plan = make_plan(aliased.workload(), {int64_t{1} << 40, int64_t{1} << 40}, gpu, nullptr);
  for (int64_t record = 1; record <= kLayers; ++record) EXPECT_TRUE(plan.streams(record)) << record;
  plan.record(4).weights = Tier::hbm;
  EXPECT_THROW(check_plan(aliased.workload(), plan), Error);
}

TEST(AliasedLayers, AreFewerThanTheModelsAndOfOneSize) {
  for (const int64_t homes : {int64_t{-1}, kLayers, kLayers + 1})
    EXPECT_THROW(Session(train_config({}, "cpu"), {.config = model_config({.layers = kLayers})}).alias_layers(homes),
                 Error)
        << homes;
  Shape frozen{.layers = kLayers};
  frozen.freezing.freeze = {"model.layers.1.*"};
  EXPECT_THROW(Session(train_config(frozen, "cpu"), {.config = model_config(frozen)}).alias_layers(1), Error);
  EXPECT_NO_THROW(Session(train_config(frozen, "cpu"), {.config = model_config(frozen)}).alias_layers(kLayers - 1));
  const Shape mixed{.layers = kLayers, .experts = 8};  // except the second layer
  EXPECT_THROW(Session(train_config(mixed, "cpu"), {.config = model_config(mixed)}).alias_layers(2), Error);
}

}  // namespace megatrain::tiny
