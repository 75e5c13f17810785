// Builds a step's list of actions. Its functions are the parts of build_schedule; they share the state of the slots and
// rings in use.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "megatrain/plan/schedule.h"
#include "megatrain/plan/slab_pool.h"
#include "megatrain/plan/slot_rings.h"

namespace megatrain {

inline Access reads(Operand as, Resource resource) { return {as, resource, false}; }
inline Access writes(Operand as, Resource resource) { return {as, resource, true}; }

// A ring of slots for records' weights or for phases' kept outputs. It tracks which record or phase each slot holds as
// the step proceeds, least recently used first.
class WarmSlots {
 public:
  explicit WarmSlots(int64_t slots) : pool_(slots) {}

  // The slot that holds this record or phase; `fetch` is called if it must be brought in first.
  template <class Fetch>
  int64_t hold(int64_t whose, Fetch&& fetch) {
    for (auto entry = warm_.begin(); entry != warm_.end(); ++entry) {
      if (entry->first != whose) continue;
      std::rotate(entry, entry + 1, warm_.end());
      return warm_.back().second.slab();
    }
    if (pool_.empty()) warm_.erase(warm_.begin());
    warm_.emplace_back(whose, pool_.acquire());
    fetch(warm_.back().second.slab());
    return warm_.back().second.slab();
  }

 private:
  SlabPool pool_;
  std::vector<std::pair<int64_t, Lease>> warm_;
};

// Micro-batches of a sweep that go through a phase in one action.
struct Group {
  int64_t first;  // index among the step's micro-batches
  int64_t count;
  int64_t local;  // its index within the sweep
};

class ScheduleBuilder {
 public:
  ScheduleBuilder(const Workload& workload, const Plan& plan, StepMode mode, int64_t groups)
      : w_(workload),
        plan_(plan),
        training_(mode == StepMode::train),
        most_groups_(groups),
        first_trained_(workload.first_trained_phase()),
        slot_rings_(workload),
        slots_{WarmSlots(plan.rings.weight_slots), WarmSlots(plan.rings.small_slots)},
        packed_slots_(plan.rings.packed_slots),
        kept_slots_(plan.rings.output_slots),
        boundary_slots_(plan.rings.input_slots),
        boundary_ring_(plan.rings.activation_slabs),
        out_slabs_(plan.rings.gradients_out),
        host_slabs_(plan.rings.host_gradients),
        moment_slabs_(plan.rings.moment_slabs),
        weight_slabs_(plan.rings.weight_slabs),
        visit_slots_(plan.rings.visit_slots),
        gradient_ring_(plan.rings.gradient_slabs) {}

  std::vector<Action> build();

 private:
  using Kind = ResourceKind;
  using PlaceOf = std::function<Resource(const Group&)>;
  using Written = std::function<void(const Group&)>;

  // Where a phase's input is, from the time the phase below writes it until the phase reads it.
  struct Place {
    Lease lease;  // non-empty: a boundary slot
    int64_t phase = 0;
    Resource resource(const Group& group) const {
      return lease.held() ? Resource{Kind::boundary_slot, lease.slab(), group.local}
                          : Resource{Kind::boundary, phase, group.local};
    }
  };

  // Activations of a phase that leave the device in forward and return for backward.
  struct Away {
    int64_t phase;
    Tier tier;
    Kind on_host, on_disk;
  };

  // Where data that left the device is on the host: in memory of its own, or in a slab that it passes through.
  struct Waiting {
    Lease lease;
    Resource place;
  };

  // build_schedule.cc: the beginning and end of a step
  void add(Lane lane, Action action, std::vector<Access> accesses);
  Action of_phase(ActionKind kind, int64_t phase, const Group& group, int64_t part = 0) const;
  void make_groups(int64_t first, int64_t width);
  void fetch_inputs();
  void finish_losses();
  void report();
  std::vector<Access> all_squares() const;  // a frozen record's sum is always zero
  std::vector<Access> all_router_counts() const;

  // build_forward.cc
  void forward();
  // All parts of a phase. `x` and `y` give the place of a micro-batch's input and output; `written` is called once its
  // output is complete. `repeated`: the phase has already run in this step, so its router's choices have been counted.
  void forward_phase(int64_t phase, const PlaceOf& x, const PlaceOf& y, const Written& written, bool repeated);
  // The operands that every call of a part has: its weights, the inputs, the workspace, the kept activations and the
  // data handed between parts.
  std::vector<Access> of_part(const std::vector<Access>& weights, const Action& action, const Group& group) const;

  void add_shared(const Action& action, std::vector<Access>& accesses, const Group& group) const;

  void fetch(int64_t record, Resource into);                          // in stored form
  void bring(int64_t record, Resource into);                          // in the compute form
  Resource hold_record(int64_t record);                               // its weights on the device
  std::vector<Access> hold_weights(int64_t phase, int64_t part = 0);  // of the records it needs whole
  void add_rows(std::vector<Access>& accesses, int64_t phase) const;  // of the lookup table, if it has one

  bool has_backward(int64_t phase) const { return phase >= first_trained_; }
  // How many phases this one is above the nearest kept input; 0: its own is kept.
  int64_t above_boundary(int64_t phase) const { return plan_.above_boundary(phase, first_trained_); }
  // Whether the phase's input waits for backward on the host or on disk, or is not kept at all.
  bool passes_through_slot(int64_t phase) const {
    return phase < w_.head_phase() &&
           (!has_backward(phase) || above_boundary(phase) > 0 || plan_.phase(phase).input != Tier::hbm);
  }
  Place place_for(int64_t phase);
  void offload_boundary(const Place& place, const Group& group);

