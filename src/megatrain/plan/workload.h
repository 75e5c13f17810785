// All that the planner needs to know about a model and a run, as sizes and counts. It refers to no model and no device.
//
// A record is a set of weights that moves and is updated as a whole. A phase is a unit of computation. Both are
// numbered in the same way: 0 is the embedding, then come those of the layers in order, and the last is the head. A
// layer may have a lookup table of its own. Phase p reads the activation that phase p - 1 writes. In a dense model
// phase p needs only record p. A phase that needs several records may run in parts. Each part runs over all
// micro-batches of a sweep before the next part begins.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "megatrain/base/math.h"
#include "megatrain/plan/keep.h"
#include "megatrain/tensor/dtype.h"
#include "megatrain/tensor/state_format.h"

namespace megatrain {

inline constexpr int64_t kNormPartialElements = 65536;  // gradient elements per fp64 partial sum of the norm

// Rows of the embedding that a step does not touch are brought up to date in turns. They are divided into this many
// slices, and each step updates one of them.
inline constexpr int64_t kRowSlices = 16;

// Planes on disk, and the memory slabs that they pass through, start at multiples of this.
inline constexpr int64_t kDiskAlignment = 4096;

// Planes of a record in memory start at multiples of this.
inline constexpr int64_t kRecordPlaneAlignment = 256;

// Sizes of a record in elements of its layout, padding included, unless noted.
struct RecordWork {
  int64_t elements = 0;
  int64_t trained = 0;        // in its gradient and its moments; 0: frozen
  int64_t blocks = 0;         // blocks of moments that share a scale
  int64_t low = 0;            // in its low bits, if the state has them; frozen tensors of a bf16 source have none
  int64_t place = 0;          // its index among the records that its phase, or part of a phase, needs at once
  int64_t norm_parts = 1;     // parts of its gradient whose squares are summed separately: its experts
  DType dtype = DType::bf16;  // of its weights in the compute form, which the ops read
  // Size of its weights in the stored form, in which they live and travel. 0: it is the same as the compute form. A
  // record for which the two differ is entirely frozen.
  int64_t packed_bytes = 0;
  // Size of its weights in the model's files, if they may stay there while it trains; otherwise 0. It then has nothing
  // trained and no low bits.
  int64_t file_bytes = 0;

  // Only for a table whose rows are looked up by token; otherwise 0.
  int64_t rows = 0;
  int64_t row_width = 0;  // elements
  // Some phase needs the whole table. false: only the rows of a step reach the device and have gradients.
  bool whole = true;
  bool adapter = false;  // it holds a layer's adapters, or trained rows of single tokens
  // It holds these rows, which the embedding and the head read. It shares no memory with the records of layers.
  bool buffers = false;  // numbers that nothing trains, beside a block's weights
  bool token_rows = false;
  // Phases that add to its gradient, each to a sum of its own over all micro-batches; in the end the sums are added.
  int64_t sums = 1;

  DType gradient_dtype() const { return dtype; }  // LayerLayout::gradient_dtype()
};

// Flops of recurrences; per token. They run at a rate of their own and are in no other sum of flops.
struct RecurrenceWork {
  double forward = 0;
  double backward = 0;
};

struct PartWork {
  std::vector<int64_t> records;  // all needed at once
  double forward_flops = 0;      // per token, as in PhaseWork
  double backward_flops = 0;
  RecurrenceWork recurrence = {};
};

// A keep level of a phase, with its cost and savings per token.
struct KeepWork : KeepLevel {
  double recomputed_flops = 0;  // in backward
  double recomputed_bytes = 0;  // moved by norms, RoPE and activation functions
  double spared_flops = 0;      // saved in a repeated forward, in its first part
  // The part of recomputed_flops and spared_flops that is attention:
  double recomputed_attention = 0;
  double spared_attention = 0;
  double recomputed_recurrence = 0;  // flops of recurrences, which recomputed_flops does not have
  double spared_recurrence = 0;
};

// The part of a phase's flops that is attention; per token, as in PhaseWork.
struct AttentionFlops {
  double forward = 0;
  double backward = 0;
};

struct PhaseWork {
  std::vector<int64_t> records;
  int64_t width = 0;  // of its input (T, width), which is kept for backward; 0: it has none

  // The levels it may keep, from nothing to everything. A single one if backward recomputes nothing, or if there is no
  // backward.
  std::vector<KeepWork> levels = {{{.name = "nothing", .recomputed = "all"}}};

  // Per token. Backward computes no gradients of frozen tensors.
  double forward_flops = 0;
  double backward_flops = 0;
  AttentionFlops attention;
  RecurrenceWork recurrence = {};

  int64_t router_bytes = 0;  // of its router's counts in a step; 0: it has no router

