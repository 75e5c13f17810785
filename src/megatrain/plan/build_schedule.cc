// Writes a step down as one sequential order of actions; derive_waits makes it concurrent.
//
//   forward    gather and fetch the touched embedding rows; for each phase: fetch, then every micro-batch of the sweep
//   turn       head: loss and gradient of every micro-batch; the last records are still in their slots. The loss that
//              balances experts turns what forward counted into slopes for backward
//   backward   for each phase in reverse: fetch unless still there, every micro-batch, round the gradients, let them
//              leave. Where only every k-th input waits, the phases above one run forward again first.
//              A phase in parts does so part by part, from the last to the first, once every micro-batch has made again
//              what they need.
//              Inputs and kept outputs that wait on the host or on disk leave in forward as each is written, and come
//              back through rings of slots
//   update     with clipping: all records in forward order once the norm is known, so that the next step's fetches
//              follow close behind (the update frontier); without: each record as its gradient arrives.
//              What lives on the device or visits it is updated there, on the compute lane; visits that take turns in
//              slots have lanes of their own, so that the next step begins beside them.
//              Moments that live on disk are in a slab of a ring from their reading to their writing, and with them
//              weights and low bits that live there; a fetch of such weights stages them in a ring of its own first.
//              Gradients that wait on disk or on the device pass through a ring likewise.
//
// Backward ends at the lowest phase that has a trained record. What is frozen has no gradient, so nothing of it leaves
// or is updated.
#include <algorithm>
#include <set>

#include "megatrain/plan/check_plan.h"
#include "megatrain/plan/inventory.h"
#include "megatrain/plan/order.h"
#include "megatrain/plan/schedule.h"
#include "megatrain/plan/slab_pool.h"

namespace megatrain {

namespace {

using Kind = ResourceKind;

Access reads(Operand as, Resource resource) { return {as, resource, false}; }
Access writes(Operand as, Resource resource) { return {as, resource, true}; }

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

class Builder {
 public:
  Builder(const Workload& workload, const Plan& plan, StepMode mode, int64_t groups)
      : w_(workload),
        plan_(plan),
        training_(mode == StepMode::train),
        most_groups_(groups),
        first_trained_(workload.first_trained_phase()),
        slots_(plan.rings.weight_slots),
        kept_slots_(plan.rings.output_slots),
        boundary_slots_(plan.rings.input_slots),
        boundary_ring_(plan.rings.activation_slabs),
        out_slabs_(plan.rings.gradients_out),
        host_slabs_(plan.rings.host_gradients),
        moment_slabs_(plan.rings.moment_slabs),
        weight_slabs_(plan.rings.weight_slabs),
        visit_slots_(plan.rings.visit_slots),
        gradient_ring_(plan.rings.gradient_slabs) {}

  std::vector<Action> build() {
    fetch_inputs();
    int64_t first = 0;
    for (size_t sweep = 0; sweep < plan_.sweeps.size(); ++sweep) {
      last_sweep_ = sweep + 1 == plan_.sweeps.size();
      make_groups(first, plan_.sweeps[sweep]);
      forward();
      head();
      if (training_ && w_.aux_loss > 0) balance_experts();
      if (training_) backward();
      first += plan_.sweeps[sweep];
    }
    finish_losses();
    report();
    if (training_ && w_.clip) updates();
    return std::move(actions_);
  }

 private:
  void add(Lane lane, Action action, std::vector<Access> accesses) {
    action.lane = lane;
    action.accesses = std::move(accesses);
    actions_.push_back(std::move(action));
  }

  void make_groups(int64_t first, int64_t width) {
    const int64_t groups = std::min(width, most_groups_);
    groups_.clear();
    for (int64_t local = 0; local < groups; ++local) {
      const int64_t begin = width * local / groups, end = width * (local + 1) / groups;
      groups_.push_back({first + begin, end - begin, local});
    }
    all_groups_.insert(all_groups_.end(), groups_.begin(), groups_.end());
  }

