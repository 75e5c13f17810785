// Writes a step down as one sequential order of actions; derive_waits makes it concurrent.
//
//   forward    gather and fetch the touched embedding rows; for each block: fetch, then every micro-batch of the sweep
//   turn       head: loss and gradient of every micro-batch; the last blocks' weights are still in their slots
//   backward   for each block in reverse: fetch unless still there, every micro-batch, round the gradient, let it leave
//   update     with clipping: all records in forward order once the norm is known, so that the next step's fetches
//              follow close behind (the update frontier); without: each record as its gradient arrives.
//              What lives on the device or visits it is updated there, on the compute lane.
//
// Backward ends at the lowest trained record. What is frozen has no gradient, so nothing of it leaves or is updated.
#include <algorithm>
#include <set>

#include "megatrain/engine/order.h"
#include "megatrain/engine/schedule.h"
#include "megatrain/plan/gradient_slabs.h"
#include "megatrain/store/slab_pool.h"

namespace megatrain {

namespace {

Access reads(ResourceKind kind, int64_t a = 0, int64_t b = 0) { return {{kind, a, b}, false}; }
Access writes(ResourceKind kind, int64_t a = 0, int64_t b = 0) { return {{kind, a, b}, true}; }

// The ring of weight slots as the step goes by: which blocks are in it, least recently used first.
class WarmSlots {
 public:
  explicit WarmSlots(int64_t slots) : pool_(slots) {}

  // The slot that holds the block; `fetch` is called when it must be brought in first.
  template <class Fetch>
  int64_t hold(int64_t block, Fetch&& fetch) {
    for (auto entry = warm_.begin(); entry != warm_.end(); ++entry) {
      if (entry->first != block) continue;
      auto used = std::move(*entry);
      warm_.erase(entry);
      warm_.push_back(std::move(used));
      return warm_.back().second.slab();
    }
    if (pool_.empty()) warm_.erase(warm_.begin());
    warm_.emplace_back(block, pool_.acquire());
    fetch(warm_.back().second.slab());
    return warm_.back().second.slab();
  }

 private:
  SlabPool pool_;
  std::vector<std::pair<int64_t, Lease>> warm_;
};

class Builder {
 public:
  Builder(const Workload& workload, const Plan& plan, StepMode mode)
      : w_(workload),
        plan_(plan),
        training_(mode == StepMode::train),
        first_trained_(workload.first_trained()),
        sums_(gradient_sums(workload, plan)),
        waiting_(waiting_gradients(workload, plan)),
        slots_(plan.slots),
        boundary_slots_(plan.boundary_slots),
        out_slabs_(plan.gradient_slabs),
        host_slabs_(plan.host_gradient_slabs) {}