  int64_t shared_width = 0;  // of the activation (T, width) that later phases read besides its output; 0: none
  int64_t reads = -1;        // the phase whose shared activation it reads; -1: none

  int64_t looks_up = -1;  // the record whose rows it reads by token, in its first part; -1: none
  bool ends = false;      // it computes the losses: its forward and backward are one action

  // If it runs in several parts: the parts, and the bytes that one hands to the next per micro-batch. Backward then
  // begins with a recompute.
  std::vector<PartWork> parts;
  int64_t between_parts_bytes = 0;

  const KeepWork& level(Keep keep) const { return levels[keep_index(keep)]; }
  Keep everything() const { return Keep{static_cast<int32_t>(levels.size()) - 1}; }
  // The highest level whose activations may wait off the device; `nothing` if there is none.
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
  int64_t parameters = 0;  // without padding
  int64_t trained_parameters = 0;
  int64_t active_parameters = 0;  // that a token uses (model/model.h)
  DType activation_dtype = DType::bf16;
  StateFormat state;
  int64_t micro_batches = 1;  // per step
  int64_t micro_tokens = 0;   // T, per micro-batch
  int64_t sequences = 0;      // per micro-batch; 0: unknown
  bool clip = true;
  bool gradients_stay = false;  // the gradients of records that the device updates can be read after the step

  // If not 0, layer records take turns aliasing the memory of the first `alias_records` of them. A model too large for
  // the machine can then be timed on it, but its values mean nothing.
  int64_t alias_records = 0;

  // How many experts one record of an MoE layer holds; 0: all of the layer's. It does not change the result.
  int64_t experts_per_record = 0;

  int64_t experts = 0;  // per MoE layer; 0: there are none
  // Coefficients of the router losses. With aux_loss, backward needs the router choices of the whole step, so the step
  // is a single sweep.
  double aux_loss = 0;
  double z_loss = 0;

  int64_t workspace_bytes = 0;  // the largest that any phase needs
  int64_t scratch_bytes = 0;    // for the ops
  // Some layer's attention is too long for one tile and is not cut into tiles, because it has a window. Scratch then
  // grows with the square of the length.
  bool whole_attention = false;
  int64_t input_bytes = 0;  // ids, labels, positions, documents of a step
  int64_t rope_bytes = 0;
  int64_t generation_bytes = 0;   // device memory for generating between steps; 0: nothing is generated
  int64_t device_base_bytes = 0;  // held by the driver in addition to our allocations
  int64_t host_base_bytes = 0;    // held by the process: code, libraries, the driver's own

  int64_t record_count() const { return static_cast<int64_t>(records.size()); }
  int64_t phase_count() const { return static_cast<int64_t>(phases.size()); }
  int64_t head_record() const { return record_count() - 1; }
  int64_t head_phase() const { return phase_count() - 1; }
  int64_t layer_phases() const { return phase_count() - 2; }

  // A layer record is needed whole, and may stream. Lookup tables, rows of single tokens and the head's record are not
  // layer records.
  bool is_layer_record(int64_t r) const { return r != head_record() && !is_looked_up(r) && !record(r).token_rows; }
  std::vector<int64_t> layer_records() const {  // their numbers, ascending
    std::vector<int64_t> numbers;
    for (int64_t r = 0; r < record_count(); ++r) {
      if (is_layer_record(r)) numbers.push_back(r);
    }
    return numbers;
  }
  int64_t layer_record_count() const { return std::ssize(layer_records()); }
  std::vector<int64_t> tables() const {
    std::vector<int64_t> numbers;
    for (int64_t r = 0; r < record_count(); ++r) {
      if (is_looked_up(r)) numbers.push_back(r);
    }
    return numbers;
  }

  const RecordWork& record(int64_t r) const { return records[static_cast<size_t>(r)]; }
  int64_t phase_of(int64_t record) const {  // the lowest phase that needs it
    int64_t p = 0;
    while (std::find(phase(p).records.begin(), phase(p).records.end(), record) == phase(p).records.end()) ++p;
    return p;
  }
  const PhaseWork& phase(int64_t p) const { return phases[static_cast<size_t>(p)]; }
  bool is_trained(int64_t r) const { return record(r).trained > 0; }
  bool may_stay_in_files(int64_t r) const { return record(r).file_bytes > 0; }

  int64_t norm_parts() const {  // over all records
    int64_t sum = 0;
    for (const RecordWork& r : records) sum += r.norm_parts;
    return sum;
  }

  int64_t router_bytes() const {  // over all phases
    int64_t sum = 0;
    for (const PhaseWork& p : phases) sum += p.router_bytes;
    return sum;
  }

  // The record in whose memory this one's weights, state and waiting gradient live.
  int64_t home(int64_t r) const { return alias_records > 0 && is_layer_record(r) ? 1 + (r - 1) % alias_records : r; }

  // The lowest phase that backward reaches: all records below it are frozen.
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

