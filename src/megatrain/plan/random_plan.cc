#include <algorithm>

#include "megatrain/base/rng.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

Plan random_plan(const Workload& w, uint64_t seed) {
  constexpr uint64_t kPurpose = 0x706c616e;  // "plan"
  uint64_t index = 0;
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random_below(seed, kPurpose, index++, static_cast<uint64_t>(bound)));
  };
  Plan plan{.experts_per_record = w.experts_per_record};
  const int64_t at_once = w.records_at_once(), records = w.layer_records();
  const int64_t most = std::max(records - at_once + 1, int64_t{1});
  // mostly few: streaming is the hard case
  plan.slots = at_once + below(below(3) ? std::min<int64_t>(3, most) : most);
  plan.boundary_every = below(3) ? 1 : 1 + below(std::min<int64_t>(4, w.layer_phases()));
  plan.boundary_slots = 2 + below(3);
  plan.gradient_slabs = 1 + below(3);
  plan.serial = below(12) == 0;
  const int64_t resident = std::max<int64_t>(0, below(4) - 1);  // none, some, mostly
  const int64_t kept = below(4);
  const int64_t on_device = below(8) - 5;  // most plans keep all state on the host: streaming is the hard case
  for (int64_t record = 0; record < w.record_count(); ++record)
    plan.state.push_back(below(6) < 2 * on_device ? Tier::hbm : Tier::host);
  for (int64_t l = 0; l < std::max(records, w.layer_phases()); ++l) {
    if (l < records) {
      const bool stays = plan.state_on_device(l + 1);
      plan.weights.push_back(stays || below(4) < resident ? Tier::hbm : Tier::host);
      plan.visits.push_back(!stays && w.clip && below(5) == 0 && w.is_trained(l + 1));
    }
    if (l < w.layer_phases()) {
      plan.keep.push_back(kKeeps[static_cast<size_t>(below(2) ? 0 : below(std::ssize(kKeeps)))]);
      plan.boundary.push_back(below(3) < kept ? Tier::hbm : Tier::host);
    }
  }
  const int64_t visitors = std::count(plan.visits.begin(), plan.visits.end(), true);
  if (visitors > 0 && !w.gradients_stay && below(2)) plan.visit_slots = 1 + below(std::min<int64_t>(3, visitors));
  const int64_t leaving = plan.leaving(w);
  plan.host_gradient_slabs = w.clip || leaving == 0 ? leaving : 1 + below(leaving);
  for (int64_t left = w.micro_batches; left > 0;) {
    const int64_t width = w.aux_loss > 0 || below(2) ? left : 1 + below(left);
    plan.sweeps.push_back(width);
    left -= width;
  }
  // half of the plans keep all moments in memory, which is the harder case for the other lanes
  const bool disk = below(2) == 0;
  int64_t on_disk = 0;
  for (int64_t record = 0; record < w.record_count(); ++record) {
    const bool may = record > 0 && w.is_trained(record) && !plan.updated_on_device(record);
    plan.disk_moments.push_back(disk && may && below(3) > 0);
    on_disk += plan.disk_moments.back();
  }
  plan.moment_slabs = on_disk < 2 ? on_disk : 2 + below(std::min<int64_t>(on_disk - 1, 3));
  const int64_t elsewhere = w.clip ? below(4) : 0;  // 1: some gradients on disk, 2: on the device, 3: on both
  for (int64_t record = 0; record < w.record_count(); ++record) {
    plan.gradients.push_back(Tier::host);
    if (elsewhere == 0 || !w.is_layer_record(record) || !w.is_trained(record) || plan.updated_on_device(record))
      continue;
    const Tier tier = elsewhere == 1 || (elsewhere == 3 && below(2)) ? Tier::disk : Tier::hbm;
    if (below(4) > 0 && (tier == Tier::disk || leaves_its_place(w, plan, record))) plan.gradients.back() = tier;
  }
  const int64_t waiting = plan.waiting_elsewhere();
  plan.gradient_ring = waiting < 2 ? waiting : 2 + below(std::min<int64_t>(waiting - 1, 3));
  if (w.clip) plan.host_gradient_slabs = plan.waiting_on_host(w);
  const bool weights = disk && below(2) == 0;
  int64_t staged = 0;
  for (int64_t record = 0; record < w.record_count(); ++record) {
    const bool may = w.is_layer_record(record) && !plan.updated_on_device(record) &&
                     plan.moments_on_disk(record) == w.is_trained(record);
    plan.disk_weights.push_back(weights && may && below(3) > 0);
    staged += plan.disk_weights.back();
  }
  for (Tier& boundary : plan.boundary) {
    if (disk && boundary == Tier::host && below(3) == 0) boundary = Tier::disk;
  }
  if (std::count(plan.boundary.begin(), plan.boundary.end(), Tier::disk) > 0)
    plan.boundary_ring = 1 + below(w.micro_batches + 1);
  plan.weight_slabs = staged == 0 ? 0 : 1 + below(std::min<int64_t>(staged, 3));
  const bool away = below(2) == 0;
  for (Keep& keep : plan.keep) {
    if (away && keep == Keep::nothing && below(2)) keep = Keep::outputs;
    plan.outputs.push_back(Tier::hbm);
    if (away && keep == Keep::outputs && below(4)) plan.outputs.back() = disk && below(2) ? Tier::disk : Tier::host;
  }
  if (plan.outputs_wait_elsewhere()) plan.output_slots = 2 + below(3);
  if (plan.activations_on_disk() && plan.boundary_ring == 0) plan.boundary_ring = 1 + below(w.micro_batches + 1);
  return plan;
}

}  // namespace megatrain
