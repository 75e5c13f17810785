// The router losses, and what a step reports about the router's choices.
#include <gtest/gtest.h>

#include <set>

#include "megatrain/base/error.h"
#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/planner.h"
#include "megatrain/plan/random_plan.h"
#include "tests/pipeline/tiny.h"
#include "tests/support/plan_changes.h"

namespace megatrain::tiny {

namespace {

constexpr int64_t kRouterSteps = 3;
const Shape kBoth{.layers = 5, .precision = "fp32", .experts = 8, .aux_loss = 0.2, .z_loss = 0.01};

std::vector<double> values(const RouterFigures& f) {
  return {f.imbalance, f.worst_imbalance, f.used, f.aux_loss.value_or(-1), f.z_loss.value_or(-1)};
}

RouterFigures figures_of(Tiny& tiny, const Plan& plan) {
  const auto trainer = tiny.trainer(plan);
  const StepReport report = tiny.step(*trainer, 1);
  trainer->drain();
  return report.router.value();
}

}  // namespace

TEST(RouterLosses, EachMovesTheWeightsAndIsReportedWhereItIsOn) {
  std::set<std::string> hashes;
  for (const auto& [aux, z] : {std::pair{0.0, 0.0}, {0.2, 0.0}, {0.0, 0.01}, {0.2, 0.01}}) {
    Shape shape = kBoth;
    shape.aux_loss = aux;
    shape.z_loss = z;
    Tiny tiny(shape);
    hashes.insert(tiny.train(tiny.default_plan(), kRouterSteps));
    const RouterFigures figures = figures_of(tiny, tiny.default_plan());
    EXPECT_EQ(figures.aux_loss.has_value(), aux > 0);
    EXPECT_EQ(figures.z_loss.has_value(), z > 0);
  }
  EXPECT_EQ(hashes.size(), 4u);
  Tiny dense({.layers = 2});
  const auto trainer = dense.trainer(dense.default_plan());
  EXPECT_FALSE(dense.step(*trainer, 1).router.has_value());
}

// A repeated forward counts no token twice, and neither does a step in several sweeps.
TEST(RouterLosses, FiguresAreThoseOfTheStepUnderEveryPlan) {
  Shape swept = kBoth;
  swept.aux_loss = 0;
  for (const Shape& shape : {kBoth, swept}) {
    Tiny tiny(shape);
    const std::vector<double> expected = values(figures_of(tiny, tiny.default_plan()));
    EXPECT_GE(expected[0], 1);
    EXPECT_GE(expected[1], expected[0]);
    EXPECT_GT(expected[2], 0);
    EXPECT_LE(expected[2], 1);
    for (const int64_t every : {1, 2, 3, 5}) {
      Plan plan = tiny.default_plan();
      plan.input_every = every;
      keep(tiny.workload(), plan, "nothing");
      if (shape.aux_loss == 0) plan.sweeps = {1, 3};
      EXPECT_EQ(values(figures_of(tiny, plan)), expected) << "inputs wait at every " << every;
    }
    for (uint64_t seed = 0; seed < (kSanitized ? 3 : 10); ++seed)
      EXPECT_EQ(values(figures_of(tiny, random_plan(tiny.workload(), seed))), expected) << "plan " << seed;
  }
}

TEST(RouterLosses, TheLossThatBalancesNeedsOneSweep) {
  Tiny balanced(kBoth);
  Shape shape = kBoth;
  shape.aux_loss = 0;
  Tiny other(shape);
  int several = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    EXPECT_EQ(random_plan(balanced.workload(), seed).sweeps.size(), 1u);
    several += random_plan(other.workload(), seed).sweeps.size() > 1;
  }
  EXPECT_GT(several, 0);
  Plan plan = balanced.default_plan();
  plan.sweeps = {1, 3};
  try {
    check_plan(balanced.workload(), plan);
    FAIL() << "backward would begin before all choices are known";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("moe.aux_loss"), std::string::npos) << error.what();
  }
  EXPECT_NO_THROW(check_plan(other.workload(), plan));
}

