// What a plan needs to know of a model and a run, in bytes and counts: no model, no device.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "megatrain/base/math.h"
#include "megatrain/plan/keep.h"
#include "megatrain/tensor/dtype.h"

namespace megatrain {

inline constexpr int64_t kNormPartialElements = 65536;  // gradient elements behind one fp64 partial of the norm

struct Workload {
  int64_t blocks = 0;              // L; records are 0 the embedding, 1..L the blocks, L + 1 the head
  int64_t embedding_elements = 0;  // of a layout, padding included
  int64_t block_elements = 0;
  int64_t head_elements = 0;
  std::vector<int64_t> trained;  // (records) elements of gradient and moments; empty: every tensor is trained
  int64_t parameters = 0;        // padding not included
  bool tied = false;             // the head's slot also holds the embedding's table
  int64_t hidden = 0;
  int64_t vocab = 0;
  DType dtype = DType::bf16;  // of weights and activations on the device, and of gradients that leave it
  int64_t micro_batches = 1;  // of a step
  int64_t micro_tokens = 0;   // T of one
  bool clip = true;

  int64_t workspace_bytes = 0;  // the larger of the templates'
  int64_t scratch_bytes = 0;    // of the ops
  int64_t input_bytes = 0;      // ids, labels, positions, documents of a step
  int64_t rope_bytes = 0;
  int64_t device_base_bytes = 0;  // what the driver holds beside what we allocate
  int64_t host_base_bytes = 0;    // of the process: code, libraries, the driver's own

  std::array<int64_t, kKeeps.size()> kept_bytes{};  // of one block and micro-batch, by what is kept

  double block_flops_per_token = 0;  // forward
  // Of one block, by what is kept: what backward computes again.
  std::array<double, kKeeps.size()> recomputed_flops_per_token{};
  std::array<double, kKeeps.size()> recomputed_bytes_per_token{};  // moved by norms, RoPE and SwiGLU
  double head_flops_per_token = 0;

  int64_t records() const { return blocks + 2; }
  int64_t head_record() const { return blocks + 1; }
  int64_t record_elements(int64_t record) const {
    return record == 0 ? embedding_elements : record <= blocks ? block_elements : head_elements;
  }
  int64_t trained_elements(int64_t record) const {
    return trained.empty() ? record_elements(record) : trained[static_cast<size_t>(record)];
  }
  bool is_trained(int64_t record) const { return trained_elements(record) > 0; }
  // Backward goes down to this record: what lies below it is frozen.
  int64_t first_trained() const {
    int64_t record = 0;
    while (record < head_record() && !is_trained(record)) ++record;
    return record;
  }
  // Where the record lives: weights, low bits, moments; and on a visit: the same of what is trained.
  int64_t state_bytes(int64_t record) const { return 4 * record_elements(record) + 8 * trained_elements(record); }
  int64_t visiting_bytes(int64_t record) const { return 12 * trained_elements(record); }
  int64_t all_elements() const { return embedding_elements + blocks * block_elements + head_elements; }
  int64_t tokens() const { return micro_batches * micro_tokens; }
  int64_t touched_rows() const { return tokens() < vocab ? tokens() : vocab; }  // most distinct ids of a step
  // Of one micro-batch, padded so that every micro-batch starts equally aligned: kernels may be chosen by alignment.
  int64_t boundary_bytes() const { return round_up(micro_tokens * hidden * dtype_bytes(dtype), 256); }
};

}  // namespace megatrain
