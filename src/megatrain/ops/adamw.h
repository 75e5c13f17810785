// AdamW (PyTorch's: decoupled decay, bias correction) as one fused pass over g, m, v and the master. It is one sequence
// of correctly rounded fp32 operations, so that every SIMD width and the GPU give the same bits:
//
//   g' = g * clip
//   m' = fma(g' - m, one_minus_beta1, m)
//   v' = fma(g' * g', one_minus_beta2, v * beta2)
//   d  = fma(sqrt(v'), inv_sqrt_bias2, eps)
//   w' = fma(-step_size, m' / d, w * decay)
//   stored |m'| and |v'| below 2^-100 become 0
//
// State in another format (tensor/state_format.h) is decoded, updated by the same operations, and encoded again.
//
// Each line's operations are single IEEE roundings: no contraction beyond the fma written, no fast-math, denormals on.
#pragma once

#include <cstdint>

#include "megatrain/base/bf16.h"
#include "megatrain/base/host_device.h"
#include "megatrain/tensor/state_format.h"

namespace megatrain {

// Computed once per step in double and rounded once to fp32.
struct AdamWScalars {
  float clip = 1.0f;  // gradient factor
  float beta2 = 0;
  float one_minus_beta1 = 0;
  float one_minus_beta2 = 0;
  float inv_sqrt_bias2 = 0;  // 1 / sqrt(1 - beta2^t)
  float eps = 0;
  float step_size = 0;  // lr / (1 - beta1^t)
  float decay = 1.0f;   // 1 - lr * weight_decay; 1 for tensors without decay
  uint64_t random = 0;  // derived from seed and step; the source of stochastic rounding
};

// A run of elements of one tensor. With int8 moments it starts and ends at block boundaries. Exactly one form of master
// and at most one form of gradient is given. m and v are float, bf16 or codes.
struct AdamW {
  AdamWScalars scalars;
  int64_t count;
  const bf16* grad_bf16 = nullptr;  // gradient as sent by the device; both null: the gradient is 0
  const float* grad_f32 = nullptr;
  void* m;
  void* v;
  bf16* weight = nullptr;   // split master: what streams ...
  uint16_t* low = nullptr;  // ... and its low bits; null: only the weight, rounded stochastically
  float* master = nullptr;  // plain fp32 master
  CodedState coded = {};

  MEGATRAIN_HOST_DEVICE bool exact() const {
    return coded.moments == MomentFormat::fp32 && (low != nullptr || master != nullptr);
  }
};

// The same update as an op on device memory. `grad` is the fp32 sum; if the weight is bf16, it is rounded to bf16 when
// read. `grad_bf16` is a gradient that is already rounded.
struct AdamWUpdate {
  AdamWScalars scalars;  // clip is not read
  int64_t count;
  const float* grad;
  void* m;
  void* v;
  bf16* weight = nullptr;   // split master ...
  uint16_t* low = nullptr;  // null: only the weight, rounded stochastically
  float* master = nullptr;  // ... or plain
  const float* clip;        // gradient factor; NaN: nothing changes
  // If adamw_cpu() would return false, this changes from 0 to `mark` (not 0). So the first non-finite update leaves its
  // mark, and later ones do not overwrite it.
  int32_t* not_finite;
  int32_t mark = 1;
  // For a table of `cols` columns in which only some rows have a gradient: grad is (row_count, cols).
  const int32_t* rows = nullptr;  // (row_count) ascending; null: every element has a gradient
  int64_t row_count = 0;
  int64_t cols = 0;
  CodedState coded = {};
  const bf16* grad_bf16 = nullptr;  // for every element, already rounded; null: use `grad`

  MEGATRAIN_HOST_DEVICE bool exact() const {
    return coded.moments == MomentFormat::fp32 && (low != nullptr || master != nullptr);
  }
};

// Instruction sets the CPU pass is compiled for; each gives the same bits.
enum class Simd : uint8_t { scalar, neon, avx2, avx512 };

Simd best_simd();  // the best one this CPU can run
const char* simd_name(Simd simd);
bool simd_runs_here(Simd simd);

// Updates in place on the calling thread. Returns false if a new master, its bf16 weight or a new moment is not finite.
bool adamw_cpu(const AdamW& args, Simd simd);

}  // namespace megatrain
