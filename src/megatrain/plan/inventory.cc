#include "megatrain/plan/inventory.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/io/json.h"
#include "megatrain/plan/slot_rings.h"

namespace megatrain {

namespace {

using Kind = ResourceKind;

// Calls visit(kind, tier, a, bytes, count) for every kind of resource and every `a`. There are `count` instances of
// `bytes` each, one for each b.
template <class Visit>
class ResourceList {
 public:
  ResourceList(const Workload& w, const Plan& plan, const SlotRings& slots, const Visit& visit)
      : w_(w),
        plan_(plan),
        slots_(slots),
        visit_(visit),
        widest_(*std::max_element(plan.sweeps.begin(), plan.sweeps.end())) {}

  void all() const {
    records();
    own_places();
    rows();
    activations();
    rest();
  }

 private:
  void device(Kind kind, int64_t a, int64_t bytes, int64_t count = 1) const {
    visit_(kind, Tier::hbm, a, bytes, count);
  }
  void host(Kind kind, int64_t a, int64_t bytes, int64_t count = 1) const { visit_(kind, Tier::host, a, bytes, count); }

  // Where records live, and the layers' weights and gradients in transit.
  void records() const {
    std::array<int64_t, 2> streamed{};  // the largest in each ring, in bytes
    int64_t packed = 0;                 // the largest that is fetched, in bytes
    int64_t leaving = 0, partials = 0;  // the largest, in bytes and partials
    int64_t visiting = 0, coming = 0;   // the largest state and gradient of visits that take turns, in bytes
    std::vector<int64_t> shared;        // the largest sum for each index of a record within its phase, in elements
    int64_t passing = 0, collected = 0, staged = 0;     // moments, gradients and weights in transit, in bytes
    std::vector<bool> waits(w_.records.size(), false);  // (homes) whether it has a gradient that waits
    for (int64_t r = 0; r < w_.record_count(); ++r) {
      const Tier tier = plan_.state_on_device(r) ? Tier::hbm : Tier::host;
      const int64_t trained = w_.record(r).trained;
      partials = std::max(partials, ceil_div(trained, kNormPartialElements) + w_.record(r).norm_parts - 1);
      if (w_.home(r) == r) state(r, tier);
      if (plan_.moments_on_disk(r)) passing = std::max(passing, update_slab_bytes(w_, plan_, r));
      if (plan_.weights_staged(r)) staged = std::max(staged, w_.disk_weight_bytes(r));
      device(Kind::squares, r, 8 * w_.record(r).norm_parts);
      host(Kind::host_squares, r, 8 * w_.record(r).norm_parts);
      if (!w_.is_layer_record(r)) continue;
      int64_t& largest = streamed[slots_.is_small(r)];
      if (plan_.takes_slot(w_, r)) largest = std::max(largest, w_.weight_bytes(r));
      if (w_.is_packed(r) && !plan_.state_on_device(r)) packed = std::max(packed, w_.stored_bytes(r));
      if (plan_.copied(r)) device(Kind::resident_weights, r, w_.weight_bytes(r));
      if (plan_.takes_turns(r)) {
        visiting = std::max(visiting, w_.visiting_bytes(r));
        coming = std::max(coming, w_.gradient_bytes(r));
      } else if (plan_.visiting(r)) {
        device(Kind::visiting_state, r, w_.visiting_bytes(r));
      }
      if (trained == 0) continue;
      if (gradient_sum_of(w_, plan_, r).kind == Kind::gradient_sum) {
        device(Kind::gradient_sum, r, trained * 4);
      } else {
        shared.resize(std::max(shared.size(), static_cast<size_t>(w_.record(r).place) + 1));
        int64_t& most = shared[static_cast<size_t>(w_.record(r).place)];
        most = std::max(most, trained);
      }
      if (const auto place = waiting_gradient_of(w_, plan_, r); place && place->kind == Kind::device_gradient)
        device(Kind::device_gradient, r, w_.gradient_bytes(r));
      if (!plan_.gradient_leaves(r)) continue;
      if (plan_.record(r).gradient != Tier::host) collected = std::max(collected, w_.disk_gradient_bytes(r));
      if (plan_.record(r).gradient == Tier::hbm) continue;
      leaving = std::max(leaving, w_.gradient_bytes(r));
      if (plan_.gradient_on_disk(r)) {
        visit_(Kind::disk_gradient, Tier::disk, r, w_.disk_gradient_bytes(r), 1);
      } else if (w_.clip && !waits[static_cast<size_t>(w_.home(r))]) {
        host(Kind::host_gradient, w_.home(r), w_.gradient_bytes(r));
        waits[static_cast<size_t>(w_.home(r))] = true;
      }
    }
    const Rings& rings = plan_.rings;
    for (size_t place = 0; place < shared.size(); ++place)
      device(Kind::shared_gradient_sum, static_cast<int64_t>(place), shared[place] * 4);
    for (size_t i = 0; i < streamed.size(); ++i) {
      const SlotRing& ring = slots_.all()[i];
      for (int64_t slot = 0; streamed[i] > 0 && slot < rings.*ring.slots; ++slot) device(ring.kind, slot, streamed[i]);
    }
    for (int64_t slot = 0; packed > 0 && slot < rings.packed_slots; ++slot) device(Kind::packed_slot, slot, packed);
    for (int64_t slot = 0; slot < rings.visit_slots; ++slot) {
      device(Kind::visiting_state, slot, round_up(visiting, 256));
      device(Kind::visiting_gradient, slot, round_up(coming, 256));
    }
    for (int64_t slab = 0; leaving > 0 && slab < rings.gradients_out; ++slab) device(Kind::gradient_out, slab, leaving);
    for (int64_t slab = 0; !w_.clip && slab < rings.host_gradients; ++slab) host(Kind::host_gradient, slab, leaving);
    for (int64_t slab = 0; passing > 0 && slab < rings.moment_slabs; ++slab) host(Kind::moment_slab, slab, passing);
    for (int64_t slab = 0; staged > 0 && slab < rings.weight_slabs; ++slab) host(Kind::weight_slab, slab, staged);
    for (int64_t slab = 0; collected > 0 && slab < rings.gradient_slabs; ++slab)
      host(Kind::gradient_slab, slab, collected);
    device(Kind::norm_partials, 0, partials * 8);
  }

