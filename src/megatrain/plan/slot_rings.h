// The slots that layers' weights stream through. Records far smaller than the largest have a ring of their own: in one
// ring for all, each of their slots would be as large as the largest record.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "megatrain/plan/plan.h"
#include "megatrain/plan/resource.h"
#include "megatrain/plan/workload.h"

namespace megatrain {

// A ring, and what of a workload streams through it when everything does.
struct SlotRing {
  ResourceKind kind;
  int64_t Rings::*slots;
  const char* name;     // of the field in Rings
  int64_t at_once = 0;  // records that the part of a phase which needs most of them needs; 0: no record is the ring's
  int64_t records = 0;  // of the layers
};

class SlotRings {
 public:
  explicit SlotRings(const Workload& workload);

  const std::array<SlotRing, 2>& all() const { return rings_; }
  bool is_small(int64_t record) const { return small_[static_cast<size_t>(record)]; }
  const SlotRing& of(int64_t record) const { return rings_[is_small(record)]; }
  // As many slots as `phases` phases need at once, or as there are records.
  void set(int64_t phases, Rings& rings) const;

 private:
  std::vector<bool> small_;  // (records)
  std::array<SlotRing, 2> rings_;
};

}  // namespace megatrain
