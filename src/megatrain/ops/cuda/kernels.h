// Launches of our own kernels: each enqueues work on the stream and returns. Scratch is device memory of the stated
// size.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "megatrain/device/cuda/column_sum.h"
#include "megatrain/ops/adamw.h"
#include "megatrain/ops/columns.h"
#include "megatrain/ops/cross_entropy.h"
#include "megatrain/ops/delta_gates.h"
#include "megatrain/ops/dora.h"
#include "megatrain/ops/dropout.h"
#include "megatrain/ops/elementwise.h"
#include "megatrain/ops/embedding.h"
#include "megatrain/ops/experts.h"
#include "megatrain/ops/gated_norm.h"
#include "megatrain/ops/gradient.h"
#include "megatrain/ops/heads.h"
#include "megatrain/ops/linear.h"
#include "megatrain/ops/output_gate.h"
#include "megatrain/ops/rmsnorm.h"
#include "megatrain/ops/rope.h"
#include "megatrain/ops/short_conv.h"
#include "megatrain/ops/ssd.h"
#include "megatrain/ops/ssd_gates.h"
#include "megatrain/ops/unpack.h"

namespace megatrain {

// embedding.cu
void launch(const EmbeddingForward& args, cudaStream_t stream);
void launch(const EmbeddingBackward& args, cudaStream_t stream);

// columns.cu
void launch(const MoveColumns& args, cudaStream_t stream);

// rmsnorm.cu
void launch(const RmsNormForward& args, cudaStream_t stream);
int64_t rmsnorm_scratch_bytes(int64_t rows, int64_t groups, int64_t size);
void launch(const RmsNormBackward& args, void* scratch, cudaStream_t stream);

// rope.cu
void launch(const Rope& args, cudaStream_t stream);

// elementwise.cu
void launch(const OutputGateForward& args, cudaStream_t stream);
void launch(const OutputGateBackward& args, cudaStream_t stream);
void launch(const GatedForward& args, cudaStream_t stream);
void launch(const GatedBackward& args, cudaStream_t stream);

// short_conv.cu
void launch(const ShortConvForward& args, cudaStream_t stream);
int64_t short_conv_scratch_bytes(int64_t tokens, int64_t channels, int64_t taps);
void launch(const ShortConvBackward& args, void* scratch, cudaStream_t stream);
void launch(const ShortConvCached& args, cudaStream_t stream);

// delta_gates.cu
void launch(const DeltaGatesForward& args, cudaStream_t stream);
int64_t delta_gates_scratch_bytes(int64_t rows, int64_t heads);
void launch(const DeltaGatesBackward& args, void* scratch, cudaStream_t stream);

// gated_norm.cu
void launch(const GatedNormForward& args, cudaStream_t stream);
int64_t gated_norm_scratch_bytes(int64_t rows, int64_t heads, int64_t size);
void launch(const GatedNormBackward& args, void* scratch, cudaStream_t stream);
// scale.cu
void launch(const ScaleAll& args, cudaStream_t stream);
void launch(const ScaleChoices& args, cudaStream_t stream);
void launch(const ScaleChoicesBackward& args, cudaStream_t stream);

// gated_norm_groups.cu: groups of any size, and the gate before the norm
void launch_norm_groups(const GatedNormForward& args, cudaStream_t stream);
int64_t norm_groups_scratch_bytes(int64_t rows, int64_t columns, int64_t size);
void launch_norm_groups(const GatedNormBackward& args, void* scratch, cudaStream_t stream);

// ssd_gates.cu: the gates of Mamba 2, and the gradient of its skip. Both gradients need the same scratch.
void launch(const SsdGatesForward& args, cudaStream_t stream);
int64_t ssd_gates_scratch_bytes(int64_t rows, int64_t heads);
void launch(const SsdGatesBackward& args, void* scratch, cudaStream_t stream);
void launch_skip_gradient(const SsdBackward& args, void* scratch, cudaStream_t stream);

// dropout.cu
void launch(const MoveHeads& args, cudaStream_t stream);
void launch(const Dropout& args, cudaStream_t stream);

// dora.cu
void launch(const DoraFactors& args, cudaStream_t stream);
void launch(const ScaleColumns& args, cudaStream_t stream);

// cross_entropy.cu
void launch(const CrossEntropy& args, cudaStream_t stream);
void launch(const CapLogits& args, cudaStream_t stream);

// gradient.cu
void launch(const FinishGradient& args, cudaStream_t stream);
void launch(const SumLosses& args, cudaStream_t stream);
void launch(const ClipFactor& args, cudaStream_t stream);

// adamw.cu
void launch(const AdamWUpdate& args, cudaStream_t stream);

// unpack.cu
void launch(const UnpackWeights& args, cudaStream_t stream);

// gemm.cu: for matmuls that cuBLASLt has no kernel for. c = scale a b + bias + residual; a (m, k), b (k, n), c (m, n),
// any strides.
struct SimpleGemm {
  int64_t m, n, k;
  const void* a;
  int64_t a_row, a_column;  // strides in elements
  const void* b;
  int64_t b_row, b_column;
  DType in;              // of a, b and bias
  const void* bias;      // (n) or nullptr
  const void* residual;  // (m, n) of c's dtype or nullptr; may alias c
  int64_t residual_row;
  void* c;
  int64_t c_row;
  DType out;
  float scale;
};
void launch(const SimpleGemm& args, cudaStream_t stream);
// out[row][c] += bias[c], out fp32
void launch_add_bias(const View& out, const View& bias, cudaStream_t stream);

// few_rows.cu: a linear layer with a handful of rows, as in generation. It is memory-bound, and without split sums
// cuBLASLt's tiles leave most of the GPU idle.
bool has_few_rows(const LinearForward& args);
void launch_few_rows(const LinearForward& args, cudaStream_t stream);

// router.cu: at most 1024 experts, of which a token chooses at most 32
void launch(const Route& args, cudaStream_t stream);
void launch(const RouteBackward& args, cudaStream_t stream);
int64_t sort_scratch_bytes(const SortByExpert& args);
void launch(const SortByExpert& args, void* scratch, cudaStream_t stream);
int64_t count_scratch_bytes(const CountExperts& args);
void launch(const CountExperts& args, void* scratch, cudaStream_t stream);
void launch(const BalanceSlopes& args, cudaStream_t stream);

// experts_rows.cu
void launch(const GatherRows& args, cudaStream_t stream);
void launch(const ExpertsGated& args, cudaStream_t stream);
void launch(const ExpertsGatedBackward& args, cudaStream_t stream);
void launch(const CombineRows& args, cudaStream_t stream);

// experts_product.cu
void launch(const ExpertsForward& args, cudaStream_t stream);
void launch(const ExpertsBackwardInput& args, cudaStream_t stream);
// grad_weight only
void launch(const ExpertsBackwardWeight& args, cudaStream_t stream);
// grad_bias only
void launch_experts_bias(const ExpertsBackwardWeight& args, cudaStream_t stream);
// Zeroes grad_weight of the experts without rows.
void launch_zero_unused(const ExpertsBackwardWeight& args, cudaStream_t stream);

}  // namespace megatrain
