// Frozen weights that stay packed.
#include "tests/pipeline/lending_check.h"
#include "tests/pipeline/packed_check.h"

#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/estimate.h"
#include "megatrain/plan/inventory.h"
#include "tests/support/sanitized.h"

namespace megatrain::tiny {
namespace {

constexpr uint64_t kPackedPlans = kSanitized ? 2 : 40;  // each shape has others under a sanitizer
constexpr int64_t kPackedSteps = kSanitized ? 2 : 3;
constexpr int64_t kAnswerTokens = kSanitized ? 6 : 20;

TEST(Packed, FrozenWeightsGiveTheHashOfUnpackedOnesUnderEveryPlan) {
  expect_packed_as_unpacked("cpu", kPackedPlans, kPackedSteps);
}

// Ids that a greedy answer has after one step.
std::vector<int32_t> answer_after_a_step(Tiny& tiny, const Shape& shape) {
  const auto trainer = tiny.trainer(tiny.default_plan());
  tiny.step(*trainer, 1);
  trainer->drain();
  Generator generator(*tiny.machine().device, *tiny.machine().ops, model_config(shape), trainer->records(),
                      {.max_context = 32, .memory_bytes = int64_t{1} << 30, .in_place = false});
  return generator.generate({{.prompt = std::vector<int32_t>(12, 3), .max_tokens = kAnswerTokens}}, {})[0].ids;
}

TEST(Packed, FrozenWeightsAnswerAsUnpackedOnes) {
  for (const Shape& shape : packed_shapes()) {
    Tiny packed(shape), plain(unpacked(shape));
    const std::vector<int32_t> ids = answer_after_a_step(packed, shape);
    EXPECT_EQ(std::ssize(ids), kAnswerTokens);
    EXPECT_EQ(ids, answer_after_a_step(plain, shape));
  }
}

TEST(Packed, FrozenWeightsAnswerInTheMemoryThatTrainingLends) {
  for (Shape shape : packed_shapes()) {
    shape.prompts = {"one", "another"};
    expect_answers_in_lent_memory(shape, "cpu", kSanitized ? 1 : 12);
  }
}

TEST(Packed, WeightsAreCountedAndMovedInTheirStoredForm) {
  const Shape shape = packed_shapes().front();
  Tiny packed(shape), same(unpacked(shape));
  const Workload &w = packed.workload(), &plain = same.workload();
  // every record lives on the host, and every layer record streams
  Plan plan = packed.default_plan();
  for (RecordPlan& record : plan.records) record = RecordPlan{};
  plan.rings = {.weight_slots = 2, .packed_slots = 2, .host_gradients = plan.waiting_on_host(w)};
  for (PhasePlan& phase : plan.phases) phase = PhasePlan{};
  check_plan(w, plan);
  Plan other = plan;
  other.rings.packed_slots = 0;
  check_plan(plain, other);
  const MemoryNeed need = memory_need(w, plan), more = memory_need(plain, other);
  int64_t stored = 0, whole = 0;
  for (int64_t r = 0; r < w.record_count(); ++r) {
    if (!w.is_packed(r)) continue;
    EXPECT_LT(2 * w.stored_bytes(r), w.weight_bytes(r));
    stored += w.stored_bytes(r);
    whole += plain.weight_bytes(r);
  }
  EXPECT_GT(stored, 0);
  EXPECT_EQ(more.bytes_of(ResourceKind::record_weights) - need.bytes_of(ResourceKind::record_weights), whole - stored);
  EXPECT_EQ(need.bytes_of(ResourceKind::weight_slot), more.bytes_of(ResourceKind::weight_slot));
  EXPECT_EQ(need.bytes_of(ResourceKind::packed_slot), 2 * w.stored_bytes(2));
  EXPECT_LT(fetched_weight_bytes(w, plan), fetched_weight_bytes(plain, other));
  other = plan;
  other.rings.packed_slots = 0;
  EXPECT_ANY_THROW(check_plan(w, other)) << "packed weights come through a ring";
  EXPECT_ANY_THROW(check_plan(plain, plan)) << "nothing of this one is packed";
}

TEST(Packed, SchedulesUnpackEachRecordBeforeItsPhaseReadsIt) {
  Tiny packed(packed_shapes().front());
  const Workload& w = packed.workload();
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::map<Resource, int64_t> holds;  // the record in each slot or place, by the last write
    for (const Action& action : build_schedule(w, random_plan(w, seed), StepMode::train).actions) {
      if (action.kind == ActionKind::unpack_weights || action.kind == ActionKind::fetch_weights) {
        EXPECT_EQ(action.kind == ActionKind::unpack_weights || action.at(Operand::to).kind == ResourceKind::packed_slot,
                  w.is_packed(action.record));
        holds[action.at(Operand::to)] = action.record;
      }
      if (action.kind != ActionKind::forward && action.kind != ActionKind::backward) continue;
      std::vector<int64_t> records = w.phase(action.phase).records_of(action.part);
      std::erase(records, w.phase(action.phase).looks_up);  // it reads only rows of that one
      for (size_t i = 0; i < records.size(); ++i) {
        const Resource& at = action.at(Operand::weights, static_cast<int64_t>(i));
        if (at.kind == ResourceKind::record_weights) {
          EXPECT_FALSE(w.is_packed(records[i])) << "a phase reads no packed weights";
        } else {
          EXPECT_EQ(holds.at(at), records[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace megatrain::tiny
