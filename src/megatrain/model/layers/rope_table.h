// The cos and sin of rotary positions, as a table that the ops read.
#pragma once

#include <cstdint>
#include <vector>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/ops/attention.h"

namespace megatrain {

// The rows of a table: one per position. If documents above long_above() fit, their rows follow, again one per
// position.
int64_t rope_rows(const RopeConfig& rope, int64_t positions);

// Tokens [begin, begin + count) of a micro-batch that all use the same half of the rows.
struct AngleRun {
  int64_t begin, count;
  bool in_long;
};
std::vector<AngleRun> angle_runs(const Documents& documents, int64_t tokens, int64_t long_above);

int64_t rope_floats(const RopeConfig& rope, int64_t head_dim, int64_t positions);

// cos then sin, (rope_rows, turning / 2) each, times the scaling's attention factor. These are for keys and, with
// RopeConfig::query_growth, followed by the same for queries, times what grows. Where only a part of a head turns, the
// growth of the rest follows: as cos of an angle of zero, (rope_rows, (head_dim - turning) / 2), and as its sin.
// Computed in double and rounded once.
std::vector<float> make_rope_table(const RopeConfig& rope, int64_t head_dim, int64_t positions);

}  // namespace megatrain
