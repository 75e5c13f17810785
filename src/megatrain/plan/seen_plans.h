// The plans of a workload that a search has met. Many of its starts climb to the same plan, which is judged once.
#pragma once

#include <string>
#include <unordered_set>

#include "megatrain/io/xxh3.h"
#include "megatrain/plan/plan.h"

namespace megatrain {

class SeenPlans {
 public:
  // Whether the plan is new.
  bool add(const Plan& plan);

 private:
  Xxh3 hash_;
  std::unordered_set<std::string> hashes_;  // of 128 bits, so that different plans have different ones
};

}  // namespace megatrain
