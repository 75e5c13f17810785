// Sums of columns in an order that the sizes fix. Scratch is device memory of the stated size.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "megatrain/tensor/view.h"

namespace megatrain {

// out[c] (+)= sum over p of partials[p][c], in an order fixed by `count`
void launch_sum_partials(const float* partials, int64_t count, int64_t columns, float* out, bool accumulate,
                         cudaStream_t stream);

int64_t column_sum_scratch_bytes(int64_t rows, int64_t columns);
// out[c] (+)= sum over rows of x[row][c]
void launch_column_sum(const View& x, float* out, bool accumulate, void* scratch, cudaStream_t stream);

}  // namespace megatrain
