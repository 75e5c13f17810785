#include "megatrain/plan/spill.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "megatrain/plan/inventory.h"

namespace megatrain {

namespace {

// Records whose moments may go to disk: blocks from the last to the first, then the head.
std::vector<int64_t> records_that_may(const Workload& w, const Plan& plan) {
  std::vector<int64_t> records;
  const auto add = [&](int64_t record) {
    if (w.is_trained(record) && !plan.updated_on_device(record)) records.push_back(record);
  };
  const std::vector<int64_t> layers = w.layer_records();
  std::for_each(layers.rbegin(), layers.rend(), add);
  add(w.head_record());
  return records;
}

// Chooses `count` of the records according to `order`.
std::vector<int64_t> chosen(const std::vector<int64_t>& records, int64_t count, SpillOrder order) {
  std::vector<int64_t> list(records.begin(), records.begin() + count);
  const int64_t all = std::ssize(records);
  if (order == SpillOrder::last || count == all) return list;
  for (int64_t i = 0; i < count; ++i) list[static_cast<size_t>(i)] = records[static_cast<size_t>(i * all / count)];
  return list;
}

// The effect of moving the moments of some records to disk, in bytes.
struct Spill {
  int64_t saved = 0;  // of host memory, before the slabs are subtracted
  int64_t disk = 0;
  int64_t slab = 0;
};
Spill spill_of(const Workload& w, const std::vector<int64_t>& records) {
  Spill spill;
  for (const int64_t record : records) {
    spill.saved += 2 * w.moment_bytes(record);
    spill.disk += 2 * w.disk_moment_bytes(record);
    spill.slab = std::max(spill.slab, 2 * w.disk_moment_bytes(record));
  }
  return spill;
}

Plan with_moments_on_disk(Plan plan, const std::vector<int64_t>& records, int64_t slabs) {
  for (const int64_t record : records) plan.record(record).moments = Tier::disk;
  plan.rings.moment_slabs = slabs;
  return plan;
}

// Blocks whose weights may go to disk, from the last to the first.
std::vector<int64_t> blocks_that_may(const Workload& w, const Plan& plan) {
  std::vector<int64_t> blocks = w.layer_records();
  std::erase_if(blocks,
                [&](int64_t record) { return plan.updated_on_device(record) || plan.weights_in_files(record); });
  std::ranges::reverse(blocks);
  return blocks;
}

// Moves all moments that may go, and the weights of the first `count` blocks.
Plan with_weights_on_disk(const Workload& w, const Plan& plan, const std::vector<int64_t>& blocks, int64_t count,
                          int64_t slabs) {
  const std::vector<int64_t> trained = records_that_may(w, plan);
  Plan spilled = with_moments_on_disk(plan, trained, std::min(slabs, std::ssize(trained)));
  for (int64_t i = 0; i < count; ++i) spilled.record(blocks[static_cast<size_t>(i)]).state = Tier::disk;
  spilled.rings.weight_slabs = std::min(slabs, spilled.with_weights_staged());
  return spilled;
}

int64_t disk_left(const Workload& w, const Plan& plan, const Budgets& budgets) {
  return budgets.disk_bytes - memory_need(w, plan).disk_bytes();
}

// Blocks in the order in which their kept outputs go to disk. Blocks that share a boundary recompute their inputs from
// it, which reads the kept outputs of all of them but the topmost. Each block's backward then reads its own. So the
// outputs of topmost blocks are read once and the others twice, and the lower a block, the more of these outputs are
// needed at once.
std::vector<int64_t> outputs_in_order(const Workload& w, const Plan& plan) {
  std::vector<int64_t> order(static_cast<size_t>(w.layer_phases()));
  std::iota(order.begin(), order.end(), int64_t{1});
  const auto above = [&](int64_t phase) { return plan.above_boundary(phase, w.first_trained_phase()); };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return above(a) > above(b); });
  return order;
}