  Action of_phase(ActionKind kind, int64_t phase, const Group& group, int64_t part = 0) const {
    return {.kind = kind,
            .phase = phase,
            .part = part,
            .record = w_.phase(phase).records_of(part).front(),
            .micro_batch = group.first,
            .micro_batches = group.count};
  }

  void fetch_inputs() {
    add(Lane::h2d, {.kind = ActionKind::fetch_inputs},
        {reads(Operand::from, {Kind::staged_inputs}), writes(Operand::to, {Kind::inputs})});
    if (plan_.state_on_device(0)) return;
    std::vector<Access> accesses = {writes(Operand::to, {Kind::staged_rows}),
                                    {Operand::from, {Kind::record_weights, 0}, w_.is_trained(0)}};
    if (w_.is_trained(0)) accesses.push_back(writes(Operand::state, {Kind::record_state, 0}));  // deferred row updates
    add(Lane::gather, {.kind = ActionKind::gather_rows, .record = 0}, std::move(accesses));
    add(Lane::h2d, {.kind = ActionKind::fetch_rows, .record = 0},
        {reads(Operand::from, {Kind::staged_rows}), writes(Operand::to, {Kind::device_rows})});
  }

  // Where a phase's input is while the phase below writes it and the phase reads it.
  struct Place {
    Lease lease;  // held: a boundary slot
    int64_t phase = 0;
    Resource resource(const Group& group) const {
      return lease.held() ? Resource{Kind::boundary_slot, lease.slab(), group.local}
                          : Resource{Kind::boundary, phase, group.local};
    }
  };

  bool has_backward(int64_t phase) const { return phase >= first_trained_; }

  // Phases above the one whose input waits for its backward; 0: its own does.
  int64_t above_boundary(int64_t phase) const { return plan_.above_boundary(phase, first_trained_); }

  // Its input waits on the host or on disk for backward, or does not wait.
  bool passes_through_slot(int64_t phase) const {
    return phase < w_.head_phase() &&
           (!has_backward(phase) || above_boundary(phase) > 0 || plan_.phase(phase).input != Tier::hbm);
  }

  Place place_for(int64_t phase) {
    Place place;
    place.phase = phase;
    if (passes_through_slot(phase)) place.lease = boundary_slots_.acquire();
    return place;
  }

  void offload_boundary(const Place& place, const Group& group) {
    if (!training_ || !place.lease.held() || !has_backward(place.phase) || above_boundary(place.phase) > 0) return;
    offload(input_away(place.phase), group, place.resource(group));
  }

  // Activations of a phase that leave the device in forward and come back for backward.
  struct Away {
    int64_t phase;
    Tier tier;
    Kind on_host, on_disk;
  };
  Away input_away(int64_t phase) const {
    return {phase, plan_.phase(phase).input, Kind::host_boundary, Kind::disk_boundary};
  }
  Away kept_away(int64_t phase) const { return {phase, plan_.outputs_of(phase), Kind::host_kept, Kind::disk_kept}; }

  void offload(const Away& away, const Group& group, Resource from) {
    const Waiting waiting = on_host(away, group);
    add(Lane::d2h, of_phase(ActionKind::offload_activations, away.phase, group),
        {reads(Operand::from, from), writes(Operand::to, waiting.place)});
    if (away.tier != Tier::disk) return;
    add(Lane::disk_write, of_phase(ActionKind::store_activations, away.phase, group),
        {reads(Operand::from, waiting.place), writes(Operand::to, {away.on_disk, away.phase, group.first})});
  }

  void bring_back(const Away& away, const Group& group, Resource to) {
    const Waiting waiting = on_host(away, group);
    if (away.tier == Tier::disk) {
      add(Lane::disk_read, of_phase(ActionKind::read_activations, away.phase, group),
          {reads(Operand::from, {away.on_disk, away.phase, group.first}), writes(Operand::to, waiting.place)});
    }
    add(Lane::h2d, of_phase(ActionKind::fetch_activations, away.phase, group),
        {reads(Operand::from, waiting.place), writes(Operand::to, to)});
  }