  std::vector<Action> build() {
    add(Lane::h2d, {.kind = ActionKind::fetch_inputs}, {writes(ResourceKind::inputs)});
    if (!plan_.state_on_device(0)) {
      std::vector<Access> accesses = {writes(ResourceKind::staged_rows)};
      if (w_.is_trained(0)) {  // updates put off are made up
        accesses.push_back(writes(ResourceKind::record_weights, 0));
        accesses.push_back(writes(ResourceKind::record_state, 0));
      } else {
        accesses.push_back(reads(ResourceKind::record_weights, 0));
      }
      add(Lane::gather, {.kind = ActionKind::gather_rows, .record = 0}, std::move(accesses));
      add(Lane::h2d, {.kind = ActionKind::fetch_rows, .record = 0},
          {reads(ResourceKind::staged_rows), writes(ResourceKind::device_rows)});
    }
    for (size_t sweep = 0; sweep < plan_.sweeps.size(); ++sweep) {
      last_sweep_ = sweep + 1 == plan_.sweeps.size();
      end_ = begin_ + plan_.sweeps[sweep];
      forward();
      head();
      if (training_) backward();
      begin_ = end_;
    }
    add(Lane::compute, {.kind = ActionKind::finish_losses}, all_losses());
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

  // Where block b's input is while block b - 1 writes it and block b reads it: b = L + 1 is the head's.
  struct Place {
    Lease lease;  // held: a boundary slot
    int64_t block = 0;
    int64_t slot() const { return lease.held() ? lease.slab() : -1; }
    Resource resource(int64_t local) const {
      return lease.held() ? Resource{ResourceKind::boundary_slot, lease.slab(), local}
                          : Resource{ResourceKind::boundary, block, local};
    }
  };

  bool has_backward(int64_t block) const { return block >= first_trained_; }

  // Its input waits on the host for backward, or for nothing.
  bool passes_through_slot(int64_t block) const {
    return block <= w_.blocks && (!has_backward(block) || plan_.boundary[static_cast<size_t>(block - 1)] == Tier::host);
  }

  Place place_for(int64_t block) {
    Place place;
    place.block = block;
    if (passes_through_slot(block)) place.lease = boundary_slots_.acquire();
    return place;
  }

  void offload_boundary(const Place& place, int64_t m) {
    if (!training_ || !place.lease.held() || !has_backward(place.block)) return;
    add(Lane::d2h,
        {.kind = ActionKind::offload_boundary, .record = place.block, .micro_batch = m, .boundary_in = place.slot()},
        {{place.resource(m - begin_), false}, writes(ResourceKind::host_boundary, place.block, m)});
  }

  // The block's weights on the device: the slot, or -1 for its own place; and the access that reads them.
  std::pair<int64_t, Access> hold_weights(int64_t block) {
    const auto fetch = [&](int64_t slot, Access into) {
      add(Lane::h2d, {.kind = ActionKind::fetch_weights, .record = block, .weights_at = slot},
          {reads(ResourceKind::record_weights, block), into});
    };
    if (plan_.state_on_device(block)) return {-1, reads(ResourceKind::record_weights, block)};
    if (plan_.weights[static_cast<size_t>(block - 1)] == Tier::hbm) {
      if (resident_.insert(block).second) fetch(-1, writes(ResourceKind::resident_weights, block));
      return {-1, reads(ResourceKind::resident_weights, block)};
    }
    const int64_t slot =
        slots_.hold(block, [&](int64_t into) { fetch(into, writes(ResourceKind::weight_slot, into)); });
    return {slot, reads(ResourceKind::weight_slot, slot)};
  }

  void forward() {
    Place in = place_for(1);
    for (int64_t m = begin_; m < end_; ++m) {
      add(Lane::compute, {.kind = ActionKind::embed_forward, .record = 0, .micro_batch = m, .boundary_out = in.slot()},
          {plan_.state_on_device(0) ? reads(ResourceKind::record_weights, 0) : reads(ResourceKind::device_rows),
           reads(ResourceKind::inputs),
           {in.resource(m - begin_), true}});
      offload_boundary(in, m);
    }
    for (int64_t block = 1; block <= w_.blocks; ++block) {
      const auto [slot, weights] = hold_weights(block);
      Place out = place_for(block + 1);
      const Keep keep = kept(block);
      for (int64_t m = begin_; m < end_; ++m) {
        std::vector<Access> accesses = {
            weights, {in.resource(m - begin_), false}, reads(ResourceKind::inputs), {out.resource(m - begin_), true}};
        if (keep != Keep::nothing) accesses.push_back(writes(ResourceKind::kept, block, m - begin_));
        add(Lane::compute,
            {.kind = ActionKind::block_forward,
             .record = block,
             .micro_batch = m,
             .weights_at = slot,
             .boundary_in = in.slot(),
             .boundary_out = out.slot(),
             .keep = keep},
            std::move(accesses));
        offload_boundary(out, m);
      }
      in = std::move(out);
    }
  }

  // Part 0 of the head is its own tensors, part 1 the tied table; each is fetched once a step unless it lives there.
  Access hold_head(int64_t record, int64_t part) {
    if (plan_.state_on_device(record)) return reads(ResourceKind::record_weights, record);
    if (!head_held_) {
      add(Lane::h2d, {.kind = ActionKind::fetch_weights, .record = record},
          {reads(ResourceKind::record_weights, record), writes(ResourceKind::head_slot, part)});
    }
    return reads(ResourceKind::head_slot, part);
  }

  void head() {
    const int64_t record = w_.head_record();
    std::vector<Access> weights = {hold_head(record, 0)};
    if (w_.tied) weights.push_back(hold_head(0, 1));
    head_held_ = true;
    for (int64_t m = begin_; m < end_; ++m) {
      std::vector<Access> accesses = weights;
      accesses.push_back(reads(ResourceKind::boundary, record, m - begin_));
      accesses.push_back(reads(ResourceKind::inputs));
      accesses.push_back(writes(ResourceKind::losses, m));
      if (training_) {
        accesses.push_back(writes(ResourceKind::gradient_stream, m - begin_));
        if (w_.is_trained(record)) accesses.push_back(writes(ResourceKind::head_gradient_sum, 0));
        if (w_.tied && w_.is_trained(0)) accesses.push_back(writes(ResourceKind::head_gradient_sum, 1));
      }
      add(Lane::compute, {.kind = ActionKind::head, .record = record, .micro_batch = m, .training = training_},
          std::move(accesses));
    }
    if (training_ && last_sweep_ && w_.is_trained(record))
      leave(record, {ResourceKind::head_gradient_sum, 0}, {ResourceKind::head_gradient_out, 0});
  }

  Keep kept(int64_t block) const {
    return training_ && has_backward(block) ? plan_.keep[static_cast<size_t>(block - 1)] : Keep::nothing;
  }

  int64_t gradient_sum(int64_t block) const { return sums_.of_block[static_cast<size_t>(block - 1)]; }

  void backward() {
    for (int64_t block = w_.blocks; block >= std::max<int64_t>(1, first_trained_); --block) {
      const auto [slot, weights] = hold_weights(block);
      const int64_t sum = gradient_sum(block);
      const Keep keep = kept(block);
      Place in = place_for(block);
      for (int64_t m = begin_; m < end_; ++m) {
        if (in.lease.held()) {
          add(Lane::h2d,
              {.kind = ActionKind::fetch_boundary, .record = block, .micro_batch = m, .boundary_in = in.slot()},
              {reads(ResourceKind::host_boundary, block, m), {in.resource(m - begin_), true}});
        }
        std::vector<Access> accesses = {weights,
                                        {in.resource(m - begin_), false},
                                        reads(ResourceKind::inputs),
                                        writes(ResourceKind::gradient_stream, m - begin_)};
        if (w_.is_trained(block)) accesses.push_back(writes(ResourceKind::gradient_sum, sum));
        if (keep != Keep::nothing) accesses.push_back(writes(ResourceKind::kept, block, m - begin_));
        add(Lane::compute,
            {.kind = ActionKind::block_backward,
             .record = block,
             .micro_batch = m,
             .weights_at = slot,
             .boundary_in = in.slot(),
             .keep = keep,
             .gradient_sum = sum},
            std::move(accesses));
      }
      if (last_sweep_ && w_.is_trained(block)) {
        const Lease out = plan_.updated_on_device(block) ? Lease() : out_slabs_.acquire();
        leave(block, {ResourceKind::gradient_sum, sum}, {ResourceKind::gradient_out, out.held() ? out.slab() : -1});
      }
    }
    if (!w_.is_trained(0)) return;
    const Resource rows{ResourceKind::row_gradient_sum}, table{ResourceKind::head_gradient_sum, 1};
    for (int64_t m = begin_; m < end_; ++m) {
      add(Lane::compute, {.kind = ActionKind::embed_backward, .record = 0, .micro_batch = m},
          {reads(ResourceKind::gradient_stream, m - begin_), reads(ResourceKind::inputs), {rows, true}});
    }
    if (!last_sweep_) return;
    // tied: rows join the table's gradient once all micro-batches of both are summed, so that sweeps change no bit
    if (w_.tied) {
      add(Lane::compute, {.kind = ActionKind::merge_rows, .record = 0},
          {{rows, false}, reads(ResourceKind::inputs), {table, true}});
      leave(0, table, {ResourceKind::head_gradient_out, 1});
    } else {
      leave(0, rows, {ResourceKind::row_gradient_out});
    }
  }

  // A summed gradient is rounded and normed; carried out, unless the device will use it; and, when nothing waits for
  // the norm, used at once.
  void leave(int64_t record, Resource sum, Resource out) {
    const bool block = out.kind == ResourceKind::gradient_out;
    Action at{.record = record, .gradient_sum = block ? sum.a : -1, .gradient_out = block ? out.a : -1};
    at.kind = ActionKind::finish_gradient;
    if (plan_.updated_on_device(record)) {
      add(Lane::compute, at, {{sum, false}, writes(ResourceKind::squares, record)});
      if (w_.clip) return;
      add(Lane::compute, {.kind = ActionKind::clip_factor, .record = record},
          {reads(ResourceKind::squares, record), writes(ResourceKind::clip)});
      update_on_device(record, sum);
      return;
    }
    Lease host;
    Resource waiting{ResourceKind::host_record_gradient, record};
    if (block) {
      // with clipping, a block's gradient has a slab of its own until the end of the step
      if (!w_.clip) host = host_slabs_.acquire();
      at.host_gradient = w_.clip ? waiting_place(record) : host.slab();
      waiting = {ResourceKind::host_gradient, at.host_gradient};
    }
    add(Lane::compute, at, {{sum, false}, {out, true}, writes(ResourceKind::squares, record)});
    at.kind = ActionKind::offload_gradient;
    add(Lane::d2h, at,
        {{out, false},
         reads(ResourceKind::squares, record),
         {waiting, true},
         writes(ResourceKind::host_squares, record)});
    if (!w_.clip) update_on_host(record, reads(ResourceKind::host_squares, record), at.host_gradient);
  }

  int64_t waiting_place(int64_t block) const { return waiting_.of_block[static_cast<size_t>(block - 1)]; }

  void update_on_host(int64_t record, Access permission, int64_t host_slab) {
    const bool block = record >= 1 && record <= w_.blocks;
    add(Lane::update, {.kind = ActionKind::update, .record = record, .host_gradient = block ? host_slab : -1},
        {permission,
         block ? reads(ResourceKind::host_gradient, host_slab) : reads(ResourceKind::host_record_gradient, record),
         writes(ResourceKind::record_weights, record), writes(ResourceKind::record_state, record)});
  }

  void update_on_device(int64_t record, Resource sum) {
    const bool block = record >= 1 && record <= w_.blocks;
    std::vector<Access> accesses = {{sum, false}, reads(ResourceKind::clip), reads(ResourceKind::inputs)};
    if (plan_.visiting(record)) {
      accesses.push_back(writes(ResourceKind::visiting_state, record));
    } else {
      accesses.push_back(writes(ResourceKind::record_weights, record));
      accesses.push_back(writes(ResourceKind::record_state, record));
    }
    add(Lane::compute, {.kind = ActionKind::update_on_device, .record = record, .gradient_sum = block ? sum.a : -1},
        std::move(accesses));
  }

  Resource sum_of(int64_t record) const {
    if (record == w_.head_record()) return {ResourceKind::head_gradient_sum, 0};
    if (record == 0)
      return w_.tied ? Resource{ResourceKind::head_gradient_sum, 1} : Resource{ResourceKind::row_gradient_sum};
    return {ResourceKind::gradient_sum, gradient_sum(record)};
  }

  // With clipping: visitors come in during backward, and once the norm is known everything is updated, first needed
  // first.
  void updates() {
    std::vector<Access> squares = {writes(ResourceKind::clip)};
    bool any = false;
    for (int64_t record = 0; record < w_.records(); ++record) {
      if (!w_.is_trained(record)) continue;
      squares.push_back(reads(ResourceKind::squares, record));
      any |= plan_.updated_on_device(record);
      if (plan_.visiting(record)) {
        add(Lane::h2d, {.kind = ActionKind::fetch_state, .record = record},
            {reads(ResourceKind::record_weights, record), reads(ResourceKind::record_state, record),
             writes(ResourceKind::visiting_state, record)});
      }
    }
    if (any) add(Lane::compute, {.kind = ActionKind::clip_factor}, std::move(squares));
    for (int64_t record = 0; record < w_.records(); ++record) {
      if (!w_.is_trained(record)) continue;
      if (!plan_.updated_on_device(record)) {
        const bool block = record >= 1 && record <= w_.blocks;
        update_on_host(record, reads(ResourceKind::host_report), block ? waiting_place(record) : -1);
        continue;
      }
      update_on_device(record, sum_of(record));
      if (plan_.visiting(record)) {
        add(Lane::d2h, {.kind = ActionKind::return_state, .record = record},
            {reads(ResourceKind::visiting_state, record), writes(ResourceKind::record_weights, record),
             writes(ResourceKind::record_state, record)});
      }
    }
  }

  std::vector<Access> all_losses() const {
    std::vector<Access> accesses = {writes(ResourceKind::loss_sums)};
    for (int64_t m = 0; m < w_.micro_batches; ++m) accesses.push_back(reads(ResourceKind::losses, m));
    return accesses;
  }

  void report() {
    std::vector<Access> accesses = {reads(ResourceKind::loss_sums), writes(ResourceKind::host_report)};
    if (training_) {
      for (int64_t record = 0; record < w_.records(); ++record) {
        if (w_.is_trained(record)) accesses.push_back(reads(ResourceKind::squares, record));
      }
    }
    add(Lane::d2h, {.kind = ActionKind::report}, std::move(accesses));
  }

  const Workload& w_;
  const Plan& plan_;
  bool training_;
  int64_t first_trained_;  // record
  GradientSlabs sums_, waiting_;
  std::vector<Action> actions_;
  WarmSlots slots_;
  SlabPool boundary_slots_, out_slabs_, host_slabs_;
  std::set<int64_t> resident_;   // blocks already fetched to their own place
  int64_t begin_ = 0, end_ = 0;  // micro-batches of the sweep
  bool last_sweep_ = false;
  bool head_held_ = false;
};

}  // namespace

Schedule build_schedule(const Workload& workload, const Plan& plan, StepMode mode) {
  check_plan(workload, plan);
  Schedule schedule{.actions = Builder(workload, plan, mode).build(), .training = mode == StepMode::train};
  derive_waits(schedule.actions, plan.serial);
  return schedule;
}

}  // namespace megatrain