// Frozen records that may stay in files, the largest first. Those of one size alternate between distant layers: their
// positions are taken in the order of their reversed bits, so that any number of them is evenly spread.
std::vector<int64_t> records_for_files(const Workload& w, const Plan& plan) {
  std::vector<int64_t> records = w.layer_records();
  std::erase_if(records, [&](int64_t r) { return !w.may_stay_in_files(r) || plan.record(r).state != Tier::host; });
  const auto reversed = [](int64_t position) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; ++i) bits |= (static_cast<uint32_t>(position) >> i & 1u) << (31 - i);
    return bits;
  };
  std::ranges::stable_sort(records, [&](int64_t a, int64_t b) {
    const int64_t first = w.stored_bytes(a), second = w.stored_bytes(b);
    return first != second ? first > second : reversed(w.phase_of(a)) < reversed(w.phase_of(b));
  });
  return records;
}

Plan with_files(Plan plan, const std::vector<int64_t>& records, int64_t count, int64_t slabs) {
  for (int64_t i = 0; i < count; ++i) plan.record(records[static_cast<size_t>(i)]).state = Tier::files;
  plan.rings.weight_slabs = std::min(slabs, plan.with_weights_staged());
  return plan;
}

}  // namespace

Plan leave_in_files(const Workload& w, const Plan& plan, const Budgets& budgets, int64_t slabs) {
  if (memory_need(w, plan).host_bytes() <= budgets.host_bytes) return plan;
  const std::vector<int64_t> records = records_for_files(w, plan);
  int64_t low = 0, high = std::ssize(records);  // once the slabs are there, each further record lowers the need
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (memory_need(w, with_files(plan, records, middle, slabs)).host_bytes() <= budgets.host_bytes) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return with_files(plan, records, low, slabs);
}

Plan leave_all_in_files(const Workload& w, const Plan& plan, int64_t slabs) {
  const std::vector<int64_t> records = records_for_files(w, plan);
  return with_files(plan, records, std::ssize(records), slabs);
}

Plan spill_gradients(const Workload& w, const Plan& plan, const Budgets& budgets, int64_t slabs, SpillOrder order) {
  if (!w.clip) return plan;
  const int64_t lacking = memory_need(w, plan).host_bytes() - budgets.host_bytes, left = disk_left(w, plan, budgets);
  std::vector<int64_t> records = records_that_may(w, plan);
  std::erase_if(records, [&](int64_t r) { return r == w.head_record() || plan.record(r).gradient != Tier::host; });
  Plan best = plan;
  int64_t most = 0;  // bytes of host memory gained
  for (int64_t count = 1; count <= std::ssize(records) && most < lacking; ++count) {
    Plan spilled = plan;
    int64_t saved = 0, slab = 0, disk = 0;  // in bytes; slab: the largest that passes through
    for (const int64_t record : chosen(records, count, order)) {
      spilled.record(record).gradient = Tier::disk;
      saved += w.gradient_bytes(record);
      disk += w.disk_gradient_bytes(record);
      slab = std::max(slab, w.disk_gradient_bytes(record));
    }
    if (disk > left) break;
    spilled.rings.gradient_slabs = std::max(plan.rings.gradient_slabs, std::min(slabs, count));
    const int64_t gained = saved - (spilled.rings.gradient_slabs - plan.rings.gradient_slabs) * slab;
    if (gained <= most) continue;
    most = gained;
    spilled.rings.host_gradients = spilled.waiting_on_host(w);
    best = std::move(spilled);
  }
  return best;
}

std::optional<Plan> spill_moments(const Workload& w, const Plan& plan, const Budgets& budgets, int64_t slabs,
                                  SpillOrder order) {
  const int64_t lacking = memory_need(w, plan).host_bytes() - budgets.host_bytes;
  if (lacking <= 0) return plan;
  const std::vector<int64_t> records = records_that_may(w, plan);
  for (int64_t count = 1; count <= std::ssize(records); ++count) {
    const std::vector<int64_t> list = chosen(records, count, order);
    const Spill spill = spill_of(w, list);
    const int64_t used = std::min(slabs, count);
    if (spill.saved - used * spill.slab < lacking) continue;
    if (spill.disk > disk_left(w, plan, budgets)) return {};
    return with_moments_on_disk(plan, list, used);
  }
  return {};
}

