// One AdamW pass per instruction set; null where the architecture has no such instructions. Whether this CPU can run a
// pass is asked before it is taken (adamw.cc).
#pragma once

#include "megatrain/ops/adamw.h"

namespace megatrain {

using AdamWPass = bool (*)(const AdamW&);

AdamWPass adamw_scalar();
AdamWPass adamw_neon();
AdamWPass adamw_avx2();
AdamWPass adamw_avx512();

}  // namespace megatrain