  void state(int64_t r, Tier tier) const {
    if (plan_.weights_on_disk(r) || plan_.moments_on_disk(r)) {
      for (const DiskPlane& plane : disk_planes(w_, plan_, r)) visit_(plane.kind, Tier::disk, r, plane.bytes, 1);
    }
    if (plan_.weights_in_files(r)) visit_(Kind::file_weights, Tier::files, r, w_.record(r).file_bytes, 1);
    if (!plan_.weights_staged(r)) {
      plane(Kind::record_weights, tier, r, w_.stored_bytes(r));
      plane(Kind::low_bits, tier, r, w_.low_bytes(r));
    }
    if (plan_.moments_on_disk(r)) return;
    plane(Kind::first_moments, tier, r, w_.moment_bytes(r));
    plane(Kind::second_moments, tier, r, w_.moment_bytes(r));
  }

  void plane(Kind kind, Tier tier, int64_t r, int64_t bytes) const {
    visit_(kind, tier, r, round_up(bytes, kRecordPlaneAlignment), 1);
  }

  // The embedding, the head and rows of single tokens do not share slots: their gradients, and their weights if they
  // are needed whole, have memory of their own.
  void own_places() const {
    for (int64_t r = 0; r < w_.record_count(); ++r) {
      if (w_.is_layer_record(r)) continue;
      const bool here = plan_.state_on_device(r);
      if (!here && !w_.by_rows(r)) device(Kind::resident_weights, r, w_.weight_bytes(r));
      if (!w_.is_trained(r)) continue;
      if (!w_.by_rows(r)) device(Kind::gradient_sum, r, w_.record(r).trained * 4 * w_.record(r).sums);
      if (here) continue;
      device(Kind::record_gradient_out, r, w_.gradient_bytes(r));
      host(Kind::host_record_gradient, r, w_.gradient_bytes(r));
    }
  }

  // Rows that a step looks up, and their gradients.
  void rows() const {
    for (int64_t r = 0; r < w_.record_count(); ++r) {
      if (!w_.is_looked_up(r)) continue;
      if (!plan_.state_on_device(r)) {
        device(Kind::device_rows, r, w_.row_elements(r) * w_.element_bytes(r));
        host(Kind::staged_rows, r, w_.row_elements(r) * w_.element_bytes(r));
      }
      if (w_.is_trained(r)) device(Kind::row_gradient_sum, r, w_.row_elements(r) * 4);
    }
  }