  int64_t element_bytes(int64_t r) const { return dtype_bytes(record(r).dtype); }          // of one weight
  int64_t weight_bytes(int64_t r) const { return record(r).elements * element_bytes(r); }  // in the compute form
  bool is_packed(int64_t r) const { return record(r).packed_bytes > 0; }
  int64_t stored_bytes(int64_t r) const {  // of the weights in stored form
    return is_packed(r) ? record(r).packed_bytes : weight_bytes(r);
  }
  int64_t low_bytes(int64_t r) const { return record(r).low * low_bytes_an_element(r); }
  int64_t moment_bytes(int64_t r) const {  // of m, and also of v
    return record(r).trained * moment_element_bytes(state.moments) +
           (state.moments == MomentFormat::int8 ? 4 * record(r).blocks : 0);
  }
  // Distance from a record's m to its v, on disk or in a slab in transit. Both start at a multiple of the alignment.
  int64_t disk_moment_bytes(int64_t r) const { return round_up(moment_bytes(r), kDiskAlignment); }
  // Sizes of weights and low bits on disk, each aligned too.
  int64_t disk_weight_bytes(int64_t r) const { return round_up(stored_bytes(r), kDiskAlignment); }
  int64_t disk_low_bytes(int64_t r) const { return round_up(low_bytes(r), kDiskAlignment); }
  // The most rows of a table that a step may look up.
  int64_t touched_rows(int64_t r) const { return std::min(tokens(), record(r).rows); }
  int64_t row_elements(int64_t r) const { return touched_rows(r) * record(r).row_width; }
  bool is_looked_up(int64_t r) const { return record(r).row_width > 0; }
  bool by_rows(int64_t r) const { return is_looked_up(r) && !record(r).whole; }
  int64_t gradient_elements(int64_t r) const { return by_rows(r) ? row_elements(r) : record(r).trained; }
  int64_t rounded_bytes(int64_t r) const { return dtype_bytes(record(r).gradient_dtype()); }  // of one gradient element
  int64_t gradient_bytes(int64_t r) const { return gradient_elements(r) * rounded_bytes(r); }
  // Size of a rounded gradient on disk, and in a slab in transit.
  int64_t disk_gradient_bytes(int64_t r) const { return round_up(gradient_bytes(r), kDiskAlignment); }
  int64_t visiting_bytes(int64_t r) const {  // weights and state of the trained part
    return record(r).trained * (element_bytes(r) + low_bytes_an_element(r)) + 2 * moment_bytes(r);
  }
  int64_t adapter_records() const { return std::ranges::count(records, true, &RecordWork::adapter); }
  int64_t token_row_records() const { return std::ranges::count(records, true, &RecordWork::token_rows); }
  // A checkpoint holds the whole master of every tensor, or with adapters only of those that are trained.
  int64_t checkpoint_bytes(int64_t r) const {
    const int64_t elements = adapter_records() > 0 ? record(r).trained : record(r).elements;
    return elements * (element_bytes(r) + low_bytes_an_element(r)) + 2 * moment_bytes(r);
  }
  // Size of the low half of the fp32 master, which is stored next to bf16 weights.
  int64_t low_bytes_an_element(int64_t r) const {
    return record(r).dtype == DType::bf16 && state.master == MasterFormat::fp32 ? 2 : 0;
  }
  int64_t all_elements() const {
    int64_t sum = 0;
    for (const RecordWork& r : records) sum += r.elements;
    return sum;
  }
  int64_t tokens() const { return micro_batches * micro_tokens; }
  // Flops of one token through the model, forward and backward, without recomputation: matmuls, and attention over the
  // keys that the token sees. Recurrences are not counted.
  double model_flops() const {
    double sum = 0;
    for (int64_t p = 0; p < phase_count(); ++p) {
      sum += phase(p).forward_flops;
      if (p >= first_trained_phase()) sum += phase(p).backward_flops;
    }
    return sum;
  }
  // Bytes of a phase's input for one micro-batch, padded so that all micro-batches have the same alignment: kernels may
  // be chosen by alignment.
  int64_t activation_bytes(int64_t p) const {
    return round_up(micro_tokens * phase(p).width * dtype_bytes(activation_dtype), 256);
  }
  int64_t shared_bytes(int64_t p) const {  // likewise, of its shared activation
    return round_up(micro_tokens * phase(p).shared_width * dtype_bytes(activation_dtype), 256);
  }
  int64_t last_reader(int64_t p) const {  // of a phase's shared activation; -1: none
    int64_t reader = phase_count() - 1;
    while (reader >= 0 && phase(reader).reads != p) --reader;
    return reader;
  }
  int64_t kept_bytes(int64_t p, Keep keep) const { return phase(p).level(keep).bytes; }  // per micro-batch
};

}  // namespace megatrain
