// The slots that layers' weights stream through. Records far smaller than the largest have a ring of their own: in a
// common ring, each of their slots would be as large as the largest record.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "megatrain/plan/plan.h"
#include "megatrain/plan/resource.h"
#include "megatrain/plan/workload.h"

namespace megatrain {

// A ring, and which records of a workload would stream through it if everything streamed.
struct SlotRing {
  ResourceKind kind;
  int64_t Rings::*slots;
  const char* name;  // the field's name in Rings
  // The most records of this ring that any part of a phase needs at once; 0: the ring has no records.
  int64_t at_once = 0;
  int64_t records = 0;  // of the layers
};

class SlotRings {
 public:
  explicit SlotRings(const Workload& workload);

  const std::array<SlotRing, 2>& all() const { return rings_; }
  bool is_small(int64_t record) const { return small_[static_cast<size_t>(record)]; }
  const SlotRing& of(int64_t record) const { return rings_[is_small(record)]; }
  // Enough slots for what `phases` phases need at once, but no more than there are records.
  void set(int64_t phases, Rings& rings) const;

 private:
  std::vector<bool> small_;  // (records)
  std::array<SlotRing, 2> rings_;
};

}  // namespace megatrain
