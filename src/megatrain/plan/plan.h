// The plan decides where each byte lives and when it moves, never its value: every valid plan of a workload gives the
// same bits. All placement decisions are made here; the schedule and the engine only follow them.
//
// A plan has one struct per record, one per phase, and the sizes of the rings that data passes through. To add a new
// place for bytes, add a field to one of these: `each_field` names it for JSON, and check_plan defines which values are
// valid.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "megatrain/plan/keep.h"
#include "megatrain/plan/workload.h"
#include "megatrain/tensor/tier.h"

namespace megatrain {

enum class UpdatedBy : uint8_t { host, device };

struct RecordPlan {
  // Where a layer's phase reads its weights. hbm: device memory of their own, in which they live or to which they are
  // copied once per step. host: a device slot that they stream through.
  Tier weights = Tier::host;
  // Where the weights and the low bits (the low half of the fp32 master) live. hbm: together with the moments. disk:
  // only for layer records. files: the weights of a frozen layer record stay in the model's files and are read from
  // there.
  Tier state = Tier::host;
  // Where m and v live. disk: only for trained records that the host updates; during the update they are in a slab.
  Tier moments = Tier::host;
  // With clipping, where the rounded gradient of a layer that the host updates waits for the norm. hbm: in the memory
  // of its phase's input.
  Tier gradient = Tier::host;
  UpdatedBy updated_by = UpdatedBy::host;  // device: the state lives there, or visits the device to be updated
  bool operator==(const RecordPlan&) const = default;

  void live_on_device() {
    weights = state = moments = Tier::hbm;
    updated_by = UpdatedBy::device;
  }

  template <class Visit>  // visit(name, member)
  static void each_field(Visit&& visit) {
    visit("weights", &RecordPlan::weights);
    visit("state", &RecordPlan::state);
    visit("moments", &RecordPlan::moments);
    visit("gradient", &RecordPlan::gradient);
    visit("updated_by", &RecordPlan::updated_by);
  }
};

// Ignored for phases that have no backward.
struct PhasePlan {
  Keep keep = Keep::nothing;  // which inner activations are kept for backward: a level of the phase's list
  Tier outputs = Tier::hbm;   // where those kept activations wait; off the device only if the level allows it
  Tier input = Tier::hbm;     // where the phase's input waits; the head's waits on the device
  bool operator==(const PhasePlan&) const = default;

  template <class Visit>
  static void each_field(Visit&& visit) {
    visit("keep", &PhasePlan::keep);
    visit("outputs", &PhasePlan::outputs);
    visit("input", &PhasePlan::input);
  }
};

// The number of slots or slabs in each ring. Data takes turns in them. An unused ring has 0, unless noted below.
struct Rings {
  // ---- on the device ----
  // Slots that layer records stream through, each as large as the largest such record. Present even if nothing streams.
  int64_t weight_slots = 2;
  int64_t small_slots = 0;  // like weight_slots, for records far smaller than the largest (slot_rings.h)
  // Slots that receive packed weights before they are unpacked into a weight slot or into memory of their own.
  int64_t packed_slots = 0;
  // Slots that visiting states take turns in. Each also holds the record's gradient, which waited on the host. 0: each
  // visiting state has memory of its own, and its gradient stayed on the device.
  int64_t visit_slots = 0;
  int64_t input_slots = 2;    // for phase inputs that wait off the device or are not kept; at least 2
  int64_t output_slots = 0;   // for kept outputs that wait off the device; 2 or more if any do
  int64_t gradients_out = 2;  // slabs from which rounded gradients are copied to the host; at least 1
  // ---- on the host ----
  // Slabs for gradients that left the device. With clipping, one for each gradient that waits on the host.
  int64_t host_gradients = 0;
  int64_t gradient_slabs = 0;  // slabs that gradients waiting on disk or on the device pass through
  // Slabs that moments on disk pass through. With 2 or more, moments are read ahead of the updates.
  int64_t moment_slabs = 0;
  int64_t weight_slabs = 0;  // slabs that weights pass through on their way from disk or files to the device
  // Slabs that inputs and kept outputs on disk pass through, one micro-batch each.
  int64_t activation_slabs = 0;
  bool operator==(const Rings&) const = default;

  template <class Visit>
  static void each_field(Visit&& visit) {
    visit("weight_slots", &Rings::weight_slots);
    visit("small_slots", &Rings::small_slots);
    visit("packed_slots", &Rings::packed_slots);
    visit("visit_slots", &Rings::visit_slots);
    visit("input_slots", &Rings::input_slots);
    visit("output_slots", &Rings::output_slots);
    visit("gradients_out", &Rings::gradients_out);
    visit("host_gradients", &Rings::host_gradients);
    visit("gradient_slabs", &Rings::gradient_slabs);
    visit("moment_slabs", &Rings::moment_slabs);
    visit("weight_slabs", &Rings::weight_slabs);
    visit("activation_slabs", &Rings::activation_slabs);
  }
};

struct Plan {
  int64_t experts_per_record = 0;   // as in the workload, whose records the plan places
  std::vector<RecordPlan> records;  // (all records)
  std::vector<PhasePlan> phases;    // (all phases)
  Rings rings;
  std::vector<int64_t> sweeps;  // micro-batches in each sweep; they add up to those of the step
  // The input of every input_every-th phase is kept as a boundary. Backward recomputes the inputs in between from it.
  int64_t input_every = 1;
  bool serial = false;  // for ablations: every action waits for the one before
  bool operator==(const Plan&) const = default;

