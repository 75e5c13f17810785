// The delta rule's launches. Scratch is device memory of delta_rule_scratch_bytes() (ops/delta_segments.h).
#pragma once

#include <cuda_runtime_api.h>

#include "megatrain/ops/delta_rule.h"

namespace megatrain {

// rule.cu
void launch(const DeltaRuleForward& args, void* scratch, cudaStream_t stream);
void launch(const DeltaRuleBackward& args, void* scratch, cudaStream_t stream);

// cached.cu
void launch(const DeltaRuleCached& args, cudaStream_t stream);

}  // namespace megatrain