  // Activations of a phase that wait on disk; `slab` grows to the largest that passes through it.
  void disk(Kind kind, int64_t phase, int64_t bytes, int64_t& slab) const {
    bytes = round_up(bytes, kDiskAlignment);
    visit_(kind, Tier::disk, phase, bytes, w_.micro_batches);
    slab = std::max(slab, bytes);
  }

  void activations() const {
    const int64_t first = w_.first_trained_phase();
    int64_t passing = 0, keeping = 0, stream = 0, repeated = 0, stored = 0, between_parts = 0;  // the largest, in bytes
    bool one_width = true;
    for (int64_t p = 1; p <= w_.head_phase(); ++p) {
      const int64_t bytes = w_.activation_bytes(p);
      stream = std::max(stream, bytes);
      between_parts = std::max(between_parts, round_up(w_.phase(p).between_parts_bytes, 256));
      one_width &= w_.phase(p).width == w_.phase(1).width;
      const bool layer = p < w_.head_phase(), backward = p >= first;
      if (layer && backward) {
        const int64_t kept = w_.kept_bytes(p, plan_.phase(p).keep);
        const Tier tier = plan_.phase(p).outputs;
        if (tier == Tier::hbm) device(Kind::kept, p, kept, widest_);
        if (tier == Tier::host) host(Kind::host_kept, p, kept, w_.micro_batches);
        if (tier == Tier::disk) disk(Kind::disk_kept, p, kept, stored);
        if (tier != Tier::hbm) keeping = std::max(keeping, kept);
      }
      const bool waits = backward && (!layer || plan_.above_boundary(p, first) == 0);
      if (!layer || (waits && plan_.phase(p).input == Tier::hbm)) {
        device(Kind::boundary, p, bytes, std::max(widest_, ceil_div(gradient_bytes_after(p), bytes)));
        continue;
      }
      passing = std::max(passing, bytes);
      if (waits && plan_.phase(p).input == Tier::host) host(Kind::host_boundary, p, bytes, w_.micro_batches);
      if (waits && plan_.phase(p).input == Tier::disk) disk(Kind::disk_boundary, p, bytes, stored);
      if (backward && !waits) repeated = std::max(repeated, bytes);
    }
    for (int64_t p = 1; p < w_.head_phase(); ++p) {
      if (w_.phase(p).shared_width == 0) continue;
      device(Kind::shared, p, w_.shared_bytes(p), widest_);
      if (p >= first) device(Kind::shared_gradient, p, w_.shared_bytes(p), widest_);
    }
    if (between_parts > 0) device(Kind::between_parts, 0, between_parts, widest_);
    for (int64_t slab = 0; stored > 0 && slab < plan_.rings.activation_slabs; ++slab)
      host(Kind::boundary_slab, slab, stored);
    for (int64_t above = 1; repeated > 0 && above < plan_.input_every; ++above)
      device(Kind::recomputed, above, repeated, widest_);
    for (int64_t slot = 0; passing > 0 && slot < plan_.rings.input_slots; ++slot)
      device(Kind::boundary_slot, slot, passing, widest_);
    for (int64_t slot = 0; keeping > 0 && slot < plan_.rings.output_slots; ++slot)
      device(Kind::kept_slot, slot, keeping, widest_);
    for (int64_t which = 0; which < (one_width ? 1 : 2); ++which) device(Kind::gradient_stream, which, stream, widest_);
  }

  // Size of the gradient that reuses the memory of a phase's input.
  int64_t gradient_bytes_after(int64_t phase) const {
    if (phase == w_.head_phase()) return 0;
    const int64_t record = w_.phase(phase).records.front();
    const auto waits = waiting_gradient_of(w_, plan_, record);
    return waits && *waits == Resource{Kind::boundary, phase} ? w_.gradient_bytes(record) : 0;
  }

