// A step as data: actions on lanes, the memory each reads and writes, and the waits that order them.
//
// A lane is an in-order queue. Actions on different lanes are ordered only by waits. Actions are listed in a sequential
// order that would be correct if they ran one at a time. Waits are derived from the accesses (order.h) so that no
// conflicting pair can overlap. verify.h proves this independently, from the waits alone. Since the step repeats
// indefinitely, a wait may reach one step back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/plan/plan.h"
#include "megatrain/plan/resource.h"

namespace megatrain {

enum class Lane : uint8_t { h2d, compute, d2h, update, gather, collect, disk_read, disk_write, visit_in, visit };
inline constexpr int kLanes = 10;
const char* lane_name(Lane lane);

enum class ActionKind : uint8_t {
  // gather: host work
  gather_rows,  // touched embedding rows into the staging buffer
  // h2d
  fetch_inputs,       // ids, labels, positions, documents
  fetch_rows,         // staged embedding rows
  fetch_weights,      // a record's weights into a slot
  fetch_activations,  // a phase's input or kept outputs of one micro-batch, from the host
  // A visiting layer's weights and optimizer state. If visits take turns, it runs on visit_in, brings the gradient too,
  // and overlaps the next step.
  fetch_state,
  // compute
  forward,          // one phase
  head,             // the phase that computes the losses: forward, losses and, in training, backward
  recompute,        // for a phase in parts, before its backward
  balance_experts,  // gradients ("slopes") of the load-balancing loss, from the router choices of the whole step
  backward,
  unpack_weights,   // a packed record's weights, into the compute form
  merge_rows,       // adds the gradients of looked-up rows to the gradient of the whole table
  finish_gradient,  // rounds once and sums the squares
  finish_losses,
  clip_factor,       // from the sums of squares of all records; without clipping, of this record only
  update_on_device,  // state that lives on or visits the device; runs on lane visit if visits take turns
  // d2h
  offload_activations,
  offload_gradient,  // with the record's sums of squares
  report,            // losses and sums of squares
  return_state,      // a visiting layer's updated state
  // collect: host work
  collect_gradient,  // a gradient that waited on the device
  // update: host work
  update,
  // disk_read
  stage_weights,     // a record's weights into a slab that fetch_weights reads
  fetch_moments,     // a record's moments into a slab, with its weights and low bits if they live on disk
  fetch_gradient,    // a record's gradient into a slab
  read_activations,  // one micro-batch into a slab that fetch_activations reads
  // disk_write
  return_moments,     // the updated planes, from the slab
  store_gradient,     // a gradient, until the norm is known
  store_activations,  // one micro-batch, until backward
};
const char* action_name(ActionKind kind);

// The role of a resource in an action.
enum class Operand : uint8_t {
  from,           // source of a copy
  to,             // destination of a copy
  weights,        // one operand for each record that the phase needs whole, in their order
  rows,           // of a looked-up table
  row_sum,        // the fp32 sum of the rows' gradients
  inputs,         // ids, labels, positions, documents
  tables,         // cosines and sines for RoPE
  x,              // a phase's input
  y,              // its output
  grad_y,         // the gradient of its output
  grad_x,         // the gradient of its input
  kept,           // inner activations kept for backward
  between_parts,  // data that one part of a phase hands to the next
  shared,         // an activation that a phase produces for later ones besides its output
  grad_shared,
  read,  // such an activation of an earlier phase
  grad_read,
  workspace,  // of a phase
  sum,        // fp32 sum of a gradient; in a phase one operand for each trained record, in their order
  // The rounded gradient, on its way out or waiting. Several operands if it overlays the phase's inputs of several
  // micro-batches.
  rounded,
  partials,  // partial sums of the norm
  squares,   // a record's sums of squares
  losses,
  correct,
  loss_sums,
  // The counts of the phase's router. In balance_experts and report: one operand for each phase with a router, in
  // order.
  router_counts,
  router_slopes,
  clip,
  state,  // a record's optimizer state, which an update changes
  // If the moments live on disk, the slab that holds them and all other state of the record that lives on disk.
  moments,
  after,       // ordering only: the action may not begin before this has been written
  not_finite,  // where an update marks its record, and where the report reads the marks
};

struct Access {
  Operand as;
  Resource resource;
  bool write;
};

// A kind of wait in the pipeline: which memory it protects, and between which lanes.
struct WaitKind {
  ResourceKind resource;
  Lane from, to;
  auto operator<=>(const WaitKind&) const = default;
};
std::string wait_kind_name(const WaitKind& kind);

struct Wait {
  int64_t action;      // index into the step
  int64_t steps_back;  // 0 or 1
  WaitKind kind;
  auto operator<=>(const Wait&) const = default;
};

// The accesses cover all memory that the action touches, so the proof holds for the step that really runs.
struct Action {
  ActionKind kind;
  Lane lane;
  int64_t phase = -1;
  int64_t part = 0;     // which part of the phase
  int64_t record = -1;  // the record that it moves or updates; for a part of a phase, the part's first record
  int64_t micro_batch = -1;
  int64_t micro_batches = 1;  // more than one only when a step is costed, not run
  Keep keep = Keep::nothing;  // for a phase that has a backward
  bool repeated = false;      // a repeated forward: the kept activations are already there
  std::vector<Access> accesses;
  std::vector<Wait> waits;

  int64_t count(Operand operand) const;
  bool has(Operand operand) const { return count(operand) > 0; }
  const Resource& at(Operand operand, int64_t nth = 0) const;  // internal error if there is none
};

// Bytes of activations of one micro-batch that the action moves between device, host and disk: the phase's input, or
// its kept outputs.
int64_t moved_activation_bytes(const Workload& workload, const Action& action);

struct Schedule {
  std::vector<Action> actions;
  bool training = true;  // false: forward and losses only

  std::string hash() const;  // over lanes, kinds, places and waits
};

enum class StepMode : uint8_t { train, evaluate };
Schedule build_schedule(const Workload& workload, const Plan& plan, StepMode mode);

// The actions of a training step without waits, with the micro-batches of a sweep grouped into at most `groups`
// actions. The cost of a step depends little on how finely it is divided.
std::vector<Action> grouped_actions(const Workload& workload, const Plan& plan, int64_t groups);

}  // namespace megatrain
