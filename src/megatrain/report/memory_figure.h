// Memory of one tier: a bar of the planned bytes by tag, the measured peak, and a table of the same.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace megatrain {

struct TierMemory {
  std::string title;
  std::vector<std::pair<std::string, int64_t>> planned;  // bytes by tag
  int64_t peak = 0;                                      // measured bytes; 0: unknown
  int64_t used = 0;                                      // at the moment, for a live run; 0: unknown
  int64_t limit = 0;                                     // what the machine has; 0: unknown

  int64_t planned_bytes() const;
};

// A <figure>. `largest` bytes take the whole width, so that tiers can be compared.
std::string memory_figure(const TierMemory& tier, int64_t largest);

}  // namespace megatrain