  void rest() const {
    device(Kind::driver, 0, w_.device_base_bytes);
    device(Kind::workspace, 0, w_.workspace_bytes);
    device(Kind::ops_scratch, 0, w_.scratch_bytes);
    device(Kind::inputs, 0, w_.input_bytes);
    device(Kind::rope_table, 0, w_.rope_bytes);
    device(Kind::losses, 0, w_.micro_tokens * 4, w_.micro_batches);
    device(Kind::correct, 0, w_.micro_tokens * 4, w_.micro_batches);
    device(Kind::loss_sums, 0, 16);
    for (int64_t p = 0; p < w_.phase_count(); ++p) {
      if (w_.phase(p).router_bytes > 0) device(Kind::router_counts, p, w_.phase(p).router_bytes);
    }
    if (w_.aux_loss > 0) device(Kind::router_slopes, 0, w_.experts * 4);
    device(Kind::clip, 0, 8);
    for (int64_t lane = 0; lane < plan_.update_lanes(); ++lane) device(Kind::not_finite, lane, 4, 2);
    host(Kind::process, 0, w_.host_base_bytes);
    host(Kind::staged_inputs, 0, w_.input_bytes);
    host(Kind::host_report, 0, (w_.norm_parts() + 3) * 8 + w_.router_bytes());
  }

