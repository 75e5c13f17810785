// One AdamW pass per instruction set; null if the architecture does not have it. adamw.cc checks whether this CPU can
// run a pass before it uses it.
#pragma once

#include "megatrain/ops/adamw.h"

namespace megatrain {

using AdamWPass = bool (*)(const AdamW&);

AdamWPass adamw_scalar();
AdamWPass adamw_neon();
AdamWPass adamw_avx2();
AdamWPass adamw_avx512();

}  // namespace megatrain
