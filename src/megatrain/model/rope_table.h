// The angles of rotary positions as a table the ops read.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/config.h"

namespace megatrain {

struct RopeTable {
  const float* cos = nullptr;  // (max position, head_dim / 2) device memory
  const float* sin = nullptr;
};

// cos then sin, (positions, head_dim / 2) each, with the scaling's attention factor; angles in double, rounded once.
std::vector<float> make_rope_table(const ModelConfig& config, int64_t positions);

}  // namespace megatrain