  // Where something that leaves the device is on the host: in a place of its own, or in a slab that it passes through.
  struct Waiting {
    Lease lease;
    Resource place;
  };
  Waiting on_host(const Away& away, const Group& group) {
    if (away.tier == Tier::host) return {Lease(), {away.on_host, away.phase, group.first}};
    Lease lease = boundary_ring_.acquire();
    const Resource slab{Kind::boundary_slab, lease.slab()};
    return {std::move(lease), slab};
  }

  void fetch(int64_t record, Resource into) {
    Resource from{Kind::record_weights, record};
    Lease lease;
    if (plan_.weights_on_disk(record)) {
      lease = weight_slabs_.acquire();
      from = {Kind::weight_slab, lease.slab()};
      add(Lane::disk_read, {.kind = ActionKind::stage_weights, .record = record},
          {reads(Operand::from, {Kind::disk_weights, record}), writes(Operand::to, from)});
    }
    add(Lane::h2d, {.kind = ActionKind::fetch_weights, .record = record},
        {reads(Operand::from, from), writes(Operand::to, into)});
  }

  // A record's weights on the device.
  Resource hold_record(int64_t record) {
    if (plan_.state_on_device(record)) return {Kind::record_weights, record};
    Resource at{Kind::resident_weights, record};
    if (!w_.is_layer_record(record)) at.kind = Kind::head_slot;
    if (w_.is_layer_record(record) && plan_.streams(record))
      return {Kind::weight_slot, slots_.hold(record, [&](int64_t slot) { fetch(record, {Kind::weight_slot, slot}); })};
    if (resident_.insert(record).second) fetch(record, at);
    return at;
  }

  std::vector<Access> hold_weights(int64_t phase, int64_t part = 0) {
    std::vector<Access> accesses;
    for (const int64_t record : w_.phase(phase).records_of(part))
      accesses.push_back(reads(Operand::weights, hold_record(record)));
    return accesses;
  }

  // What every call of a part has: its weights, the inputs, the workspace, what is kept and what parts hand on.
  std::vector<Access> of_part(const std::vector<Access>& weights, Action& action, const Group& group) const {
    std::vector<Access> accesses = weights;
    accesses.push_back(reads(Operand::inputs, {Kind::inputs}));
    accesses.push_back(writes(Operand::workspace, {Kind::workspace}));
    if (w_.phase(action.phase).in_parts())
      accesses.push_back(writes(Operand::carried, {Kind::carried, 0, group.local}));
    add_kept(action, accesses, group);
    return accesses;
  }

  // All parts of a phase; `x` and `y` say where a micro-batch's input and output are, `written` is called once its
  // output is there. `again`: it has run before in this step, and what its router chooses has been counted.
  template <class X, class Y, class Written>
  void forward_phase(int64_t phase, const X& x, const Y& y, const Written& written, bool again) {
    const int64_t last = w_.phase(phase).part_count() - 1;
    hold_kept(phase, again);
    for (int64_t part = 0; part <= last; ++part) {
      const std::vector<Access> weights = hold_weights(phase, part);
      for (const Group& group : groups_) {
        Action action = of_phase(ActionKind::forward, phase, group, part);
        action.again = again;
        std::vector<Access> accesses = of_part(weights, action, group);
        if (part == 0) accesses.push_back(reads(Operand::x, x(group)));
        if (part == 0 && training_ && !again && w_.phase(phase).router_bytes > 0)
          accesses.push_back(writes(Operand::router_counts, {Kind::router_counts, phase}));
        if (part == last) accesses.push_back(writes(Operand::y, y(group)));
        add(Lane::compute, std::move(action), std::move(accesses));
        if (part == last && !again && keeps_away(phase)) offload(kept_away(phase), group, kept_at(phase, group));
        if (part == last) written(group);
      }
    }
  }

