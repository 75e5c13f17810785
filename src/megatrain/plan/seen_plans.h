// The plans that a search has already met for a workload. Many of its starts climb to the same plan, which is then
// evaluated only once.
#pragma once

#include <string>
#include <unordered_set>

#include "megatrain/io/xxh3.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

class SeenPlans {
 public:
  // Returns whether the plan is new.
  bool add(const Plan& plan);

 private:
  Xxh3 hash_;
  std::unordered_set<std::string> hashes_;  // 128 bits, so that different plans have different hashes
};

}  // namespace megatrain