  Away input_away(int64_t phase) const {
    return {phase, plan_.phase(phase).input, Kind::host_boundary, Kind::disk_boundary};
  }
  Away kept_away(int64_t phase) const { return {phase, plan_.phase(phase).outputs, Kind::host_kept, Kind::disk_kept}; }
  void offload(const Away& away, const Group& group, Resource from);
  void bring_back(const Away& away, const Group& group, Resource to);
  Waiting on_host(const Away& away, const Group& group);

  // Whether the phase's kept activations wait off the device.
  bool keeps_away(int64_t phase) const {
    return training_ && has_backward(phase) && plan_.phase(phase).outputs != Tier::hbm &&
           w_.kept_bytes(phase, plan_.phase(phase).keep) > 0;
  }
  // Assigns a slot to a phase's kept activations if they wait off the device. `written`: forward has run, so they are
  // fetched back unless they are still in a slot.
  void hold_kept(int64_t phase, bool written);
  void add_kept(const Action& action, std::vector<Access>& accesses, const Group& group) const;
  Resource kept_at(int64_t phase, const Group& group) const {
    return keeps_away(phase) ? Resource{Kind::kept_slot, kept_slot_, group.local}
                             : Resource{Kind::kept, phase, group.local};
  }

  // build_backward.cc
  void head();
  void balance_experts();
  void backward();
  void recompute_parts(int64_t phase, const Place& boundary);  // all that their backward needs, for every micro-batch
  // `from`: the gradient stream that holds the gradient of the phase's output.
  void backward_part(int64_t phase, int64_t part, const Place& boundary, int64_t from);
  // The kept input from which this phase and the ones above it compute; fetched if it waits off the device.
  Place fetch_boundary(int64_t phase);
  // Recomputes the inputs of the phases above a boundary, up to `top`, from it. Router choices are not counted again.
  void recompute(const Place& boundary, int64_t top);
  Resource input_of(int64_t phase, const Place& boundary, const Group& group) const {
    const int64_t above = above_boundary(phase);
    return above > 0 ? Resource{Kind::recomputed, above, group.local} : boundary.resource(group);
  }
  Resource stream(const Group& group) const { return {Kind::gradient_stream, stream_, group.local}; }

  Resource sum_of(int64_t record) const;  // the fp32 sum of its gradient
  void add_sums(std::vector<Access>& accesses, int64_t phase, int64_t part = 0) const;
  // Finishes the gradients of the records whose lowest phase is this one, since no further backward adds to them.
  void leave_phase(int64_t phase, int64_t part = 0);
  // Rounds a summed gradient and sums its squares. Sends it off the device unless the device will use it. If no update
  // waits for the norm, updates the record right away.
  void leave(int64_t record, Resource out);
  // Whether the gradient stays on the device, either until the norm is known or permanently.
  bool stays_on_device(int64_t record) const {
    return !plan_.gradient_leaves(record) || plan_.record(record).gradient == Tier::hbm;
  }
  // The accesses to a gradient that waits on the device: first the one that gives its address, then all else that it
  // overlays. Empty: it does not wait on the device.
  std::vector<Access> waiting_on_device(int64_t record, Operand as, bool write) const;

  // build_update.cc
  // With clipping, visiting states come in during backward. Once the norm is known, all records are updated in the
  // order in which the next step needs them.
  void updates();
  void update_on_host(int64_t record, Resource after, Resource waiting);
  void update_on_device(int64_t record);
  // A visit that takes its turn in a slot: state and gradient come in, and the updated state goes back.
  void visit(int64_t record);
  void return_state(int64_t record, Resource visited);
  // Where a gradient is on the host. With clipping it has memory of its own until the end of the step, or passes
  // through a slab if it waits on disk or on the device. Without clipping, layers take turns in a ring.
  Waiting waiting_of(int64_t record);
  // Fetches a gradient that waited on the device. Its slab must be free first, that is, the host must have updated an
  // earlier layer. A host thread waits for that, because a device queue would fill up with waits and block the actions
  // behind them.
  void collect_waiting(int64_t record, Resource to);

  const Workload& w_;
  const Plan& plan_;
  bool training_;
  int64_t most_groups_;    // per sweep
  int64_t first_trained_;  // phase
  std::vector<Action> actions_;
  SlotRings slot_rings_;
  std::array<WarmSlots, 2> slots_;  // indexed by ring
  SlabPool packed_slots_;
  WarmSlots kept_slots_;
  SlabPool boundary_slots_, boundary_ring_, out_slabs_, host_slabs_, moment_slabs_, weight_slabs_, visit_slots_,
      gradient_ring_;
  std::set<int64_t> resident_;  // records already fetched to memory of their own
  std::vector<Group> groups_;   // of the current sweep
  std::vector<Group> all_groups_;
  int64_t kept_slot_ = -1;  // of the current phase, if its kept activations wait off the device
  int64_t stream_ = 0;      // the gradient stream that holds the gradient of the last phase's input
  bool last_sweep_ = false;
};

}  // namespace megatrain