  void forward() {
    Place in = place_for(1);
    for (const Group& group : groups_) {
      const Resource rows = plan_.state_on_device(0) ? Resource{Kind::record_weights, 0} : Resource{Kind::device_rows};
      add(Lane::compute, of_phase(ActionKind::embed_forward, 0, group),
          {reads(Operand::rows, rows), reads(Operand::inputs, {Kind::inputs}), writes(Operand::y, in.resource(group))});
      offload_boundary(in, group);
    }
    for (int64_t phase = 1; phase < w_.head_phase(); ++phase) {
      Place out = place_for(phase + 1);
      forward_phase(
          phase, [&](const Group& group) { return in.resource(group); },
          [&](const Group& group) { return out.resource(group); },
          [&](const Group& group) { offload_boundary(out, group); }, false);
      in = std::move(out);
    }
  }

  void add_kept(Action& action, std::vector<Access>& accesses, const Group& group) const {
    if (!training_ || !has_backward(action.phase)) return;
    action.keep = plan_.phase(action.phase).keep;
    if (w_.phase(action.phase).kept_bytes[static_cast<size_t>(action.keep)] > 0)
      accesses.push_back(writes(Operand::kept, kept_at(action.phase, group)));
  }

  // What the phase keeps waits elsewhere than on the device.
  bool keeps_away(int64_t phase) const {
    return training_ && has_backward(phase) && plan_.outputs_of(phase) != Tier::hbm && w_.output_bytes(phase) > 0;
  }

  // Gives what a phase keeps a slot where it waits elsewhere. `written`: forward has run, so it comes back unless it is
  // still there.
  void hold_kept(int64_t phase, bool written) {
    if (!keeps_away(phase)) return;
    kept_slot_ = kept_slots_.hold(phase, [&](int64_t slot) {
      if (!written) return;
      for (const Group& group : groups_) bring_back(kept_away(phase), group, {Kind::kept_slot, slot, group.local});
    });
  }

  Resource kept_at(int64_t phase, const Group& group) const {
    return keeps_away(phase) ? Resource{Kind::kept_slot, kept_slot_, group.local}
                             : Resource{Kind::kept, phase, group.local};
  }

  // The gradient's fp32 sum of a record.
  Resource sum_of(int64_t record) const {
    if (w_.is_layer_record(record)) return gradient_sum_of(w_, plan_, record);
    if (record == 0 && !w_.tied) return {Kind::row_gradient_sum};
    return {Kind::head_gradient_sum, record};
  }

  // The gradient where it waits on the device: first its address, then what else it lies over. Empty: it does not wait.
  std::vector<Access> waiting_on_device(int64_t record, Operand as, bool write) const {
    const std::optional<Resource> place = waiting_gradient_of(w_, plan_, record);
    const int64_t widest = *std::max_element(plan_.sweeps.begin(), plan_.sweeps.end());
    const int64_t parts = place && place->kind == Kind::boundary ? std::min(widest, most_groups_) : 1;
    std::vector<Access> accesses;
    for (int64_t b = 0; place && b < parts; ++b) accesses.push_back({as, {place->kind, place->a, b}, write});
    return accesses;
  }
  // Until the norm is known, or for ever.
  bool stays_on_device(int64_t record) const {
    return !plan_.gradient_leaves(record) || plan_.record(record).gradient == Tier::hbm;
  }

  void add_sums(std::vector<Access>& accesses, int64_t phase, int64_t part = 0) const {
    for (const int64_t record : w_.phase(phase).records_of(part)) {
      if (w_.is_trained(record)) accesses.push_back(writes(Operand::sum, sum_of(record)));
    }
  }

  Resource stream(const Group& group) const { return {Kind::gradient_stream, stream_, group.local}; }

  void head() {
    const int64_t phase = w_.head_phase();
    stream_ = 0;
    const std::vector<Access> weights = hold_weights(phase);
    for (const Group& group : groups_) {
      std::vector<Access> accesses = weights;
      accesses.insert(
          accesses.end(),
          {reads(Operand::x, {Kind::boundary, phase, group.local}), reads(Operand::inputs, {Kind::inputs}),
           writes(Operand::losses, {Kind::losses, 0, group.first}),
           writes(Operand::correct, {Kind::correct, 0, group.first}), writes(Operand::workspace, {Kind::workspace})});
      if (training_) {
        accesses.push_back(writes(Operand::grad_x, stream(group)));
        add_sums(accesses, phase);
      }
      add(Lane::compute, of_phase(ActionKind::head, phase, group), std::move(accesses));
    }
    if (training_ && last_sweep_ && w_.is_trained(w_.head_record()))
      leave(w_.head_record(), {Kind::head_gradient_out, w_.head_record()});
  }

