// The plan decides where each byte lives and when it moves, never what it becomes: every valid plan of a workload gives
// the same bits. It is the one place that decides; everything below obeys it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/plan/keep.h"
#include "megatrain/plan/machine_profile.h"
#include "megatrain/plan/workload.h"
#include "megatrain/tensor/tier.h"

namespace megatrain {

struct Plan {
  int64_t experts_per_record = 0;  // as the workload has it: a plan is one of records cut so
  int64_t slots = 2;               // device slots that layer records stream through, each as large as the largest
  std::vector<Tier> weights;       // (layer records) hbm: a place of its own, fetched once a step; host: streamed
  std::vector<Tier> state;     // (records) hbm: weights and optimizer state live on the device, which updates them; the
                               // gradient never leaves it. host: they live in host memory
  std::vector<bool> visits;    // (layer records) the state lives on the host and visits the device to be updated there
  int64_t visit_slots = 0;     // device slots that visiting states take turns in, each with its gradient, which has
                               // waited on the host; 0: each has a place of its own, and its gradient has stayed
  std::vector<Keep> keep;      // (layer phases) inner activations that wait for backward. Ignored for phases that have
                               // no backward
  std::vector<Tier> outputs;   // (layer phases) where they wait: elsewhere than on the device only where `keep` says
                               // outputs. Ignored for phases that have no backward
  int64_t output_slots = 0;    // device ring for kept outputs that wait elsewhere; 2 or more where some do
  std::vector<Tier> boundary;  // (layer phases) where the phase's input waits for backward. Ignored for phases that
                               // have no backward
  int64_t boundary_every = 1;  // phases of whose inputs one waits: the others are computed again from it in backward
  int64_t boundary_slots = 2;  // device ring for inputs that wait elsewhere; 2 or more
  int64_t boundary_ring = 0;   // slabs of the host that inputs and kept outputs which wait on disk pass through, each
                               // for one micro-batch
  std::vector<int64_t> sweeps;      // micro-batches of each sweep, adding up to the step's
  int64_t gradient_slabs = 2;       // device slabs that rounded gradients leave from
  int64_t host_gradient_slabs = 0;  // that gradients of layers updated by the host wait in; when clipping one for each
                                    // that does not wait elsewhere
  std::vector<bool> disk_moments;   // (records) m and v live on disk and pass through a slab on the host to be updated;
                                    // only of trained records that live on the host and are updated there
  int64_t moment_slabs = 0;         // that they pass through; with 2 or more they are read ahead of the updates
  std::vector<bool> disk_weights;   // (records) weights and low bits live on disk too, and pass through the slab of the
                                    // moments to be updated; only of layer records that live on the host
  int64_t weight_slabs = 0;         // of the host, that weights pass through on their way from disk to the device
  std::vector<Tier> gradients;      // (records) with clipping, where the gradient of a trained layer record that the
                                    // host updates waits for the norm; hbm: in the place of its phase's input
  int64_t gradient_ring = 0;        // slabs of the host that gradients which wait elsewhere pass through
  bool serial = false;              // every action waits for the one before: the ablation
  bool operator==(const Plan&) const = default;

  bool state_on_device(int64_t record) const { return state[static_cast<size_t>(record)] == Tier::hbm; }
  bool visiting(int64_t record) const {
    return record >= 1 && record <= static_cast<int64_t>(visits.size()) && visits[static_cast<size_t>(record - 1)];
  }
  bool moments_on_disk(int64_t record) const {
    return record < static_cast<int64_t>(disk_moments.size()) && disk_moments[static_cast<size_t>(record)];
  }
  bool weights_on_disk(int64_t record) const {
    return record < static_cast<int64_t>(disk_weights.size()) && disk_weights[static_cast<size_t>(record)];
  }
  Tier gradient_of(int64_t record) const {
    return record < static_cast<int64_t>(gradients.size()) ? gradients[static_cast<size_t>(record)] : Tier::host;
  }
  bool gradient_on_disk(int64_t record) const { return gradient_of(record) == Tier::disk; }
  bool updated_on_device(int64_t record) const { return state_on_device(record) || visiting(record); }
  bool takes_turns(int64_t record) const { return visit_slots > 0 && visiting(record); }
  bool gradient_leaves(int64_t record) const { return !updated_on_device(record) || takes_turns(record); }

  // Of a layer's record that lives on the host: its weights have a place of their own on the device, or stream.
  bool copied(int64_t record) const {
    return !state_on_device(record) && weights[static_cast<size_t>(record - 1)] == Tier::hbm;
  }
  bool streams(int64_t record) const {
    return !state_on_device(record) && weights[static_cast<size_t>(record - 1)] == Tier::host;
  }

