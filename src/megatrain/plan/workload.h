// What a plan needs to know of a model and a run, in bytes and counts: no model, no device.
//
// Records are what travels and is updated whole: 0 the embedding, then the layers' in order, last the head. A layer
// may have a table of its own, whose rows are looked up as the embedding's are. Phases are
// what is computed: 0 the embedding, then the layers' in order, last the head; phase p reads the activation that phase
// p - 1 writes. In a dense model phase p needs record p alone. A phase that needs several may run in parts, each over
// all micro-batches of a sweep before the next.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <ranges>
#include <vector>

#include "megatrain/base/math.h"
#include "megatrain/plan/keep.h"
#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/state_format.h"

namespace megatrain {

inline constexpr int64_t kNormPartialElements = 65536;  // gradient elements behind one fp64 partial of the norm

// Every step brings the rows of the embedding that it does not touch up to date in one of so many slices.
inline constexpr int64_t kRowSlices = 16;

// Planes on disk start at multiples of it, and so do the slabs in memory that they pass through.
inline constexpr int64_t kDiskAlignment = 4096;

// Planes of a record in memory start at multiples of it.
inline constexpr int64_t kRecordPlaneAlignment = 256;

// Elements of a record's layout, padding included.
struct RecordWork {
  int64_t elements = 0;
  int64_t trained = 0;        // of its gradient and its moments; 0: frozen
  int64_t blocks = 0;         // of moments that share a scale
  int64_t low = 0;            // of its low bits, where the state has them: frozen ones of a bf16 source have none
  int64_t place = 0;          // among the records that its phase, or its part of one, needs at once
  int64_t norm_parts = 1;     // of its gradient, that the norm sums by themselves: its experts
  DType dtype = DType::bf16;  // of its weights as they compute
  int64_t packed_bytes = 0;   // of its weights where they live and travel, when that is not as they compute; then
                              // nothing of it is trained. 0: they are one

  // A table whose rows are looked up by token has these; elsewhere 0.
  int64_t rows = 0;
  int64_t row_width = 0;  // elements
  bool whole = true;      // a phase needs all of it; false: a step's rows alone reach the device and have gradients

  DType gradient_dtype() const { return dtype; }  // LayerLayout::gradient_dtype()
};

struct PartWork {
  std::vector<int64_t> records;  // that it needs at once
  double forward_flops = 0;      // as PhaseWork has them
  double backward_flops = 0;
};

// A level of what a phase keeps, with what that costs and spares, for one token.
struct KeepWork : KeepLevel {
  double recomputed_flops = 0;  // in backward
  double recomputed_bytes = 0;  // moved by norms, RoPE and activation functions
  double spared_flops = 0;      // of a forward that runs again; its first part
  // What attention has of them.
  double recomputed_attention = 0;
  double spared_attention = 0;
};

// What attention has of a phase's flops, as PhaseWork has them.
struct AttentionFlops {
  double forward = 0;
  double backward = 0;
};

struct PhaseWork {
  std::vector<int64_t> records;
  int64_t width = 0;  // of its input (T, width), which waits for backward; 0: it has none

  // What it may keep, from nothing to everything; one level where backward finds all that it needs, or there is none.
  std::vector<KeepWork> levels = {{{.name = "nothing", .recomputed = "all"}}};

  // For one token. Backward computes no gradient of a frozen tensor.
  double forward_flops = 0;
  double backward_flops = 0;
  AttentionFlops attention;

  int64_t router_bytes = 0;  // of what a step counts of its router; 0: it has none

  // What later phases read beside its output, (T, width), and the phase whose it reads itself; -1: none.
  int64_t shared_width = 0;
  int64_t reads = -1;

  int64_t looks_up = -1;  // the one of its records whose rows it reads by token, in its first part; -1: none
  bool ends = false;      // it has the losses: its forward and its backward are one action

  // Where it runs in several parts, and then what they hand on, of one micro-batch. Backward begins with recomputing.
  std::vector<PartWork> parts;
  int64_t carried_bytes = 0;

  const KeepWork& level(Keep keep) const { return levels[keep_index(keep)]; }
  Keep everything() const { return Keep{static_cast<int32_t>(levels.size()) - 1}; }
  // The highest level that may wait elsewhere than on the device; nothing where none may.
  Keep waiting_level() const {
    size_t at = levels.size() - 1;
    while (at > 0 && !levels[at].may_wait) --at;
    return Keep{static_cast<int32_t>(at)};
  }

