// What performs an action reaches the memory that the action declared, and no other.
#include "megatrain/engine/operands.h"

#include <gtest/gtest.h>

#include "megatrain/base/error.h"
#include "megatrain/plan/random_plan.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {
namespace {

constexpr Operand kLastOperand = Operand::not_finite;

const Action& first_of(const Schedule& schedule, ActionKind kind, Lane lane) {
  const auto found = std::ranges::find_if(
      schedule.actions, [&](const Action& action) { return action.kind == kind && action.lane == lane; });
  if (found == schedule.actions.end()) throw std::runtime_error("no such action");
  return *found;
}

TEST(Operands, WhatAnActionDidNotDeclareCannotBeReached) {
  Tiny tiny({.layers = 3, .experts = 4});
  const std::vector<LayerRecord> records;
  int refused = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Plan plan = random_plan(tiny.workload(), seed);
    const EngineMemory memory(*tiny.machine().device, tiny.workload(), plan, records);
    for (const Action& action : build_schedule(tiny.workload(), plan, StepMode::train).actions) {
      const Operands operands(memory, action, 0);
      for (int as = 0; as <= static_cast<int>(kLastOperand); ++as) {
        if (operands.has(static_cast<Operand>(as))) continue;
        EXPECT_THROW(operands.address(static_cast<Operand>(as)), Error) << action_name(action.kind) << " " << as;
        EXPECT_EQ(operands.optional(static_cast<Operand>(as)), nullptr);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Operands, AReportFindsTheMarksThatUpdatesOfTheStepBeforeMade) {
  Tiny tiny({.layers = 4});
  const Workload& w = tiny.workload();
  Plan plan = tiny.default_plan();
  plan.record(1).live_on_device();
  plan.record(2).updated_by = plan.record(3).updated_by = UpdatedBy::device;
  plan.rings.visit_slots = 2;
  plan.rings.host_gradients = plan.waiting_on_host(w);
  const Schedule schedule = build_schedule(w, plan, StepMode::train);
  const std::vector<LayerRecord> records;
  const EngineMemory memory(*tiny.machine().device, w, plan, records);
  const Action& report = first_of(schedule, ActionKind::report, Lane::d2h);
  ASSERT_EQ(report.count(Operand::not_finite), 2);
  for (const auto& [lane, nth] : {std::pair{Lane::compute, 0}, {Lane::visit, 1}}) {
    const Action& update = first_of(schedule, ActionKind::update_on_device, lane);
    for (int64_t step = 0; step < 4; ++step) {
      const std::byte* marked = Operands(memory, update, step).address(Operand::not_finite);
      EXPECT_EQ(Operands(memory, report, step + 1).address(Operand::not_finite, nth), marked);
      EXPECT_NE(Operands(memory, report, step).address(Operand::not_finite, nth), marked);
    }
  }
}

}  // namespace
}  // namespace megatrain::tiny
