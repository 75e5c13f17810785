// The speed of light of a step: the best library time of every matrix product and attention call, each alone, summed.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "megatrain/train/session.h"

namespace megatrain {

struct FloorCall {
  std::string text;
  int64_t recompute = 0;  // times a micro-batch makes the call when every block is recomputed ...
  int64_t keep = 0;       // ... and when nothing is
  double seconds = 0;     // of one call
  double flops = 0;
};

struct Floor {
  std::vector<FloorCall> calls;
  int64_t micro_tokens = 0;

  double recompute_tokens_per_s() const;
  double keep_tokens_per_s() const;
};

// Of shapes measured before, by what they call.
using Floors = std::map<std::string, Floor>;

// Weight gradients are assigned, not added: adding is no arithmetic of the model. On ops of its own, with the
// algorithms of the identity, so that no scratch stays behind.
const Floor& measure_floor(Session& session, Floors& floors);

}  // namespace megatrain
