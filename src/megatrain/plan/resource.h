// The memory of a step by name: what actions read and write, what the inventory counts, what the engine allocates.
#pragma once

#include <cstdint>

namespace megatrain {

// `a` and `b` tell instances of a kind apart.
enum class ResourceKind : uint8_t {
  // on the device, unless the record lives on the host
  record_weights,  // where the record lives, a = record
  record_state,    // where the record lives, a = record: the three planes below, which actions never name apart
  low_bits,        // a = record: of the fp32 master, beside bf16 weights
  first_moments,   // a = record
  second_moments,  // a = record
  // on the device
  driver,               // what the driver holds
  weight_slot,          // a = slot of the ring
  small_slot,           // a = slot of the ring of small records (slot_rings.h)
  packed_slot,          // a = slot of the ring: packed weights that have come and are not unpacked yet
  resident_weights,     // a = record: a copy of its own
  visiting_state,       // a = record, or the slot where visits take turns: what is trained of its weights and state
  visiting_gradient,    // a = slot: rounded, of the record that visits there
  gradient_sum,         // a = record: a slab of its own
  shared_gradient_sum,  // a = place: the slab that layers share for their records at that place of a phase
  device_gradient,      // a = record: rounded, until the device may update it, where it takes no boundary's place
  row_gradient_sum,     // a = record: of the rows that a step looks up
  gradient_out,         // a = slab: rounded, on its way out
  record_gradient_out,  // a = record: the same, of one that takes no turns
  device_rows,          // a = record: the rows that a step looks up
  kept,                 // a = phase, b = micro-batch of the sweep: inner activations in a place of their own
  kept_slot,            // a = slot, b = micro-batch of the sweep: kept outputs that wait elsewhere
  carried,              // b = micro-batch of the sweep: what parts of a phase hand on
  boundary,             // a = phase, b = micro-batch of the sweep: its input in a place of its own
  boundary_slot,        // a = slot, b = micro-batch of the sweep
  recomputed,           // a = phases above the boundary, b = micro-batch of the sweep: a phase's input, computed again
  gradient_stream,      // a = 0 or 1, b = micro-batch of the sweep: 1 only where a phase changes the width
  shared,               // a = phase, b = micro-batch of the sweep: what later phases read beside its output
  shared_gradient,      // a = phase, b = micro-batch of the sweep: the gradient of that
  workspace,
  ops_scratch,
  generation,  // what generating between steps takes beyond the memory that is idle then
  inputs,
  rope_table,
  losses,   // b = micro-batch
  correct,  // b = micro-batch
  norm_partials,
  squares,  // a = record: a sum for each part of its gradient; records follow each other
  loss_sums,
  router_counts,  // a = phase: what a step counts of its router
  router_slopes,  // the gradient of the loss that balances the experts, by an expert's probability
  clip,           // the clip factor
  not_finite,     // a = 0 or 1: marked by updates on compute, on visit; b = 0: in this step, 1: in the one before
  // on the host
  process,
  host_gradient,         // a = record with clipping, unless it waits elsewhere; else the slab of the ring
  host_record_gradient,  // a = record that takes no turns
  host_boundary,         // a = phase, b = micro-batch
  host_kept,             // a = phase, b = micro-batch: its kept outputs
  boundary_slab,  // a = slab of the ring: an input or kept outputs of one micro-batch on their way to disk or back
  staged_rows,    // a = record
  staged_inputs,
  host_report,   // sums of squares, sums of losses, what is not finite, what was counted of routers
  host_squares,  // a = record
  moment_slab,  // a = slab of the ring: m and v of a record whose moments live on disk, behind its weights and low bits
                // where these live there
  weight_slab,  // a = slab of the ring: weights on their way from disk to the device
  gradient_slab,  // a = slab of the ring: a gradient that waits elsewhere, on its way
  // on disk
  disk_weights,   // a = record
  disk_low_bits,  // a = record
  disk_moments,   // a = record: its m and v, at a block each
  disk_gradient,  // a = record: rounded, until the host may update it
  disk_boundary,  // a = phase, b = micro-batch: its input
  disk_kept,      // a = phase, b = micro-batch: its kept outputs
};
inline constexpr int kResourceKinds = static_cast<int>(ResourceKind::disk_kept) + 1;
const char* resource_name(ResourceKind kind);

// Activations, the workspace and weights on their way: a step or an evaluation writes them before it reads them, so
// that between two of them anything may be there. On the device alone.
bool is_idle_between_steps(ResourceKind kind);

// Kinds that share one allocation start at multiples of it: kernels may be chosen by alignment.
inline constexpr int64_t kKindAlignment = 256;

struct Resource {
  ResourceKind kind;
  int64_t a = 0;
  int64_t b = 0;
  auto operator<=>(const Resource&) const = default;
};

// Where the instance lies in the step with this number. Marks of what is not finite alternate: a step's report reads
// what the updates of the step before have marked, while its own updates mark the other.
inline Resource in_step(Resource r, int64_t step) {
  if (r.kind == ResourceKind::not_finite) r.b = (step + r.b) % 2;
  return r;
}

}  // namespace megatrain
