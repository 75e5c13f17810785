// Writes a step down: the parts of build_schedule, which share what is held while the actions are listed.
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

// A ring of slots as the step goes by, of records' weights or of phases' kept outputs: whose are in it, least recently
// used first.
class WarmSlots {
 public:
  explicit WarmSlots(int64_t slots) : pool_(slots) {}

  // The slot that holds the record's or the phase's; `fetch` is called when it must be brought in first.
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
  int64_t first;  // of the step's micro-batches
  int64_t count;
  int64_t local;  // its number within the sweep
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

  // Where a phase's input is while the phase below writes it and the phase reads it.
  struct Place {
    Lease lease;  // held: a boundary slot
    int64_t phase = 0;
    Resource resource(const Group& group) const {
      return lease.held() ? Resource{Kind::boundary_slot, lease.slab(), group.local}
                          : Resource{Kind::boundary, phase, group.local};
    }
  };

  // Activations of a phase that leave the device in forward and come back for backward.
  struct Away {
    int64_t phase;
    Tier tier;
    Kind on_host, on_disk;
  };

  // Where something that leaves the device is on the host: in a place of its own, or in a slab that it passes through.
  struct Waiting {
    Lease lease;
    Resource place;
  };

  // build_schedule.cc: what a step begins and ends with
  void add(Lane lane, Action action, std::vector<Access> accesses);
  Action of_phase(ActionKind kind, int64_t phase, const Group& group, int64_t part = 0) const;
  void make_groups(int64_t first, int64_t width);
  void fetch_inputs();
  void finish_losses();
  void report();
  std::vector<Access> all_squares() const;  // a frozen record's sum is zero for ever
  std::vector<Access> all_router_counts() const;

  // build_forward.cc
  void forward();
  // All parts of a phase; `x` and `y` say where a micro-batch's input and output are, `written` is called once its
  // output is there. `again`: it has run before in this step, and what its router chooses has been counted.
  void forward_phase(int64_t phase, const PlaceOf& x, const PlaceOf& y, const Written& written, bool again);
  // What every call of a part has: its weights, the inputs, the workspace, what is kept and what parts hand on.
  std::vector<Access> of_part(const std::vector<Access>& weights, const Action& action, const Group& group) const;

  void add_shared(const Action& action, std::vector<Access>& accesses, const Group& group) const;

  void fetch(int64_t record, Resource into);                          // in their stored form
  void bring(int64_t record, Resource into);                          // in the form that computes
  Resource hold_record(int64_t record);                               // its weights on the device
  std::vector<Access> hold_weights(int64_t phase, int64_t part = 0);  // of the records that it needs whole
  void add_rows(std::vector<Access>& accesses, int64_t phase) const;  // of the table that it looks up

  bool has_backward(int64_t phase) const { return phase >= first_trained_; }
  // Phases above the one whose input waits for its backward; 0: its own does.
  int64_t above_boundary(int64_t phase) const { return plan_.above_boundary(phase, first_trained_); }
  // Its input waits on the host or on disk for backward, or does not wait.
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

  // What the phase keeps waits elsewhere than on the device.
  bool keeps_away(int64_t phase) const {
    return training_ && has_backward(phase) && plan_.phase(phase).outputs != Tier::hbm &&
           w_.kept_bytes(phase, plan_.phase(phase).keep) > 0;
  }
  // Gives what a phase keeps a slot where it waits elsewhere. `written`: forward has run, so it comes back unless it is
  // still there.
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
  void recompute_parts(int64_t phase, const Place& boundary);  // what their backward needs of every micro-batch
  // `from`: the gradient stream that holds the gradient of the phase's output.
  void backward_part(int64_t phase, int64_t part, const Place& boundary, int64_t from);
  // The input that waits for the phases from it on, brought in where it waits elsewhere.
  Place fetch_boundary(int64_t phase);
  // The inputs of the phases above a boundary, up to `top`, computed again from it: nothing is counted twice.
  void recompute(const Place& boundary, int64_t top);
  Resource input_of(int64_t phase, const Place& boundary, const Group& group) const {
    const int64_t above = above_boundary(phase);
    return above > 0 ? Resource{Kind::recomputed, above, group.local} : boundary.resource(group);
  }
  Resource stream(const Group& group) const { return {Kind::gradient_stream, stream_, group.local}; }

  Resource sum_of(int64_t record) const;  // the fp32 sum of its gradient
  void add_sums(std::vector<Access>& accesses, int64_t phase, int64_t part = 0) const;
  // The gradients of the records whose lowest phase this is, which no other backward adds to.
  void leave_phase(int64_t phase, int64_t part = 0);
  // A summed gradient is rounded and normed; carried out, unless the device will use it; and, when no update waits for
  // the norm, used at once.
  void leave(int64_t record, Resource out);
  // A gradient does not leave the device until the norm is known, or for ever.
  bool stays_on_device(int64_t record) const {
    return !plan_.gradient_leaves(record) || plan_.record(record).gradient == Tier::hbm;
  }
  // The gradient where it waits on the device: first its address, then what else it lies over. Empty: it does not wait.
  std::vector<Access> waiting_on_device(int64_t record, Operand as, bool write) const;

  // build_update.cc
  // With clipping: visitors come in during backward, and once the norm is known everything is updated, first needed
  // first.
  void updates();
  void update_on_host(int64_t record, Resource after, Resource waiting);
  void update_on_device(int64_t record);
  // A visit that takes its turn: state and gradient come into a slot, and the state goes back updated.
  void visit(int64_t record);
  void return_state(int64_t record, Resource visited);
  // Where a gradient is on the host. With clipping it has a place of its own until the end of the step, or passes
  // through where it waits elsewhere; without, layers take turns in a ring.
  Waiting waiting_of(int64_t record);
  // A gradient that has waited on the device. It goes when the slab that it passes through is free, which is when the
  // host has updated an earlier layer: a thread of the host waits for that, where a queue of the device would fill up
  // with waits and stop what comes behind it.
  void collect_waiting(int64_t record, Resource to);

  const Workload& w_;
  const Plan& plan_;
  bool training_;
  int64_t most_groups_;    // of a sweep
  int64_t first_trained_;  // phase
  std::vector<Action> actions_;
  SlotRings slot_rings_;
  std::array<WarmSlots, 2> slots_;  // by ring
  SlabPool packed_slots_;
  WarmSlots kept_slots_;
  SlabPool boundary_slots_, boundary_ring_, out_slabs_, host_slabs_, moment_slabs_, weight_slabs_, visit_slots_,
      gradient_ring_;
  std::set<int64_t> resident_;  // records already fetched to their own place
  std::vector<Group> groups_;   // of the sweep
  std::vector<Group> all_groups_;
  int64_t kept_slot_ = -1;  // of the phase at hand, where what it keeps waits elsewhere
  int64_t stream_ = 0;      // the gradient stream that holds the gradient of the last phase's input
  bool last_sweep_ = false;
};

}  // namespace megatrain
