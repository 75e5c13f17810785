// Several tables of rows: each layer may have its own.
#include "tests/pipeline/tables_check.h"

#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/planner.h"
#include "tests/support/sanitized.h"

namespace megatrain::tiny {
namespace {

constexpr uint64_t kTablePlans = kSanitized ? 6 : 40;

TEST(Tables, OfLayersTrainUnderEveryRandomPlanToOneStateHash) {
  for (const Shape& shape : table_shapes()) expect_one_hash_with_tables(shape, "cpu", kTablePlans);
}

Plan with_state_on_host(const Workload& w) {
  constexpr int64_t kPlenty = int64_t{1} << 30;
  return make_plan(w, {.gpu_bytes = kPlenty, .host_bytes = kPlenty, .state_on_host = true}, {}, nullptr);
}

TEST(Tables, OfLayersHaveTheGradientsThatDifferencesGive) {
  MadeModel made({.layers = 5, .clip = false, .precision = "fp32"}, with_tables);
  const Plan plan = with_state_on_host(made.workload());
  made.expect_gradients(plan, kFirstTable, {0, 57, 133, 304, 421, 497, 601});
  made.expect_gradients(plan, kFirstTable - 1, {0, 57, 133, 239});
}

TEST(Tables, OfLayersTakeNoSlotAndSendTheirRowsAlone) {
  MadeModel made({.layers = 5}, with_tables);
  const Workload& w = made.workload();
  EXPECT_EQ(w.layer_record_count(), 5);
  const Plan plan = with_state_on_host(w);
  EXPECT_EQ(plan.record(kFirstTable).weights, Tier::host);
  int64_t rows = 0;
  for (const int64_t table : w.tables()) rows += w.row_elements(table) * w.element_bytes(table);
  EXPECT_EQ(memory_need(w, plan).bytes_of(ResourceKind::device_rows), rows);
  for (const Action& action : build_schedule(w, plan, StepMode::train).actions) {
    EXPECT_FALSE(action.kind == ActionKind::fetch_weights && w.is_looked_up(action.record));
  }
  Plan on_disk = plan;
  on_disk.record(kFirstTable).moments = Tier::disk;
  EXPECT_ANY_THROW(check_plan(w, on_disk)) << "rows are updated when they are needed";
}

}  // namespace
}  // namespace megatrain::tiny
