#include "megatrain/plan/slot_rings.h"

#include <algorithm>

namespace megatrain {

namespace {

constexpr int64_t kSmallPart = 4;  // records of at most 1/4 of the largest layer record are small

}  // namespace

SlotRings::SlotRings(const Workload& w)
    : small_(w.records.size(), false),
      rings_{SlotRing{.kind = ResourceKind::weight_slot, .slots = &Rings::weight_slots, .name = "weight_slots"},
             SlotRing{.kind = ResourceKind::small_slot, .slots = &Rings::small_slots, .name = "small_slots"}} {
  int64_t largest = 0;
  for (const int64_t r : w.layer_records()) largest = std::max(largest, w.weight_bytes(r));
  for (const int64_t r : w.layer_records()) {
    small_[static_cast<size_t>(r)] = w.weight_bytes(r) <= largest / kSmallPart;
    ++rings_[is_small(r)].records;
  }
  for (int64_t p = 1; p < w.head_phase(); ++p) {
    for (int64_t part = 0; part < w.phase(p).part_count(); ++part) {
      std::array<int64_t, 2> needed{};
      for (const int64_t r : w.phase(p).records_of(part)) needed[is_small(r)] += w.is_layer_record(r);
      for (size_t ring = 0; ring < rings_.size(); ++ring)
        rings_[ring].at_once = std::max(rings_[ring].at_once, needed[ring]);
    }
  }
}

void SlotRings::set(int64_t phases, Rings& rings) const {
  for (const SlotRing& ring : rings_) rings.*ring.slots = std::min(phases * ring.at_once, ring.records);
}

}  // namespace megatrain
