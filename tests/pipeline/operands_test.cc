// The code that performs an action can reach the memory that the action declared, and no other.
#include "megatrain/engine/operands.h"

#include <gtest/gtest.h>

#include <set>
#include <type_traits>

#include "megatrain/base/error.h"
#include "megatrain/ops/op_notes.h"
#include "megatrain/plan/random_plan.h"
#include "megatrain/train/setup.h"
#include "megatrain/train/step_program.h"
#include "tests/pipeline/tiny.h"

namespace megatrain::tiny {
namespace {

constexpr Operand kLastOperand = Operand::not_finite;

// Memory is reachable only through an operand: not by a resource's name, and not through what operands are made from.
template <class T>
concept NamesResources = requires(const T& of, Resource resource) {
  of.address(resource);
};
template <class T>
concept HandsOutMemory = requires(const T& of) {
  of.memory();
}
|| requires(const T& of) { of.memory_; };
static_assert(NamesResources<EngineMemory> && !NamesResources<Operands> && !HandsOutMemory<Operands>);

// Nor does that code get the engine's memory or the records, either when it is constructed or when it is called.
static_assert(
    std::is_constructible_v<StepProgram, const Model&, Ops&, const Workload&, const Plan&, Updater&, int32_t*>);
static_assert(!std::is_constructible_v<StepProgram, const Model&, Ops&, const Workload&, const Plan&,
                                       std::vector<LayerRecord>&, Updater&, int32_t*>);
static_assert(!std::is_constructible_v<StepProgram, const Model&, Ops&, const Workload&, const Plan&, EngineMemory&,
                                       Updater&, int32_t*>);
static_assert(
    std::is_same_v<decltype(&StepHandler::compute), void (StepHandler::*)(const Action&, const Operands&, Stream&)>);
static_assert(
    std::is_same_v<decltype(&StepHandler::gather), void (StepHandler::*)(const Action&, const Operands&, int64_t)>);
static_assert(
    std::is_same_v<decltype(&StepHandler::update), void (StepHandler::*)(const Action&, const Operands&, int64_t)>);

Action without(Action action, Operand as) {
  std::erase_if(action.accesses, [&](const Access& access) { return access.as == as; });
  return action;
}

template <class Call>
bool is_internal_error(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ExitCode::internal;
  }
  return false;
}

// A step's actions as the real handler performs them, with ops that compute nothing.
class Performed {
 public:
  Performed(const Shape& shape, uint64_t seed)
      : session_(train_config(shape, "cpu"), {.config = model_config(shape)}),
        workload_(grouped(session_, shape.experts_per_record).workload()),
        plan_(random_plan(workload_, seed)),
        model_(make_model(session_.model(),
                          model_shape(session_.identity(), shape.seq_len, workload_.experts_per_record))),
        trainer_(on_disk(session_).make_trainer(plan_)),
        memory_(*session_.machine().device, workload_, plan_, trainer_->records()),
        updater_(trainer_->records(), workload_.tables(), 1),
        program_(model_, ops_, workload_, plan_, updater_, memory_.at<int32_t>({ResourceKind::staged_inputs})),
        stream_(session_.machine().device->make_stream("test")) {
    program_.prepare(make_batch(shape, 0), 0, {});
  }

  const EngineMemory& memory() const { return memory_; }
  std::vector<Action> actions() const { return build_schedule(workload_, plan_, StepMode::train).actions; }
  void compute(const Action& action) { program_.compute(action, Operands(memory_, action, 0), *stream_); }

 private:
  // A fixed size instead of the machine's choice, so that it is the same everywhere.
  static Session& grouped(Session& session, int64_t experts_per_record) {
    session.group_experts(experts_per_record);
    return session;
  }
  static Session& on_disk(Session& session) {
    session.machine().disk.place.directory = std::filesystem::temp_directory_path().string();
    return session;
  }

  Session session_;
  const Workload& workload_;
  Plan plan_;
  Model model_;
  OpNotes ops_;
  std::unique_ptr<Trainer> trainer_;
  EngineMemory memory_;
  Updater updater_;
  StepProgram program_;
  std::unique_ptr<Stream> stream_;  // last: it uses the memory
};

// Operands that an action may lack, for which its handler gets null: in a part that neither begins nor ends its phase,
// a phase without a router, one that keeps nothing, for a gradient that stays where it was summed, or the head in an
// evaluation.
bool may_be_missing(ActionKind kind, Operand as) {
  static const std::set<Operand> in_phases = {Operand::x,
                                              Operand::y,
                                              Operand::grad_x,
                                              Operand::grad_y,
                                              Operand::kept,
                                              Operand::between_parts,
                                              Operand::rounded,
                                              Operand::router_counts,
                                              Operand::router_slopes};
  if (kind == ActionKind::balance_experts) return false;
  return in_phases.contains(as);
}

bool is_computed(const Action& action) { return action.lane == Lane::compute || action.lane == Lane::visit; }

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

TEST(Operands, AnActionThatReadsWhatItDoesNotDeclareIsAnInternalError) {
  std::set<std::pair<ActionKind, Operand>> refused, declared;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const int64_t grouped = seed % 2 == 0 ? 0 : 2;
    Performed step({.layers = 3, .experts = 4, .experts_per_record = grouped, .aux_loss = 0.01}, seed);
    for (const Action& action : step.actions()) {
      if (!is_computed(action)) continue;
      ASSERT_NO_THROW(step.compute(action)) << action_name(action.kind);
      for (const Access& access : action.accesses) {
        const std::pair what{action.kind, access.as};
        if (may_be_missing(action.kind, access.as)) continue;
        declared.insert(what);
        const Action less = without(action, access.as);
        if (!refused.contains(what) && is_internal_error([&] { step.compute(less); })) refused.insert(what);
      }
    }
  }
  for (const auto& [kind, as] : declared) {
    EXPECT_TRUE(refused.contains({kind, as}))
        << action_name(kind) << " performs without operand " << static_cast<int>(as);
  }
}

TEST(Operands, PlanesOfARecordAreThoseThatTheActionDeclares) {
  int updates = 0, on_device = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Performed step({.layers = 3}, seed);
    for (const Action& action : step.actions()) {
      if (action.kind == ActionKind::update) {
        EXPECT_NO_THROW(Operands(step.memory(), action, 0).planes_to_update());
        for (const Operand as : {Operand::weights, Operand::state, Operand::moments}) {
          if (!action.has(as)) continue;
          const Action less = without(action, as);
          EXPECT_TRUE(is_internal_error([&] { Operands(step.memory(), less, 0).planes_to_update(); }));
          ++updates;
        }
      }
      if (action.kind == ActionKind::update_on_device && action.has(Operand::weights)) {
        const Action less = without(action, Operand::weights);
        EXPECT_NO_THROW(Operands(step.memory(), action, 0).planes(Operand::state));
        EXPECT_TRUE(is_internal_error([&] { Operands(step.memory(), less, 0).planes(Operand::state); }));
        ++on_device;
      }
    }
  }
  EXPECT_GT(updates, 10);
  EXPECT_GT(on_device, 0);
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
