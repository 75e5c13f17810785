// Names for the memory of a step. Actions read and write it, the inventory counts it, and the engine allocates it.
#pragma once

#include <cstdint>

namespace megatrain {

// `a` and `b` distinguish instances of a kind.
enum class ResourceKind : uint8_t {
  // on the device, unless the record lives on the host
  record_weights,  // where the record lives, a = record
  // a = record: where the record lives. It covers the three planes below, which actions never name separately.
  record_state,
  low_bits,        // a = record: the low half of the fp32 master, next to bf16 weights
  first_moments,   // a = record
  second_moments,  // a = record
  // on the device
  driver,            // memory that the driver holds
  weight_slot,       // a = slot of the ring
  small_slot,        // a = slot of the ring of small records (slot_rings.h)
  packed_slot,       // a = slot of the ring: packed weights that have arrived and are not unpacked yet
  resident_weights,  // a = record: a device copy of its own
  // a = record, or the slot if visits take turns: the trained part of its weights and state
  visiting_state,
  visiting_gradient,  // a = slot: the rounded gradient of the record that visits there
  gradient_sum,       // a = record: a slab of its own
  // a = index of a record within its phase: the slab that layers share for their records with that index
  shared_gradient_sum,
  // a = record: the rounded gradient, until the device may update. Only if it does not reuse the memory of a boundary.
  device_gradient,
  row_gradient_sum,     // a = record: gradient sums for the rows that a step looks up
  gradient_out,         // a = slab: a rounded gradient, on its way out
  record_gradient_out,  // a = record: like gradient_out, for records that do not share the ring
  device_rows,          // a = record: the rows that a step looks up
  kept,                 // a = phase, b = micro-batch of the sweep: kept inner activations, in memory of their own
  kept_slot,            // a = slot, b = micro-batch of the sweep: kept outputs that wait off the device
  between_parts,        // b = micro-batch of the sweep: data that one part of a phase hands to the next
  boundary,             // a = phase, b = micro-batch of the sweep: its input, in memory of its own
  boundary_slot,        // a = slot, b = micro-batch of the sweep
  // a = phases above the boundary, b = micro-batch of the sweep: a recomputed phase input
  recomputed,
  gradient_stream,  // a = 0 or 1, b = micro-batch of the sweep; a = 1 exists only if a phase changes the width
  shared,           // a = phase, b = micro-batch of the sweep: an activation that later phases read besides its output
  shared_gradient,  // a = phase, b = micro-batch of the sweep: its gradient
  workspace,
  ops_scratch,
  generation,  // memory for generating between steps, beyond the memory that is idle then
  inputs,
  rope_table,
  losses,   // b = micro-batch
  correct,  // b = micro-batch
  norm_partials,
  squares,  // a = record: one sum per part of its gradient; records are contiguous
  loss_sums,
  router_counts,  // a = phase: its router's counts in a step
  router_slopes,  // gradient of the load-balancing loss with respect to an expert's probability
  clip,           // the clip factor
  // a = 0: marked by updates on compute, 1: by updates on visit. b = 0: in this step, 1: in the previous one.
  not_finite,
  // on the host
  process,
  // With clipping, a = record, unless its gradient waits on disk or on the device. Without, a = slab of the ring.
  host_gradient,
  host_record_gradient,  // a = record that does not share the ring
  host_boundary,         // a = phase, b = micro-batch
  host_kept,             // a = phase, b = micro-batch: its kept outputs
  // a = slab of the ring: an input or the kept outputs of one micro-batch, on their way to disk or back
  boundary_slab,
  staged_rows,  // a = record
  staged_inputs,
  host_report,   // sums of squares, sums of losses, non-finite marks, router counts
  host_squares,  // a = record
  // a = slab of the ring: m and v of a record whose moments live on disk; if its weights and low bits live there too,
  // they come first
  moment_slab,
  weight_slab,    // a = slab of the ring: weights on their way from disk or files to the device
  gradient_slab,  // a = slab of the ring: a gradient that waits on disk or on the device, in transit
  // on disk
  disk_weights,   // a = record
  disk_low_bits,  // a = record
  disk_moments,   // a = record: its m and v, each at an aligned offset
  disk_gradient,  // a = record: the rounded gradient, until the host may update
  disk_boundary,  // a = phase, b = micro-batch: its input
  disk_kept,      // a = phase, b = micro-batch: its kept outputs
  // in the model's files
  file_weights,  // a = record
};
inline constexpr int kResourceKinds = static_cast<int>(ResourceKind::file_weights) + 1;
const char* resource_name(ResourceKind kind);

// True for activations, the workspace and weights in transit. Every step or evaluation writes them before it reads
// them, so their contents need not survive from one to the next. Device memory only.
bool is_idle_between_steps(ResourceKind kind);

// Kinds that share one allocation start at multiples of this, because kernels may be chosen by alignment.
inline constexpr int64_t kKindAlignment = 256;

struct Resource {
  ResourceKind kind;
  int64_t a = 0;
  int64_t b = 0;
  auto operator<=>(const Resource&) const = default;
};

// The instance that `r` refers to in step number `step`. Non-finite marks alternate between two sets: a step's report
// reads the marks left by the previous step's updates, while its own updates write the other set.
inline Resource in_step(Resource r, int64_t step) {
  if (r.kind == ResourceKind::not_finite) r.b = (step + r.b) % 2;
  return r;
}

}  // namespace megatrain