  bool has_input() const { return width > 0; }
  bool in_parts() const { return !parts.empty(); }
  int64_t part_count() const { return in_parts() ? static_cast<int64_t>(parts.size()) : 1; }
  const std::vector<int64_t>& records_of(int64_t part) const {
    return in_parts() ? parts[static_cast<size_t>(part)].records : records;
  }
};

struct Workload {
  std::vector<RecordWork> records;
  std::vector<PhaseWork> phases;
  int64_t parameters = 0;  // padding not included
  int64_t trained_parameters = 0;
  int64_t active_parameters = 0;  // that work on a token (model/model.h)
  DType activation_dtype = DType::bf16;
  StateFormat state;
  int64_t micro_batches = 1;  // of a step
  int64_t micro_tokens = 0;   // T of one
  int64_t sequences = 0;      // of one; 0: not known
  bool clip = true;
  bool gradients_stay = false;  // what the device updates can be read after the step

  // Layers' records live in the memory of the first so many of these, one after the other: what a model too large for
  // a machine would move and compute can then be timed there, and its values mean nothing. 0: each in its own.
  int64_t alias_records = 0;

  // Experts that a record of a layer with experts holds; 0: all of the layer's. It changes no bit.
  int64_t experts_per_record = 0;

  int64_t experts = 0;  // of a layer that has them; 0: none has
  // Coefficients of the router's losses. That of the first needs the choices of the whole step before its backward, so
  // the step is one sweep.
  double aux_loss = 0;
  double z_loss = 0;

  int64_t workspace_bytes = 0;   // the largest of the phases'
  int64_t scratch_bytes = 0;     // of the ops
  bool whole_attention = false;  // it is long and has a window, so it is not cut: scratch grows with its square
  int64_t input_bytes = 0;       // ids, labels, positions, documents of a step
  int64_t rope_bytes = 0;
  int64_t generation_bytes = 0;   // that generating between steps takes of the device; 0: nothing is generated
  int64_t device_base_bytes = 0;  // what the driver holds beside what we allocate
  int64_t host_base_bytes = 0;    // of the process: code, libraries, the driver's own

  int64_t record_count() const { return static_cast<int64_t>(records.size()); }
  int64_t phase_count() const { return static_cast<int64_t>(phases.size()); }
  int64_t head_record() const { return record_count() - 1; }
  int64_t head_phase() const { return phase_count() - 1; }
  int64_t layer_phases() const { return phase_count() - 2; }

  // A layer's record is needed whole, and may stream. Tables, whose rows are looked up, and the head's are not.
  bool is_layer_record(int64_t r) const { return r != head_record() && !is_looked_up(r); }
  auto layer_records() const {  // their numbers, ascending
    return std::views::iota(int64_t{0}, record_count()) |
           std::views::filter([this](int64_t r) { return is_layer_record(r); });
  }
  int64_t layer_record_count() const { return std::ranges::distance(layer_records()); }
  std::vector<int64_t> tables() const {
    std::vector<int64_t> numbers;
    for (int64_t r = 0; r < record_count(); ++r) {
      if (is_looked_up(r)) numbers.push_back(r);
    }
    return numbers;
  }

  const RecordWork& record(int64_t r) const { return records[static_cast<size_t>(r)]; }
  int64_t phase_of(int64_t record) const {  // that needs it, the lowest
    int64_t p = 0;
    while (std::find(phase(p).records.begin(), phase(p).records.end(), record) == phase(p).records.end()) ++p;
    return p;
  }
  const PhaseWork& phase(int64_t p) const { return phases[static_cast<size_t>(p)]; }
  bool is_trained(int64_t r) const { return record(r).trained > 0; }

  int64_t norm_parts() const {  // of all records
    int64_t sum = 0;
    for (const RecordWork& r : records) sum += r.norm_parts;
    return sum;
  }

  int64_t router_bytes() const {  // of all phases
    int64_t sum = 0;
    for (const PhaseWork& p : phases) sum += p.router_bytes;
    return sum;
  }

  // The record in whose memory this one's weights, state and waiting gradient live.
  int64_t home(int64_t r) const { return alias_records > 0 && is_layer_record(r) ? 1 + (r - 1) % alias_records : r; }

  // Backward goes down to this phase: all records below it are frozen.
  int64_t first_trained_phase() const {
    int64_t p = 0;
    while (p < head_phase() && !phase_is_trained(p)) ++p;
    return p;
  }
  bool phase_is_trained(int64_t p) const {
    for (const int64_t r : phase(p).records) {
      if (is_trained(r)) return true;
    }
    return false;
  }

