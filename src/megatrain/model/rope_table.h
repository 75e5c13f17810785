// The angles of rotary positions as a table the ops read.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/config.h"

namespace megatrain {

// cos then sin, (positions, head_dim / 2) each, with the scaling's attention factor; angles in double, rounded once.
std::vector<float> make_rope_table(const ModelConfig& config, int64_t positions);

}  // namespace megatrain
