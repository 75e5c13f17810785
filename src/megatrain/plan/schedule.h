// A step as data: actions on lanes, the memory each reads and writes, and the waits that order them.
//
// Lanes are in-order queues; between lanes only waits order anything. Actions stand in one sequential order that would
// be correct if each ran alone; waits are derived from the accesses (order.h) so that no conflicting pair can overlap,
// and verify.h proves it again from the waits alone. A wait may reach one step back: the step repeats for ever.
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
  fetch_activations,  // a phase's input or kept outputs of one micro-batch back from the host
  fetch_state,  // a visiting layer's weights and optimizer state; on visit_in, with its gradient, where visits take
                // turns: they go on while the next step begins
  // compute
  forward,          // of a phase
  head,             // of the phase that has the losses: forward, losses and, in training, backward
  recompute,        // of a phase in parts, whose backward then begins
  balance_experts,  // the slopes of the loss that does so, from the whole step's choices
  backward,
  unpack_weights,   // a packed record's, into the form that computes
  merge_rows,       // the gradients of rows that were looked up into the gradient of their whole table
  finish_gradient,  // round once, sum the squares
  finish_losses,
  clip_factor,       // from the sums of squares: of all records, or of this one without clipping
  update_on_device,  // state that lives on the device or visits it; on visit where visits take turns
  // d2h
  offload_activations,
  offload_gradient,  // with the record's sums of squares
  report,            // losses and sums of squares
  return_state,      // a visiting layer's, updated
  // collect: host work
  collect_gradient,  // that has waited on the device
  // update: host work
  update,
  // disk_read
  stage_weights,     // a record's into a slab that fetch_weights reads
  fetch_moments,     // a record's into a slab, with its weights and low bits where they live on disk
  fetch_gradient,    // likewise
  read_activations,  // of one micro-batch into a slab that fetch_activations reads
  // disk_write
  return_moments,     // updated, from the slab
  store_gradient,     // until the norm is known
  store_activations,  // until backward
};
const char* action_name(ActionKind kind);

// What a resource is to an action.
enum class Operand : uint8_t {
  from,     // of a copy
  to,       // of a copy
  weights,  // of a phase: one for each of its records that it needs whole, in their order
  rows,     // of a table that it looks up
  row_sum,  // the fp32 sum of their gradients
  inputs,   // ids, labels, positions, documents
  tables,   // of cosines and sines
  x,        // a phase's input
  y,        // its output
  grad_y,   // the gradient of its output
  grad_x,   // the gradient of its input
  kept,     // inner activations that wait for backward
  carried,  // what parts of a phase hand on
  shared,   // what a phase makes for later ones beside its output
  grad_shared,
  read,  // what another phase has made so
  grad_read,
  workspace,  // of a phase
  sum,        // the fp32 sum of a gradient; of a phase one for each of its trained records, in their order
  rounded,    // that gradient on its way out, or waiting; more than one where it lies over inputs of a phase
  partials,   // of the norm
  squares,    // a record's sums of squares
  losses,
  correct,
  loss_sums,
  router_counts,  // of a phase; of all phases that have them, in order, where they become slopes or are reported
  router_slopes,
  clip,
  state,    // a record's, which an update changes
  moments,  // of the state, where they live on disk: the slab they are in, with all else of the state that lives there
  after,    // only orders: the action needs what was known before
  not_finite,  // where an update marks its record, and where the report finds the marks
};

struct Access {
  Operand as;
  Resource resource;
  bool write;
};

// Which memory a wait protects, and between which lanes: the kinds of wait the pipeline has.
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

// Its operands are all the memory it touches, so that the proof speaks of what is done.
struct Action {
  ActionKind kind;
  Lane lane;
  int64_t phase = -1;
  int64_t part = 0;     // of the phase
  int64_t record = -1;  // that it moves or updates; of a part of a phase its first
  int64_t micro_batch = -1;
  int64_t micro_batches = 1;  // more than one only where a step is costed, not run
  Keep keep = Keep::nothing;  // of a phase that has a backward
  bool again = false;         // a forward that has run before, so that what is kept is there
  std::vector<Access> accesses;
  std::vector<Wait> waits;

  int64_t count(Operand operand) const;
  bool has(Operand operand) const { return count(operand) > 0; }
  const Resource& at(Operand operand, int64_t nth = 0) const;  // an internal error when there is none
};

// Bytes of the activations that an action moves between the device, the host and the disk, of one micro-batch: the
// phase's input, or its kept outputs.
int64_t moved_activation_bytes(const Workload& workload, const Action& action);

struct Schedule {
  std::vector<Action> actions;
  bool training = true;  // false: forward and losses only

  std::string hash() const;  // of lanes, kinds, places and waits
};

enum class StepMode : uint8_t { train, evaluate };
Schedule build_schedule(const Workload& workload, const Plan& plan, StepMode mode);

// The actions of a training step without waits, the micro-batches of a sweep taken together in at most `groups`
// actions: what a step costs depends little on how finely it is cut.
std::vector<Action> grouped_actions(const Workload& workload, const Plan& plan, int64_t groups);

}  // namespace megatrain