  int64_t element_bytes(int64_t r) const { return dtype_bytes(record(r).dtype); }          // of a weight
  int64_t weight_bytes(int64_t r) const { return record(r).elements * element_bytes(r); }  // as they compute
  bool is_packed(int64_t r) const { return record(r).packed_bytes > 0; }
  int64_t stored_bytes(int64_t r) const {  // of the weights as they live and travel
    return is_packed(r) ? record(r).packed_bytes : weight_bytes(r);
  }
  int64_t low_bytes(int64_t r) const { return record(r).low * low_bytes_an_element(r); }
  int64_t moment_bytes(int64_t r) const {  // of m, and of v
    return record(r).trained * moment_element_bytes(state.moments) +
           (state.moments == MomentFormat::int8 ? 4 * record(r).blocks : 0);
  }
  // From a record's m to its v where they lie on disk or in a slab on the way: both start at a block of the disk.
  int64_t disk_moment_bytes(int64_t r) const { return round_up(moment_bytes(r), kDiskAlignment); }
  // Of weights and low bits where they live on disk: each starts at a block there too.
  int64_t disk_weight_bytes(int64_t r) const { return round_up(stored_bytes(r), kDiskAlignment); }
  int64_t disk_low_bytes(int64_t r) const { return round_up(low_bytes(r), kDiskAlignment); }
  // Rows of a table that a step looks up, at most.
  int64_t touched_rows(int64_t r) const { return std::min(tokens(), record(r).rows); }
  int64_t row_elements(int64_t r) const { return touched_rows(r) * record(r).row_width; }
  bool is_looked_up(int64_t r) const { return record(r).row_width > 0; }
  bool by_rows(int64_t r) const { return is_looked_up(r) && !record(r).whole; }
  int64_t gradient_elements(int64_t r) const { return by_rows(r) ? row_elements(r) : record(r).trained; }
  int64_t rounded_bytes(int64_t r) const { return dtype_bytes(record(r).gradient_dtype()); }  // of a gradient's element
  int64_t gradient_bytes(int64_t r) const { return gradient_elements(r) * rounded_bytes(r); }
  // Of a rounded gradient where it waits on disk, and in a slab on its way.
  int64_t disk_gradient_bytes(int64_t r) const { return round_up(gradient_bytes(r), kDiskAlignment); }
  int64_t visiting_bytes(int64_t r) const {  // weights and state of what is trained
    return record(r).trained * (element_bytes(r) + low_bytes_an_element(r)) + 2 * moment_bytes(r);
  }
  int64_t checkpoint_bytes(int64_t r) const {  // every tensor has its whole master there
    return record(r).elements * (element_bytes(r) + low_bytes_an_element(r)) + 2 * moment_bytes(r);
  }
  // Of the fp32 master, beside bf16 weights.
  int64_t low_bytes_an_element(int64_t r) const {
    return record(r).dtype == DType::bf16 && state.master == MasterFormat::fp32 ? 2 : 0;
  }
  int64_t all_elements() const {
    int64_t sum = 0;
    for (const RecordWork& r : records) sum += r.elements;
    return sum;
  }
  int64_t tokens() const { return micro_batches * micro_tokens; }
  // Of a token through the model, forward and backward, nothing computed again: products and attention, of which a
  // token's part is what it sees.
  double model_flops() const {
    double sum = 0;
    for (int64_t p = 0; p < phase_count(); ++p) {
      sum += phase(p).forward_flops;
      if (p >= first_trained_phase()) sum += phase(p).backward_flops;
    }
    return sum;
  }
  // Of a phase's input and one micro-batch, padded so that every micro-batch starts equally aligned: kernels may be
  // chosen by alignment.
  int64_t activation_bytes(int64_t p) const {
    return round_up(micro_tokens * phase(p).width * dtype_bytes(activation_dtype), 256);
  }
  int64_t shared_bytes(int64_t p) const {  // likewise, of what later phases read
    return round_up(micro_tokens * phase(p).shared_width * dtype_bytes(activation_dtype), 256);
  }
  int64_t last_reader(int64_t p) const {  // of what a phase shares; -1: there is none
    int64_t reader = phase_count() - 1;
    while (reader >= 0 && phase(reader).reads != p) --reader;
    return reader;
  }
  int64_t kept_bytes(int64_t p, Keep keep) const { return phase(p).level(keep).bytes; }  // of one micro-batch
};

}  // namespace megatrain
