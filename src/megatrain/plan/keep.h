// How much of a phase's inner activations waits from its forward to its backward; the rest is computed again. A phase
// names its own levels, in order: each keeps what the one before it keeps, the first nothing that can be computed
// again, the last everything. The plan chooses one by its place in that list and says where what it keeps waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace megatrain {

// A place in a phase's list of levels.
enum class Keep : int32_t { nothing };

constexpr size_t keep_index(Keep keep) { return static_cast<size_t>(keep); }

struct KeepLevel {
  std::string name;        // in plans: one word, once in a list
  std::string recomputed;  // what backward computes again, for people
  bool may_wait = false;   // what is kept may wait on the host or on disk
  int64_t bytes = 0;       // kept of one micro-batch
};

}  // namespace megatrain
