// AdamW over a run of one tensor, in planes in host memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/ops/adamw.h"
#include "megatrain/store/record.h"

namespace megatrain {

// Elements [begin, begin + count) of a trained tensor; `gradient` is that of `begin`, in the weights' dtype, null:
// zero. False when a new weight or moment is not finite.
bool update_run(const StatePlanes& planes, const TensorSpec& tensor, const AdamWScalars& scalars,
                const std::byte* gradient, int64_t begin, int64_t count);

}  // namespace megatrain