  std::vector<Access> all_router_counts() const {
    std::vector<Access> accesses;
    for (int64_t phase = 1; phase < w_.head_phase(); ++phase) {
      if (w_.phase(phase).router_bytes > 0)
        accesses.push_back(reads(Operand::router_counts, {Kind::router_counts, phase}));
    }
    return accesses;
  }

  void balance_experts() {
    std::vector<Access> accesses = all_router_counts();
    accesses.push_back(writes(Operand::router_slopes, {Kind::router_slopes}));
    add(Lane::compute, {.kind = ActionKind::balance_experts}, std::move(accesses));
  }

  // The inputs of the phases above a boundary, up to `top`, computed again from it: nothing is counted twice.
  void recompute(const Place& boundary, int64_t top) {
    for (int64_t phase = boundary.phase; phase < top; ++phase) {
      forward_phase(
          phase, [&](const Group& group) { return input_of(phase, boundary, group); },
          [&](const Group& group) {
            return Resource{Kind::recomputed, above_boundary(phase + 1), group.local};
          },
          [](const Group&) {}, true);
    }
  }

  Resource input_of(int64_t phase, const Place& boundary, const Group& group) const {
    const int64_t above = above_boundary(phase);
    return above > 0 ? Resource{Kind::recomputed, above, group.local} : boundary.resource(group);
  }

  // The input that waits for the phases from it on, brought in where it waits elsewhere.
  Place fetch_boundary(int64_t phase) {
    Place place = place_for(phase);
    for (const Group& group : groups_) {
      if (place.lease.held()) bring_back(input_away(phase), group, place.resource(group));
    }
    return place;
  }

  void backward() {
    Place boundary;  // of the phases at hand
    const int64_t top = w_.head_phase() - 1;
    for (int64_t phase = top; phase >= std::max<int64_t>(1, first_trained_); --phase) {
      const int64_t above = above_boundary(phase);
      if (phase == top || above == plan_.input_every - 1) {
        boundary = Place();
        boundary = fetch_boundary(phase - above);
        recompute(boundary, phase);
      }
      hold_kept(phase, true);
      if (w_.phase(phase).in_parts()) recompute_parts(phase, boundary);
      const int64_t from = stream_;
      if (w_.phase(phase).width != w_.phase(phase + 1).width) stream_ = 1 - stream_;
      for (int64_t part = w_.phase(phase).part_count() - 1; part >= 0; --part)
        backward_part(phase, part, boundary, from);
    }
    if (w_.is_trained(0)) embed_backward();
  }

  // What the parts' backward needs of every micro-batch.
  void recompute_parts(int64_t phase, const Place& boundary) {
    const std::vector<Access> weights = hold_weights(phase);
    for (const Group& group : groups_) {
      Action action = of_phase(ActionKind::recompute, phase, group);
      std::vector<Access> accesses = of_part(weights, action, group);
      accesses.push_back(reads(Operand::x, input_of(phase, boundary, group)));
      add(Lane::compute, std::move(action), std::move(accesses));
    }
  }

  // `from`: the gradient stream that holds the gradient of the phase's output.
  void backward_part(int64_t phase, int64_t part, const Place& boundary, int64_t from) {
    const std::vector<Access> weights = hold_weights(phase, part);
    for (const Group& group : groups_) {
      Action action = of_phase(ActionKind::backward, phase, group, part);
      std::vector<Access> accesses = of_part(weights, action, group);
      accesses.push_back(reads(Operand::grad_y, {Kind::gradient_stream, from, group.local}));
      if (part == 0) {
        accesses.push_back(reads(Operand::x, input_of(phase, boundary, group)));
        accesses.push_back(writes(Operand::grad_x, stream(group)));
        if (w_.aux_loss > 0 && w_.phase(phase).router_bytes > 0)
          accesses.push_back(reads(Operand::router_slopes, {Kind::router_slopes}));
      }
      add_sums(accesses, phase, part);
      add(Lane::compute, std::move(action), std::move(accesses));
    }
    if (!last_sweep_) return;
    for (const int64_t record : w_.phase(phase).records_of(part)) {
      if (!w_.is_trained(record)) continue;
      const Lease out = stays_on_device(record) ? Lease() : out_slabs_.acquire();
      leave(record, {Kind::gradient_out, out.held() ? out.slab() : -1});
    }
  }