  // Of a layer's phase.
  Keep keep_of(int64_t phase) const { return keep[static_cast<size_t>(phase - 1)]; }
  Tier boundary_of(int64_t phase) const { return boundary[static_cast<size_t>(phase - 1)]; }
  Tier outputs_of(int64_t phase) const {
    return phase <= static_cast<int64_t>(outputs.size()) && keep_of(phase) == Keep::outputs
               ? outputs[static_cast<size_t>(phase - 1)]
               : Tier::hbm;
  }
  bool outputs_wait_elsewhere() const {
    return std::any_of(outputs.begin(), outputs.end(), [](Tier tier) { return tier != Tier::hbm; });
  }
  bool activations_on_disk() const {  // inputs or kept outputs
    return std::count(boundary.begin(), boundary.end(), Tier::disk) +
               std::count(outputs.begin(), outputs.end(), Tier::disk) >
           0;
  }
  // Phases above the nearest one below whose input waits; 0: its own does. `first`: the lowest that has a backward.
  int64_t above_boundary(int64_t phase, int64_t first) const {
    return (phase - std::max<int64_t>(1, first)) % boundary_every;
  }

  // Trained layer records whose gradients leave; those of them whose gradients wait on the host, and that do not.
  int64_t leaving(const Workload& workload) const;
  int64_t waiting_elsewhere() const {
    return std::ssize(gradients) - std::count(gradients.begin(), gradients.end(), Tier::host);
  }
  int64_t waiting_on_host(const Workload& workload) const { return leaving(workload) - waiting_elsewhere(); }
};

struct Estimate {
  double step_s = 0;
  double compute_s = 0, h2d_s = 0, d2h_s = 0, update_s = 0, disk_read_s = 0, disk_write_s = 0;
  std::string bound_by;
};
// Walks three steps of the schedule and reports the third. Micro-batches of a sweep are taken together where that
// changes nothing: unless inputs or kept outputs of phases cross the link, and then where there are many. Of many
// sweeps the first are walked.
Estimate estimate(const Workload& workload, const Plan& plan, const MachineProfile& machine);
// The same with the micro-batches of a sweep in at most `groups` actions.
Estimate estimate(const Workload& workload, const Plan& plan, const MachineProfile& machine, int64_t groups);

// No step of the plan is estimated to be shorter. Cheap: no schedule is made.
double least_seconds(const Workload& workload, const Plan& plan, const MachineProfile& machine);

// What bounds a step: compute, unless it stalls and another lane is busy enough to be why. Busy seconds by lane.
std::string bounding_lane(double step_s, double compute_s, const std::map<std::string, double>& others);

// Weight bytes that cross to the device in one step.
int64_t fetched_weight_bytes(const Workload& workload, const Plan& plan);

// Of attention in one step, what is computed again included.
double attention_flops(const Workload& workload, const Plan& plan);

struct Budgets {
  int64_t gpu_bytes = 0;  // of the device, driver's own share included
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;       // 0: nothing lives on disk
  bool device_is_host = false;  // gpu_bytes are host memory too: the CPU computes
  bool state_on_host = false;   // all state lives on the host; at most kVisitingBytes of it are on the device at a time
};
inline constexpr int64_t kVisitingBytes = int64_t{8} << 30;

// The plan with the least estimated step within the budgets. Throws Error(cannot_fit) before anything is allocated; the
// message says what is needed, what is there, and what would fit. `notes` receives what was given up to fit.
Plan make_plan(const Workload& workload, const Budgets& budgets, const MachineProfile& machine,
               std::vector<std::string>* notes);

// Whether make_plan() finds one. Quicker: plans that fit are not compared.
bool can_fit(const Workload& workload, const Budgets& budgets, const MachineProfile& machine);

// Some valid plan: varies everything a plan may vary.
Plan random_plan(const Workload& workload, uint64_t seed);

// Throws Error(bad_config) naming the field that is wrong for this workload.
void check_plan(const Workload& workload, const Plan& plan);
// Throws Error(cannot_fit) when the plan needs more than the budgets. `least_disk_bytes` is the disk with which some
// plan would fit where this one lacks host memory; none: no disk helps.
void check_fit(const Workload& workload, const Plan& plan, const Budgets& budgets,
               std::optional<int64_t> least_disk_bytes = {});

nlohmann::json plan_to_json(const Plan& plan);
Plan plan_from_json(const nlohmann::json& json, const std::string& where);
std::string plan_hash(const Plan& plan);

// "state: fp32 moments and master, exact", or what is not.
std::string describe(StateFormat format);

// "20.9B parameters (3.61B active)"; of a dense model the first number alone.
std::string describe_parameters(const Workload& workload);

// Which experts of its layer a record holds: "experts 9 to 16" or "expert 9", counted from 1, or "experts" where it
// holds them all; empty for a record of anything else.
std::string experts_of(const Workload& workload, int64_t record);

// "layer 3", or "experts 9 to 16 of layer 3". Layer 0 is the embedding, the one after the last layer the head.
std::string describe_record(const Workload& workload, int64_t record);

// Lines for a person: placement, memory by tag, what bounds the step.
std::string explain(const Workload& workload, const Plan& plan, const Estimate& estimate);

}  // namespace megatrain
