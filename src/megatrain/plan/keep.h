// Selective recomputation: how much of a phase's inner activations is kept from forward to backward; the rest is
// recomputed. A phase names its own levels in order, and each level keeps everything the one before it keeps. The first
// keeps nothing that can be recomputed, the last keeps everything. The plan picks a level by its index in that list,
// and decides where the kept activations wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace megatrain {

// An index into a phase's list of levels.
enum class Keep : int32_t { nothing };

constexpr size_t keep_index(Keep keep) { return static_cast<size_t>(keep); }

struct KeepLevel {
  std::string name;        // in plan files: one word, unique within the list
  std::string recomputed;  // what backward recomputes, as text for people
  bool may_wait = false;   // the kept activations may wait on the host or on disk
  int64_t bytes = 0;       // kept per micro-batch
};

}  // namespace megatrain
