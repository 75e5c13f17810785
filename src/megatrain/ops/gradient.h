// What happens to a layer's summed gradient before the optimizer sees it. It is rounded once, its squares are summed,
// and the step's clip factor is computed from all the squares.
#pragma once

#include <cmath>

#include "megatrain/base/host_device.h"
#include "megatrain/tensor/view.h"

namespace megatrain {

inline constexpr int64_t kNormBlock = 65536;  // elements per fp64 partial sum

// out = grad rounded to `dtype` (bf16: to nearest even; fp32: a copy). A gradient consists of parts of equal size (one
// per expert; a dense record is one part), and each part is summed separately. partials[b] = sum of squares, in fp64,
// of the rounded elements [b * kNormBlock, (b + 1) * kNormBlock) of a part, in an order that depends only on the block.
// sums_of_squares[p] = the part's partials added in index order.
struct FinishGradient {
  View grad;                // (n) fp32
  DType dtype;              // bf16 or fp32
  View out;                 // (n) of dtype; empty: only the squares are wanted
  int64_t parts = 1;        // divides n
  double* partials;         // (parts * ceil(n / parts / kNormBlock)) scratch
  double* sums_of_squares;  // (parts): non-finite if any element of the part is

  int64_t part_elements() const { return grad.elements() / parts; }
  int64_t part_blocks() const { return (part_elements() + kNormBlock - 1) / kNormBlock; }
};

// min(1, clip / (norm + 1e-6)), where norm is the square root of the sum, as in torch.nn.utils.clip_grad_norm_. 1 if
// clip is 0 (no clipping). NaN if the norm is not finite (torch gives 0 for an infinite one). Host and device give the
// same bits.
MEGATRAIN_HOST_DEVICE double clip_factor_of(double sum_of_squares, double clip) {
  constexpr double kTorchEps = 1e-6;
  const double norm = std::sqrt(sum_of_squares);
  if (!(norm <= 1.7976931348623157e308)) return std::nan("");
  if (clip == 0) return 1;
  const double factor = clip / (norm + kTorchEps);
  return factor > 1 ? 1 : factor;
}

// *factor = clip_factor_of(the squares added in index order), rounded to fp32.
struct ClipFactor {
  const double* squares;  // (count)
  int64_t count;
  double clip;
  float* factor;
};

// *loss_sum = sum of the tokens' losses in fp64 in index order (fixed blocks); *correct_sum likewise.
struct SumLosses {
  const float* loss;       // (T)
  const int32_t* correct;  // (T)
  int64_t tokens;
  double* loss_sum;
  int64_t* correct_sum;
};

}  // namespace megatrain