  const RecordPlan& record(int64_t r) const { return records[static_cast<size_t>(r)]; }
  RecordPlan& record(int64_t r) { return records[static_cast<size_t>(r)]; }
  const PhasePlan& phase(int64_t p) const { return phases[static_cast<size_t>(p)]; }
  PhasePlan& phase(int64_t p) { return phases[static_cast<size_t>(p)]; }

  // The phases of the layers: all but the embedding's and the head's.
  std::span<const PhasePlan> layer_phases() const { return std::span(phases).subspan(1, phases.size() - 2); }
  std::span<PhasePlan> layer_phases() { return std::span(phases).subspan(1, phases.size() - 2); }

  bool state_on_device(int64_t r) const { return record(r).state == Tier::hbm; }
  bool weights_on_disk(int64_t r) const { return record(r).state == Tier::disk; }
  bool weights_in_files(int64_t r) const { return record(r).state == Tier::files; }
  bool weights_staged(int64_t r) const { return weights_on_disk(r) || weights_in_files(r); }  // pass through a slab
  bool moments_on_disk(int64_t r) const { return record(r).moments == Tier::disk; }
  bool gradient_on_disk(int64_t r) const { return record(r).gradient == Tier::disk; }
  bool updated_on_device(int64_t r) const { return record(r).updated_by == UpdatedBy::device; }
  bool visiting(int64_t r) const { return updated_on_device(r) && !state_on_device(r); }
  bool takes_turns(int64_t r) const { return rings.visit_slots > 0 && visiting(r); }
  bool gradient_leaves(int64_t r) const { return !updated_on_device(r) || takes_turns(r); }

  // How the weights of a layer record that lives off the device reach it: copied into device memory of their own, or
  // streamed through a slot.
  bool copied(int64_t r) const { return !state_on_device(r) && record(r).weights == Tier::hbm; }
  bool streams(int64_t r) const { return !state_on_device(r) && record(r).weights == Tier::host; }
  // A packed record that lives on the device is unpacked into a slot too.
  bool takes_slot(const Workload& w, int64_t r) const {
    return w.is_layer_record(r) && (streams(r) || (w.is_packed(r) && state_on_device(r)));
  }

  bool outputs_wait_elsewhere() const {
    return std::ranges::any_of(phases, [](const PhasePlan& p) { return p.outputs != Tier::hbm; });
  }
  bool activations_on_disk() const {
    return std::ranges::any_of(phases,
                               [](const PhasePlan& p) { return p.input == Tier::disk || p.outputs == Tier::disk; });
  }
  // The distance in phases from p down to the nearest kept input; 0: p's own input is kept. `first`: the lowest phase
  // that has a backward.
  int64_t above_boundary(int64_t p, int64_t first) const { return (p - std::max<int64_t>(1, first)) % input_every; }

  // The number of lanes on which the device updates. Each has its own marks for non-finite values.
  int64_t update_lanes() const { return rings.visit_slots > 0 ? 2 : 1; }

  int64_t visitors() const {
    return count([this](int64_t r) { return visiting(r); });
  }
  int64_t with_moments_on_disk() const {
    return count([this](int64_t r) { return moments_on_disk(r); });
  }
  int64_t with_weights_on_disk() const {
    return count([this](int64_t r) { return weights_on_disk(r); });
  }
  int64_t with_weights_in_files() const {
    return count([this](int64_t r) { return weights_in_files(r); });
  }
  int64_t with_weights_staged() const {
    return count([this](int64_t r) { return weights_staged(r); });
  }
  int64_t packed_and_coming(const Workload& w) const {  // packed records that cross the link
    return count([&](int64_t r) { return w.is_packed(r) && !state_on_device(r); });
  }
  int64_t streaming(const Workload& w) const {
    return count([&](int64_t r) { return w.is_layer_record(r) && record(r).weights == Tier::host; });
  }

  // leaving() counts the trained layer records whose gradients leave the device. Some of these gradients wait on disk
  // or still on the device (waiting_elsewhere), the others on the host (waiting_on_host).
  int64_t leaving(const Workload& w) const {
    return count([&](int64_t r) { return w.is_layer_record(r) && w.is_trained(r) && gradient_leaves(r); });
  }
  int64_t waiting_elsewhere() const {
    return count([this](int64_t r) { return record(r).gradient != Tier::host; });
  }
  int64_t waiting_on_host(const Workload& w) const { return leaving(w) - waiting_elsewhere(); }

 private:
  template <class Holds>
  int64_t count(const Holds& holds) const {
    int64_t found = 0;
    for (int64_t r = 0; r < std::ssize(records); ++r) found += holds(r);
    return found;
  }
};

}  // namespace megatrain