  void embed_backward() {
    const Resource rows{Kind::row_gradient_sum};
    for (const Group& group : groups_) {
      add(Lane::compute, of_phase(ActionKind::embed_backward, 0, group),
          {reads(Operand::grad_y, stream(group)), reads(Operand::inputs, {Kind::inputs}), writes(Operand::sum, rows)});
    }
    if (!last_sweep_) return;
    // tied: rows join the table's gradient once all micro-batches of both are summed, so that sweeps change no bit
    if (w_.tied) {
      add(Lane::compute, {.kind = ActionKind::merge_rows, .record = 0},
          {reads(Operand::rows, rows), reads(Operand::inputs, {Kind::inputs}), writes(Operand::sum, sum_of(0))});
    }
    leave(0, w_.tied ? Resource{Kind::head_gradient_out, 0} : Resource{Kind::row_gradient_out});
  }

  // A summed gradient is rounded and normed; carried out, unless the device will use it; and, when no update waits for
  // the norm, used at once.
  void leave(int64_t record, Resource out) {
    const Resource sum = sum_of(record), squares{Kind::squares, record};
    std::vector<Access> accesses = {reads(Operand::sum, sum), writes(Operand::partials, {Kind::norm_partials}),
                                    writes(Operand::squares, squares)};
    if (stays_on_device(record)) {
      const std::vector<Access> waiting = waiting_on_device(record, Operand::rounded, true);
      accesses.insert(accesses.end(), waiting.begin(), waiting.end());
      add(Lane::compute, {.kind = ActionKind::finish_gradient, .record = record}, std::move(accesses));
      if (w_.clip) return;
      add(Lane::compute, {.kind = ActionKind::clip_factor, .record = record},
          {reads(Operand::squares, squares), writes(Operand::clip, {Kind::clip})});
      update_on_device(record);
      return;
    }
    accesses.push_back(writes(Operand::rounded, out));
    add(Lane::compute, {.kind = ActionKind::finish_gradient, .record = record}, std::move(accesses));
    const Waiting waiting = waiting_of(record);
    add(Lane::d2h, {.kind = ActionKind::offload_gradient, .record = record},
        {reads(Operand::from, out), reads(Operand::squares, squares), writes(Operand::to, waiting.place),
         writes(Operand::to, {Kind::host_squares, record})});
    if (plan_.gradient_on_disk(record)) {
      add(Lane::disk_write, {.kind = ActionKind::store_gradient, .record = record},
          {reads(Operand::from, waiting.place), writes(Operand::to, {Kind::disk_gradient, record})});
    }
    if (!w_.clip) update_on_host(record, {Kind::host_squares, record}, waiting.place);
  }

  // Where a gradient is on the host. With clipping it has a place of its own until the end of the step, or passes
  // through where it waits elsewhere; without, layers take turns in a ring.
  Waiting waiting_of(int64_t record) {
    if (!w_.is_layer_record(record)) return {Lease(), {Kind::host_record_gradient, record}};
    if (w_.clip && plan_.record(record).gradient == Tier::host) return {Lease(), {Kind::host_gradient, record}};
    Lease lease = (w_.clip ? gradient_ring_ : host_slabs_).acquire();
    const Resource place{w_.clip ? Kind::gradient_slab : Kind::host_gradient, lease.slab()};
    return {std::move(lease), place};
  }

