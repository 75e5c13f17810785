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

namespace megatrain {

enum class Lane : uint8_t { h2d, compute, d2h, update, gather };
inline constexpr int kLanes = 5;
const char* lane_name(Lane lane);

enum class ActionKind : uint8_t {
  // gather: host work
  gather_rows,  // touched embedding rows into the staging buffer
  // h2d
  fetch_inputs,    // ids, labels, positions, documents
  fetch_rows,      // staged embedding rows
  fetch_weights,   // a record's weights into a slot
  fetch_boundary,  // a block's input of one micro-batch back from the host
  fetch_state,     // a visiting layer's weights and optimizer state
  // compute
  embed_forward,
  block_forward,
  head,  // forward, loss and backward
  block_backward,
  embed_backward,
  merge_rows,       // tied: the embedding's row gradients into the head's table gradient
  finish_gradient,  // round once, sum the squares
  finish_losses,
  clip_factor,       // from the sums of squares: of all records, or of this one without clipping
  update_on_device,  // state that lives on the device or visits it
  // d2h
  offload_boundary,
  offload_gradient,  // with the record's sum of squares
  report,            // losses and sums of squares
  return_state,      // a visiting layer's, updated
  // update: host work
  update,
};
const char* action_name(ActionKind kind);

// Memory an action touches. `a` and `b` tell instances of a kind apart.
enum class ResourceKind : uint8_t {
  record_weights,  // where the record lives, a = record
  record_state,    // where the record lives, a = record
  visiting_state,  // device, a = record
  staged_rows,     // host
  device_rows,
  inputs,            // device
  weight_slot,       // a = slot
  resident_weights,  // a = block
  head_slot,
  boundary,           // device: a = block (own place), b = micro-batch
  boundary_slot,      // device: a = slot, b = micro-batch
  host_boundary,      // a = block, b = micro-batch
  kept,               // device: a = block, b = micro-batch: inner activations
  gradient_stream,    // a = micro-batch
  gradient_sum,       // a = slab
  head_gradient_sum,  // a = 0 the head's own tensors, 1 the tied table
  row_gradient_sum,
  gradient_out,       // a = slab
  head_gradient_out,  // a = 0 the head's own tensors, 1 the tied table
  row_gradient_out,
  host_gradient,         // a = slab of the block ring
  host_record_gradient,  // a = record: the embedding's or the head's
  losses,                // a = micro-batch
  squares,               // device, a = record
  loss_sums,             // device
  clip,                  // device: the clip factor
  host_squares,          // a = record
  host_report,
};
const char* resource_name(ResourceKind kind);

struct Resource {
  ResourceKind kind;
  int64_t a = 0;
  int64_t b = 0;
  auto operator<=>(const Resource&) const = default;
};

struct Access {
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

struct Action {
  ActionKind kind;
  Lane lane;
  int64_t record = -1;  // 0 embedding, 1..L blocks, L + 1 head
  int64_t micro_batch = -1;
  bool training = true;        // head: with its backward
  int64_t weights_at = -1;     // slot of the ring; -1: the record's own place
  int64_t boundary_in = -1;    // boundary slot of the input; -1: its own place
  int64_t boundary_out = -1;   // block_forward, embed_forward: boundary slot of the output
  Keep keep = Keep::nothing;   // block_forward, block_backward
  int64_t gradient_sum = -1;   // slab
  int64_t gradient_out = -1;   // slab
  int64_t host_gradient = -1;  // slab of the block ring
  std::vector<Access> accesses;
  std::vector<Wait> waits;
};

struct Schedule {
  std::vector<Action> actions;
  bool training = true;  // false: forward and losses only

  std::string hash() const;  // of lanes, kinds, places and waits
};

enum class StepMode : uint8_t { train, evaluate };
Schedule build_schedule(const Workload& workload, const Plan& plan, StepMode mode);

}  // namespace megatrain
