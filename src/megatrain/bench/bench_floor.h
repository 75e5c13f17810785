// The speed of light of a step: the best library time of every GEMM and attention call, each measured alone, summed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "megatrain/train/session.h"

namespace megatrain {

struct FloorCall {
  std::string text;
  int64_t recompute = 0;  // calls per micro-batch if every block is recomputed
  int64_t keep = 0;       // the same if nothing is recomputed
  double seconds = 0;     // per call
  double flops = 0;
};

struct Floor {
  std::vector<FloorCall> calls;
  int64_t micro_tokens = 0;

  double recompute_tokens_per_s() const;
  double keep_tokens_per_s() const;
};

// Floors measured before, by the calls of their shape.
using Floors = std::map<std::string, Floor>;

// Weight gradients are assigned instead of accumulated, since accumulating is not part of the model's arithmetic. Uses
// its own ops, with the algorithms of the run identity, so that no scratch memory stays allocated.
const Floor& measure_floor(Session& session, Floors& floors);

}  // namespace megatrain