TEST(RouterLosses, ThePlannerGivesOneSweepWhereItWouldGiveMore) {
  Shape shape = kBoth;
  shape.micro_batches = 8;
  shape.sequences = 64;
  shape.aux_loss = 0;
  Tiny other(shape);
  shape.aux_loss = 0.2;
  Tiny balanced(shape);
  const Plan plan = other.default_plan();
  int several = 0, planned = 0;
  for (int64_t tenths = 10; tenths > 1; tenths -= kSanitized ? 3 : 1) {
    const Budgets budgets{memory_need(other.workload(), plan).hbm_bytes() * tenths / 10, int64_t{1} << 40};
    const MachineProfile profile;
    try {
      several += make_plan(other.workload(), budgets, profile, nullptr).sweeps.size() > 1;
    } catch (const Error&) {
      break;  // nothing fits any more
    }
    try {
      EXPECT_EQ(make_plan(balanced.workload(), budgets, profile, nullptr).sweeps.size(), 1u);
      ++planned;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::cannot_fit);
    }
  }
  EXPECT_GT(several, 0);
  EXPECT_GT(planned, 0);
}

// The loss's gradient still reaches what the router reads, so everything below it changes.
TEST(RouterLosses, AFrozenRouterStaysAsItIs) {
  const auto weights = [](double aux) {
    Shape shape = kBoth;
    shape.aux_loss = aux;
    shape.z_loss = 0;
    shape.freezing.freeze = {"*.mlp.gate.weight"};
    Tiny tiny(shape);
    const auto trainer = tiny.trainer(tiny.default_plan());
    std::map<std::string, std::vector<float>> found;
    const auto read = [&](const std::string& prefix) {
      for (const LayerRecord& record : trainer->records()) {
        for (const TensorSpec& tensor : record.layout().tensors) {
          std::vector<float>& to = found[prefix + tensor.name];
          to.resize(static_cast<size_t>(tensor.elements()));
          record.read_master(tensor, 0, tensor.elements(), to.data());
        }
      }
    };
    read("before ");
    for (int64_t step = 1; step <= kRouterSteps; ++step) tiny.step(*trainer, step);
    trainer->drain();
    read("");
    return found;
  };
  auto with = weights(0.2), without = weights(0);
  int routers = 0;
  for (const auto& [name, values] : with) {
    if (name.starts_with("before ")) continue;
    if (name.ends_with("mlp.gate.weight")) {
      ++routers;
      EXPECT_EQ(values, with.at("before " + name)) << name;
    } else {
      EXPECT_NE(values, with.at("before " + name)) << name;
    }
  }
  EXPECT_EQ(routers, 4);
  EXPECT_NE(with.at("model.embed_tokens.weight"), without.at("model.embed_tokens.weight"));
}

// The ids of padding have no influence, although padding tokens are routed like others.
TEST(RouterLosses, DocumentsInWhichNothingIsTrainedDoNotCount) {
  Tiny tiny(kBoth);
  const auto train = [&](int32_t padding) {
    const auto trainer = tiny.trainer(tiny.default_plan());
    std::vector<double> figures;
    for (int64_t step = 1; step <= kRouterSteps; ++step) {
      Batch batch = make_batch(kBoth, step - 1);
      for (MicroBatch& micro : batch.micro_batches) {
        const size_t last = micro.document_begin.size() - 2;
        for (int64_t t = micro.document_begin[last]; t < std::ssize(micro.tokens); ++t) {
          const size_t at = static_cast<size_t>(t);
          const int64_t trained = micro.labels[at] != kIgnoreLabel;
          micro.tokens[at] = padding;
          micro.labels[at] = kIgnoreLabel;
          micro.trained -= trained;
          batch.trained -= trained;
        }
      }
      const StepReport report = trainer->step(batch, {.adamw = {.lr = 1e-2, .t = step}, .clip = 0.5});
      const std::vector<double> more = values(report.router.value());
      figures.insert(figures.end(), more.begin(), more.end());
    }
    trainer->drain();
    return std::pair{hash_state(trainer->records(), kRouterSteps).state, figures};
  };
  EXPECT_EQ(train(7), train(52));
}

}  // namespace megatrain::tiny