  const Workload& w_;
  const Plan& plan_;
  const SlotRings& slots_;
  const Visit& visit_;
  int64_t widest_;  // in micro-batches, of the widest sweep
};

template <class Visit>
void each_resource(const Workload& w, const Plan& plan, const SlotRings& slots, const Visit& visit) {
  ResourceList<Visit>(w, plan, slots, visit).all();
}

}  // namespace

const char* resource_name(ResourceKind kind) {
  switch (kind) {
    case Kind::record_weights: return "weights";
    case Kind::record_state: return "record state";
    case Kind::low_bits: return "low bits";
    case Kind::first_moments: return "first moments";
    case Kind::second_moments: return "second moments";
    case Kind::driver: return "driver";
    case Kind::weight_slot: return "weight slots";
    case Kind::small_slot: return "small weight slots";
    case Kind::packed_slot: return "packed weight slots";
    case Kind::resident_weights: return "resident weights";
    case Kind::visiting_state: return "visiting state";
    case Kind::visiting_gradient: return "visiting gradients";
    case Kind::gradient_sum: return "gradient sums";
    case Kind::shared_gradient_sum: return "shared gradient sums";
    case Kind::device_gradient: return "gradients waiting on the device";
    case Kind::row_gradient_sum: return "row gradient sums";
    case Kind::gradient_out: return "gradients leaving";
    case Kind::record_gradient_out: return "head and row gradients leaving";
    case Kind::device_rows: return "embedding rows";
    case Kind::kept: return "kept activations";
    case Kind::kept_slot: return "slots of kept outputs";
    case Kind::between_parts: return "activations between parts";
    case Kind::shared: return "shared activations";
    case Kind::shared_gradient: return "gradients of shared activations";
    case Kind::boundary: return "kept boundaries";
    case Kind::boundary_slot: return "boundary slots";
    case Kind::recomputed: return "recomputed boundaries";
    case Kind::gradient_stream: return "gradient stream";
    case Kind::workspace: return "workspace";
    case Kind::ops_scratch: return "ops scratch";
    case Kind::generation: return "generation";
    case Kind::inputs: return "inputs";
    case Kind::rope_table: return "rope table";
    case Kind::losses: return "losses";
    case Kind::correct: return "correct tokens";
    case Kind::norm_partials: return "norm partials";
    case Kind::squares: return "sums of squares";
    case Kind::loss_sums: return "loss sums";
    case Kind::router_counts: return "router counts";
    case Kind::router_slopes: return "router slopes";
    case Kind::clip: return "clip factor";
    case Kind::not_finite: return "not finite";
    case Kind::process: return "process";
    case Kind::host_gradient: return "waiting gradients";
    case Kind::host_record_gradient: return "waiting head and row gradients";
    case Kind::host_boundary: return "host boundaries";
    case Kind::host_kept: return "kept outputs";
    case Kind::boundary_slab: return "activations on their way";
    case Kind::staged_rows: return "staged rows";
    case Kind::staged_inputs: return "staged inputs";
    case Kind::host_report: return "host report";
    case Kind::host_squares: return "host sums of squares";
    case Kind::moment_slab: return "moments on their way";
    case Kind::weight_slab: return "weights on their way";
    case Kind::gradient_slab: return "gradients on their way";
    case Kind::disk_weights: return "weights";
    case Kind::disk_low_bits: return "low bits";
    case Kind::disk_moments: return "moments";
    case Kind::disk_boundary: return "boundaries";
    case Kind::disk_kept: return "kept outputs";
    case Kind::disk_gradient: return "gradients";
    case Kind::file_weights: return "weights";
  }
  return "?";
}

bool is_idle_between_steps(ResourceKind kind) {
  switch (kind) {
    case Kind::weight_slot:
    case Kind::small_slot:
    case Kind::packed_slot:
    case Kind::kept:
    case Kind::kept_slot:
    case Kind::between_parts:
    case Kind::boundary:
    case Kind::boundary_slot:
    case Kind::recomputed:
    case Kind::gradient_stream:
    case Kind::shared:
    case Kind::shared_gradient:
    case Kind::workspace: return true;
    default: return false;
  }
}

int64_t MemoryNeed::hbm_bytes() const { return std::accumulate(hbm.begin(), hbm.end(), int64_t{0}); }
int64_t MemoryNeed::host_bytes() const { return std::accumulate(host.begin(), host.end(), int64_t{0}); }
int64_t MemoryNeed::disk_bytes() const { return std::accumulate(disk.begin(), disk.end(), int64_t{0}); }
int64_t MemoryNeed::file_bytes() const { return std::accumulate(files.begin(), files.end(), int64_t{0}); }

namespace {

// With generation, all idle memory is one allocation. Returns the bytes by which it exceeds the idle memory: its
// alignment, and more if generating needs more. The allocation never shrinks as the idle memory grows, so that the
// planner's climb stays monotonic.
int64_t set_aside_for_generation(const Workload& w, const MemoryNeed& need) {
  if (w.generation_bytes == 0) return 0;
  int64_t idle = 0, aligned = 0;
  for (size_t kind = 0; kind < need.hbm.size(); ++kind) {
    if (!is_idle_between_steps(static_cast<Kind>(kind))) continue;
    idle += need.hbm[kind];
    aligned += round_up(need.hbm[kind], kKindAlignment);
  }
  return std::max(aligned, w.generation_bytes) - idle;
}

}  // namespace

MemoryNeed memory_need(const Workload& w, const Plan& plan) { return memory_need(w, plan, SlotRings(w)); }

MemoryNeed memory_need(const Workload& w, const Plan& plan, const SlotRings& slots) {
  MemoryNeed need;
  each_resource(w, plan, slots, [&](Kind kind, Tier tier, int64_t, int64_t bytes, int64_t count) {
    need.of(tier)[static_cast<size_t>(kind)] += bytes * count;
  });
  need.hbm[static_cast<size_t>(Kind::generation)] = set_aside_for_generation(w, need);
  return need;
}

std::string disk_contents(const MemoryNeed& need) {
  const auto on_disk = [&](Kind kind) { return need.disk[static_cast<size_t>(kind)] > 0; };
  std::string text;
  for (const auto& [kind, name] : {std::pair{Kind::disk_weights, "weights"},
                                   {Kind::disk_moments, "moments"},
                                   {Kind::disk_gradient, "gradients"},
                                   {Kind::disk_boundary, "block inputs"},
                                   {Kind::disk_kept, "kept outputs"}}) {
    if (on_disk(kind)) text += (text.empty() ? "" : " and ") + std::string(name);
  }
  return text;
}

nlohmann::json memory_to_json(const MemoryNeed& need) {
  nlohmann::json memory;
  for (const Tier tier : {Tier::hbm, Tier::host, Tier::disk, Tier::files}) {
    const auto& kinds = need.of(tier);
    for (size_t kind = 0; kind < kinds.size(); ++kind) {
      if (kinds[kind] > 0) memory[tier_name(tier)][resource_name(static_cast<ResourceKind>(kind))] = kinds[kind];
    }
  }
  return memory;
}

std::vector<DiskPlane> disk_planes(const Workload& w, const Plan& plan, int64_t record) {
  std::vector<DiskPlane> planes;
  if (plan.weights_on_disk(record)) {
    planes.push_back({Kind::disk_weights, w.disk_weight_bytes(record)});
    planes.push_back({Kind::disk_low_bits, w.disk_low_bytes(record)});
  }
  if (plan.moments_on_disk(record)) planes.push_back({Kind::disk_moments, 2 * w.disk_moment_bytes(record)});
  return planes;
}

int64_t update_slab_bytes(const Workload& w, const Plan& plan, int64_t record) {
  int64_t bytes = 0;
  for (const DiskPlane& plane : disk_planes(w, plan, record)) bytes += plane.bytes;
  return bytes;
}

Resource gradient_sum_of(const Workload& w, const Plan& plan, int64_t record) {
  // partly summed gradients never leave the device
  const bool stays = plan.sweeps.size() > 1 || (w.gradients_stay && plan.updated_on_device(record));
  if (stays) return {Kind::gradient_sum, record};
  return {Kind::shared_gradient_sum, w.record(record).place};
}

bool leaves_its_place(const Workload& w, const Plan& plan, int64_t record) {
  const int64_t phase = record;  // phase and record have the same index in a dense model
  return phase > 0 && phase < w.head_phase() && phase >= w.first_trained_phase() &&
         w.phase(phase).records.size() == 1 && w.phase(phase).records.front() == record &&
         plan.phase(phase).input == Tier::hbm && plan.above_boundary(phase, w.first_trained_phase()) == 0;
}

std::optional<Resource> waiting_gradient_of(const Workload& w, const Plan& plan, int64_t record) {
  if (!w.clip || !w.is_layer_record(record) || !w.is_trained(record)) return {};
  const bool here = !plan.gradient_leaves(record);
  if (here ? gradient_sum_of(w, plan, record).kind == Kind::gradient_sum : plan.record(record).gradient != Tier::hbm)
    return {};
  return leaves_its_place(w, plan, record) ? Resource{Kind::boundary, record} : Resource{Kind::device_gradient, record};
}

Inventory::Inventory(const Workload& w, const Plan& plan) : need_(memory_need(w, plan)) {
  MemoryNeed placed;                                        // so far
  std::array<std::vector<int64_t>, kResourceKinds> ranges;  // on disk
  each_resource(w, plan, SlotRings(w), [&](Kind kind, Tier tier, int64_t a, int64_t bytes, int64_t count) {
    const size_t at = static_cast<size_t>(kind);
    int64_t& end = placed.of(tier)[at];
    std::vector<Place>& places = places_[at];
    if (static_cast<int64_t>(places.size()) <= a) places.resize(static_cast<size_t>(a) + 1);
    places[static_cast<size_t>(a)] = {end, bytes, count};
    end += bytes * count;
    if (tier == Tier::disk) ranges[at].insert(ranges[at].end(), static_cast<size_t>(count), bytes);
  });
  for (const std::vector<int64_t>& of_kind : ranges)
    disk_ranges_.insert(disk_ranges_.end(), of_kind.begin(), of_kind.end());
  if (w.alias_records == 0) return;
  for (const Kind kind :
       {Kind::record_weights, Kind::low_bits, Kind::first_moments, Kind::second_moments, Kind::host_gradient}) {
    if (kind == Kind::host_gradient && !w.clip) continue;  // slabs instead
    std::vector<Place>& places = places_[static_cast<size_t>(kind)];
    places.resize(w.records.size());
    for (int64_t r = 0; r < w.record_count(); ++r)
      places[static_cast<size_t>(r)] = places[static_cast<size_t>(w.home(r))];
  }
}

const Inventory::Place& Inventory::place(const Resource& r) const {
  const std::vector<Place>& places = places_[static_cast<size_t>(r.kind)];
  const bool there =
      r.a >= 0 && r.a < static_cast<int64_t>(places.size()) && r.b >= 0 && r.b < places[static_cast<size_t>(r.a)].count;
  if (!there) fail_internal(fmt::format("no memory is planned for {} [{}, {}]", resource_name(r.kind), r.a, r.b));
  return places[static_cast<size_t>(r.a)];
}

int64_t Inventory::offset(const Resource& r) const { return place(r).offset + r.b * place(r).bytes; }
int64_t Inventory::bytes(const Resource& r) const { return place(r).bytes; }

}  // namespace megatrain