std::optional<Plan> spill_weights(const Workload& w, const Plan& plan, const Budgets& budgets, int64_t slabs) {
  const std::vector<int64_t> blocks = blocks_that_may(w, plan);
  // once the slabs are there, each further block lowers the need for host memory
  int64_t low = 1, high = std::ssize(blocks);
  const auto fits = [&](int64_t count) {
    return memory_need(w, with_weights_on_disk(w, plan, blocks, count, slabs)).host_bytes() <= budgets.host_bytes;
  };
  if (high == 0 || !fits(high)) return {};
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  Plan spilled = with_weights_on_disk(w, plan, blocks, low, slabs);
  if (memory_need(w, spilled).disk_bytes() > budgets.disk_bytes) return {};
  return spilled;
}

Plan spill_activations(const Workload& w, const Plan& plan, const Budgets& budgets) {
  constexpr int64_t kRing = 3;
  Plan best = plan, spilled = plan;
  spilled.rings.activation_slabs = std::min(kRing, w.micro_batches + 2);
  int64_t least = memory_need(w, plan).host_bytes();
  std::vector<Tier*> tiers;
  for (PhasePlan& phase : spilled.layer_phases()) tiers.push_back(&phase.input);
  for (const int64_t phase : outputs_in_order(w, plan)) tiers.push_back(&spilled.phase(phase).outputs);
  for (Tier* tier : tiers) {
    if (least <= budgets.host_bytes) return best;
    if (*tier != Tier::host) continue;
    *tier = Tier::disk;
    const MemoryNeed need = memory_need(w, spilled);
    if (need.disk_bytes() > budgets.disk_bytes) return best;
    if (need.host_bytes() >= least) continue;
    least = need.host_bytes();
    best = spilled;
  }
  return best;
}

Plan spill_most(const Workload& w, const Plan& given, const Budgets& budgets) {
  const Plan plan = spill_gradients(w, given, budgets, 2, SpillOrder::last);
  const std::vector<int64_t> records = records_that_may(w, plan);
  const int64_t left = disk_left(w, plan, budgets);
  Plan best = plan;
  int64_t most = 0;
  for (int64_t count = 1; count <= std::ssize(records); ++count) {
    const std::vector<int64_t> list = chosen(records, count, SpillOrder::last);
    const Spill spill = spill_of(w, list);
    if (spill.disk > left) break;
    const int64_t slabs = std::min<int64_t>(2, count), saved = spill.saved - slabs * spill.slab;
    if (saved <= most) continue;
    most = saved;
    best = with_moments_on_disk(plan, list, slabs);
  }
  const std::vector<int64_t> blocks = blocks_that_may(w, plan);
  for (int64_t count = 1; count <= std::ssize(blocks); ++count) {
    Plan spilled = with_weights_on_disk(w, plan, blocks, count, 2);
    const MemoryNeed need = memory_need(w, spilled);
    if (need.disk_bytes() > budgets.disk_bytes) break;
    if (need.host_bytes() < memory_need(w, best).host_bytes()) best = std::move(spilled);
  }
  return best;
}

std::optional<int64_t> least_disk_bytes(const Workload& w, const Plan& plan, const Budgets& budgets) {
  Budgets wide = budgets;
  wide.disk_bytes = std::numeric_limits<int64_t>::max();
  std::optional<int64_t> least;
  for (const Plan& start :
       {plan, spill_gradients(w, plan, wide, 2, SpillOrder::last), spill_activations(w, plan, wide)}) {
    auto spilled = spill_moments(w, start, wide, 2, SpillOrder::last);
    if (!spilled) spilled = spill_weights(w, start, wide, 2);
    if (!spilled) continue;
    const int64_t bytes = memory_need(w, *spilled).disk_bytes();
    least = std::min(least.value_or(bytes), bytes);
  }
  return least;
}

}  // namespace megatrain