  void update_on_host(int64_t record, Resource after, Resource waiting) {
    std::vector<Access> accesses = {reads(Operand::after, after), reads(Operand::from, waiting)};
    if (!plan_.weights_on_disk(record)) {
      accesses.push_back(writes(Operand::weights, {Kind::record_weights, record}));
      accesses.push_back(writes(Operand::state, {Kind::record_state, record}));
    }
    if (!plan_.moments_on_disk(record)) {
      add(Lane::update, {.kind = ActionKind::update, .record = record}, std::move(accesses));
      return;
    }
    const Lease lease = moment_slabs_.acquire();
    const Resource slab{Kind::moment_slab, lease.slab()};
    std::vector<Access> in = {writes(Operand::to, slab)}, out = {reads(Operand::from, slab)};
    for (const Kind kind : {Kind::disk_weights, Kind::disk_low_bits, Kind::disk_moments}) {  // as they lie in the slab
      if (kind != Kind::disk_moments && !plan_.weights_on_disk(record)) continue;
      if (kind == Kind::disk_low_bits && w_.low_bytes(record) == 0) continue;
      in.push_back(reads(Operand::from, {kind, record}));
      out.push_back(writes(Operand::to, {kind, record}));
    }
    add(Lane::disk_read, {.kind = ActionKind::fetch_moments, .record = record}, std::move(in));
    accesses.push_back(writes(Operand::moments, slab));
    add(Lane::update, {.kind = ActionKind::update, .record = record}, std::move(accesses));
    add(Lane::disk_write, {.kind = ActionKind::return_moments, .record = record}, std::move(out));
  }

  void update_on_device(int64_t record) {
    std::vector<Access> accesses = waiting_on_device(record, Operand::rounded, false);
    if (accesses.empty()) accesses.push_back(reads(Operand::sum, sum_of(record)));
    accesses.insert(accesses.end(), {reads(Operand::clip, {Kind::clip}), reads(Operand::inputs, {Kind::inputs})});
    if (plan_.visiting(record)) {
      accesses.push_back(writes(Operand::state, {Kind::visiting_state, record}));
    } else {
      accesses.push_back(writes(Operand::state, {Kind::record_state, record}));
      accesses.push_back(writes(Operand::weights, {Kind::record_weights, record}));
    }
    add(Lane::compute, {.kind = ActionKind::update_on_device, .record = record}, std::move(accesses));
  }

  // With clipping: visitors come in during backward, and once the norm is known everything is updated, first needed
  // first.
  void updates() {
    bool any = false;
    for (int64_t record = 0; record < w_.record_count(); ++record) {
      any |= w_.is_trained(record) && plan_.updated_on_device(record);
      if (!plan_.visiting(record) || plan_.takes_turns(record)) continue;
      add(Lane::h2d, {.kind = ActionKind::fetch_state, .record = record},
          {reads(Operand::from, {Kind::record_weights, record}), reads(Operand::from, {Kind::record_state, record}),
           writes(Operand::to, {Kind::visiting_state, record})});
    }
    if (any) {
      std::vector<Access> accesses = all_squares();
      accesses.push_back(writes(Operand::clip, {Kind::clip}));
      add(Lane::compute, {.kind = ActionKind::clip_factor}, std::move(accesses));
    }
    for (int64_t record = 0; record < w_.record_count(); ++record) {
      if (!w_.is_trained(record)) continue;
      if (!plan_.updated_on_device(record)) {
        const Waiting waiting = waiting_of(record);
        if (plan_.record(record).gradient == Tier::hbm) collect_waiting(record, waiting.place);
        if (plan_.gradient_on_disk(record)) {
          add(Lane::disk_read, {.kind = ActionKind::fetch_gradient, .record = record},
              {reads(Operand::from, {Kind::disk_gradient, record}), writes(Operand::to, waiting.place)});
        }
        update_on_host(record, {Kind::host_report}, waiting.place);
        continue;
      }
      if (plan_.takes_turns(record)) {
        visit(record);
        continue;
      }
      update_on_device(record);
      if (plan_.visiting(record)) return_state(record, {Kind::visiting_state, record});
    }
  }

  void return_state(int64_t record, Resource visited) {
    add(Lane::d2h, {.kind = ActionKind::return_state, .record = record},
        {reads(Operand::from, visited), writes(Operand::to, {Kind::record_weights, record}),
         writes(Operand::to, {Kind::record_state, record})});
  }

