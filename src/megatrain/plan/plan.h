// The plan decides where each byte lives and when it moves, never what it becomes: every valid plan of a workload gives
// the same bits. It is the one place that decides; everything below obeys it.
//
// A plan is a value for every record and one for every phase, and the sizes of the rings that they pass through. A new
// place for bytes is a field of one of these: `each_field` names it for JSON, and check_plan says what it may be.
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
  Tier weights = Tier::host;  // where a layer's phase reads them. hbm: a place of their own, where they live or which
                              // is filled once a step; host: a slot that they stream through
  Tier state = Tier::host;    // where weights and low bits live; hbm: with the moments. disk: layers' alone
  Tier moments = Tier::host;  // where m and v live. disk: of trained records that the host updates, in a slab meanwhile
  Tier gradient = Tier::host;  // with clipping, where the rounded gradient of a layer that the host updates waits for
                               // the norm; hbm: in the place of its phase's input
  UpdatedBy updated_by = UpdatedBy::host;  // device: the state lives there, or visits it to be updated
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
  Keep keep = Keep::nothing;  // inner activations that wait for backward: a level of the phase's list
  Tier outputs = Tier::hbm;   // where they wait: elsewhere than on the device only where the level may
  Tier input = Tier::hbm;     // where the phase's input waits; the head's waits on the device
  bool operator==(const PhasePlan&) const = default;

  template <class Visit>
  static void each_field(Visit&& visit) {
    visit("keep", &PhasePlan::keep);
    visit("outputs", &PhasePlan::outputs);
    visit("input", &PhasePlan::input);
  }
};

// How many pieces of memory things take turns in. A ring that nothing passes through has none, unless it says so.
struct Rings {
  // of the device
  int64_t weight_slots = 2;   // that layers' records stream through, each as large as the largest; kept when none does
  int64_t small_slots = 0;    // likewise, of records far smaller than the largest (slot_rings.h)
  int64_t packed_slots = 0;   // that packed weights come through on their way to a slot or a place of their own
  int64_t visit_slots = 0;    // that visiting states take turns in, each with its gradient, which has waited on the
                              // host; 0: each has a place of its own, and its gradient has stayed
  int64_t input_slots = 2;    // of phases' inputs that wait elsewhere, or do not wait; at least 2
  int64_t output_slots = 0;   // of kept outputs that wait elsewhere; 2 or more where some do
  int64_t gradients_out = 2;  // that rounded gradients leave from; at least 1
  // of the host
  int64_t host_gradients = 0;    // that gradients which leave wait in; when clipping one for each that waits there
  int64_t gradient_slabs = 0;    // that gradients which wait elsewhere pass through
  int64_t moment_slabs = 0;      // that moments on disk pass through; with 2 or more they are read ahead of the updates
  int64_t weight_slabs = 0;      // that weights pass through on their way from disk to the device
  int64_t activation_slabs = 0;  // that inputs and kept outputs which wait on disk pass through, one micro-batch each
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
  int64_t experts_per_record = 0;   // as the workload has it: a plan is one of records cut so
  std::vector<RecordPlan> records;  // (all records)
  std::vector<PhasePlan> phases;    // (all phases)
  Rings rings;
  std::vector<int64_t> sweeps;  // micro-batches of each sweep, adding up to the step's
  int64_t input_every = 1;      // phases of whose inputs one waits: the others are computed again from it in backward
  bool serial = false;          // every action waits for the one before: the ablation
  bool operator==(const Plan&) const = default;

  const RecordPlan& record(int64_t r) const { return records[static_cast<size_t>(r)]; }
  RecordPlan& record(int64_t r) { return records[static_cast<size_t>(r)]; }
  const PhasePlan& phase(int64_t p) const { return phases[static_cast<size_t>(p)]; }
  PhasePlan& phase(int64_t p) { return phases[static_cast<size_t>(p)]; }

  // Without the embedding's and the head's.
  std::span<const PhasePlan> layer_phases() const { return std::span(phases).subspan(1, phases.size() - 2); }
  std::span<PhasePlan> layer_phases() { return std::span(phases).subspan(1, phases.size() - 2); }

  bool state_on_device(int64_t r) const { return record(r).state == Tier::hbm; }
  bool weights_on_disk(int64_t r) const { return record(r).state == Tier::disk; }
  bool moments_on_disk(int64_t r) const { return record(r).moments == Tier::disk; }
  bool gradient_on_disk(int64_t r) const { return record(r).gradient == Tier::disk; }
  bool updated_on_device(int64_t r) const { return record(r).updated_by == UpdatedBy::device; }
  bool visiting(int64_t r) const { return updated_on_device(r) && !state_on_device(r); }
  bool takes_turns(int64_t r) const { return rings.visit_slots > 0 && visiting(r); }
  bool gradient_leaves(int64_t r) const { return !updated_on_device(r) || takes_turns(r); }

  // The weights of a layer's record that does not live on the device have a place of their own there, or stream.
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
  // Phases above the nearest one below whose input waits; 0: its own does. `first`: the lowest that has a backward.
  int64_t above_boundary(int64_t p, int64_t first) const { return (p - std::max<int64_t>(1, first)) % input_every; }

  // Lanes that the device updates on, each with marks of its own of what is not finite.
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
  int64_t packed_and_coming(const Workload& w) const {  // over the link
    return count([&](int64_t r) { return w.is_packed(r) && !state_on_device(r); });
  }
  int64_t streaming(const Workload& w) const {
    return count([&](int64_t r) { return w.is_layer_record(r) && record(r).weights == Tier::host; });
  }

  // Trained layer records whose gradients leave; those of them whose gradients wait on the host, and that do not.
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
