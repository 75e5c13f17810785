#include "megatrain/plan/spill.h"

#include <algorithm>
#include <limits>

#include "megatrain/plan/inventory.h"

namespace megatrain {

namespace {

// Records whose moments may go, blocks from the last to the first, then the head.
std::vector<int64_t> records_that_may(const Workload& w, const Plan& plan) {
  std::vector<int64_t> records;
  for (int64_t i = 0; i <= w.layer_records(); ++i) {
    const int64_t record = i < w.layer_records() ? w.head_record() - 1 - i : w.head_record();
    if (w.is_trained(record) && !plan.updated_on_device(record)) records.push_back(record);
  }
  return records;
}

// The first `count` of them in this order.
std::vector<int64_t> chosen(const std::vector<int64_t>& records, int64_t count, SpillOrder order) {
  std::vector<int64_t> list(records.begin(), records.begin() + count);
  const int64_t all = std::ssize(records);
  if (order == SpillOrder::last || count == all) return list;
  for (int64_t i = 0; i < count; ++i) list[static_cast<size_t>(i)] = records[static_cast<size_t>(i * all / count)];
  return list;
}

}  // namespace

std::optional<Plan> spill_moments(const Workload& w, const Plan& plan, const Budgets& budgets, int64_t slabs,
                                  SpillOrder order) {
  const int64_t lacking = memory_need(w, plan).host_bytes() - budgets.host_bytes;
  if (lacking <= 0) return plan;
  const std::vector<int64_t> records = records_that_may(w, plan);
  for (int64_t count = 1; count <= std::ssize(records); ++count) {
    const std::vector<int64_t> list = chosen(records, count, order);
    int64_t saved = 0, largest = 0, disk = 0;  // bytes
    for (const int64_t record : list) {
      saved += 2 * w.moment_bytes(record);
      disk += 2 * w.disk_moment_bytes(record);
      largest = std::max(largest, 2 * w.disk_moment_bytes(record));
    }
    const int64_t used = std::min(slabs, count);
    if (saved - used * largest < lacking) continue;
    if (disk > budgets.disk_bytes) return {};
    Plan spilled = plan;
    for (const int64_t record : list) spilled.disk_moments[static_cast<size_t>(record)] = true;
    spilled.moment_slabs = used;
    return spilled;
  }
  return {};
}

std::optional<int64_t> least_disk_bytes(const Workload& w, const Plan& plan, const Budgets& budgets) {
  Budgets wide = budgets;
  wide.disk_bytes = std::numeric_limits<int64_t>::max();
  const auto spilled = spill_moments(w, plan, wide, 2, SpillOrder::last);
  if (!spilled) return {};
  return memory_need(w, *spilled).disk_bytes();
}

}  // namespace megatrain