  // A visit that takes its turn: state and gradient come into a slot, and the state goes back updated.
  void visit(int64_t record) {
    const Lease lease = visit_slots_.acquire();
    const Resource state{Kind::visiting_state, lease.slab()}, gradient{Kind::visiting_gradient, lease.slab()};
    add(Lane::visit_in, {.kind = ActionKind::fetch_state, .record = record},
        {reads(Operand::from, {Kind::record_weights, record}), reads(Operand::from, {Kind::record_state, record}),
         reads(Operand::from, {Kind::host_gradient, record}), writes(Operand::to, state),
         writes(Operand::to, gradient)});
    add(Lane::visit, {.kind = ActionKind::update_on_device, .record = record},
        {reads(Operand::rounded, gradient), reads(Operand::clip, {Kind::clip}), writes(Operand::state, state)});
    return_state(record, state);
  }

  // A gradient that has waited on the device. It goes when the slab that it passes through is free, which is when the
  // host has updated an earlier layer: a thread of the host waits for that, where a queue of the device would fill up
  // with waits and stop what comes behind it.
  void collect_waiting(int64_t record, Resource to) {
    std::vector<Access> accesses = waiting_on_device(record, Operand::from, false);
    accesses.push_back(writes(Operand::to, to));
    add(Lane::collect, {.kind = ActionKind::collect_gradient, .record = record}, std::move(accesses));
  }

  // A frozen record's sum is zero for ever.
  std::vector<Access> all_squares() const {
    std::vector<Access> accesses;
    for (int64_t record = 0; record < w_.record_count(); ++record)
      accesses.push_back(reads(Operand::squares, {Kind::squares, record}));
    return accesses;
  }

  void finish_losses() {
    std::vector<Access> accesses = {writes(Operand::loss_sums, {Kind::loss_sums})};
    for (const Group& group : all_groups_) {
      accesses.push_back(reads(Operand::losses, {Kind::losses, 0, group.first}));
      accesses.push_back(reads(Operand::correct, {Kind::correct, 0, group.first}));
    }
    add(Lane::compute, {.kind = ActionKind::finish_losses}, std::move(accesses));
  }

  void report() {
    std::vector<Access> accesses = all_squares();
    accesses.push_back(reads(Operand::loss_sums, {Kind::loss_sums}));
    if (training_) {
      const std::vector<Access> counts = all_router_counts();
      accesses.insert(accesses.end(), counts.begin(), counts.end());
    }
    accesses.push_back(writes(Operand::to, {Kind::host_report}));
    add(Lane::d2h, {.kind = ActionKind::report}, std::move(accesses));
  }

  const Workload& w_;
  const Plan& plan_;
  bool training_;
  int64_t most_groups_;    // of a sweep
  int64_t first_trained_;  // phase
  std::vector<Action> actions_;
  WarmSlots slots_, kept_slots_;
  SlabPool boundary_slots_, boundary_ring_, out_slabs_, host_slabs_, moment_slabs_, weight_slabs_, visit_slots_,
      gradient_ring_;
  std::set<int64_t> resident_;  // records already fetched to their own place
  std::vector<Group> groups_;   // of the sweep
  std::vector<Group> all_groups_;
  int64_t kept_slot_ = -1;  // of the phase at hand, where what it keeps waits elsewhere
  int64_t stream_ = 0;      // the gradient stream that holds the gradient of the last phase's input
  bool last_sweep_ = false;
};

}  // namespace

Schedule build_schedule(const Workload& workload, const Plan& plan, StepMode mode) {
  check_plan(workload, plan);
  Schedule schedule{.actions = Builder(workload, plan, mode, workload.micro_batches).build(),
                    .training = mode == StepMode::train};
  derive_waits(schedule.actions, plan.serial);
  return schedule;
}

std::vector<Action> grouped_actions(const Workload& workload, const Plan& plan, int64_t groups) {
  return Builder(workload, plan, StepMode::train, groups).build();
}

}  // namespace megatrain
