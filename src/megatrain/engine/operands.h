// The memory that an action declared, by its role. The code that performs an action gets this and no other engine
// memory, so it cannot touch anything that the schedule has not ordered and proven.
#pragma once

#include <cstdint>

#include "megatrain/engine/memory.h"

namespace megatrain {

class Operands {
 public:
  // For the step with this number, counted from 0. Memory and action must outlive it.
  Operands(const EngineMemory& memory, const Action& action, int64_t step)
      : memory_(memory), action_(action), step_(step) {}

  int64_t count(Operand as) const { return action_.count(as); }
  bool has(Operand as) const { return action_.has(as); }

  // Internal error if the action has no such operand.
  std::byte* address(Operand as, int64_t nth = 0) const { return memory_.address(resource(as, nth)); }
  template <class T>
  T* at(Operand as, int64_t nth = 0) const {
    return reinterpret_cast<T*>(address(as, nth));
  }
  std::byte* optional(Operand as) const { return has(as) ? address(as) : nullptr; }  // nullptr: no such operand
  int64_t bytes(Operand as, int64_t nth = 0) const { return memory_.bytes(resource(as, nth)); }

  // The planes of the action's record at this operand: where it lives, or where its state visits. Visiting planes hold
  // only the trained tensors, all indexed by state_offset.
  StatePlanes planes(Operand as, int64_t nth = 0) const { return memory_.planes(action_, resource(as, nth)); }
  bool visits() const { return action_.at(Operand::state).kind == ResourceKind::visiting_state; }
  // The planes that an update on the host works on: the record's, and those that live on disk in their slab.
  StatePlanes planes_to_update() const { return memory_.planes_to_update(action_); }

 private:
  Resource resource(Operand as, int64_t nth) const { return in_step(action_.at(as, nth), step_); }

  const EngineMemory& memory_;
  const Action& action_;
  int64_t step_;
};

}  // namespace megatrain
