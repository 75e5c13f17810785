// AdamW over a range of one tensor, in planes in host memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "megatrain/ops/adamw.h"
#include "megatrain/store/record.h"

namespace megatrain {

// Updates elements [begin, begin + count) of a trained tensor. `gradient` points to that of `begin`, in the weights'
// dtype; null means zero. Returns false when a new weight or moment is not finite.
bool update_run(const StatePlanes& planes, const TensorSpec& tensor, const AdamWScalars& scalars,
                const std::byte* gradient, int64_t begin, int64_t count);

}  // namespace megatrain
