// Plans, records and state formats as text for people.
#pragma once

#include <cstdint>
#include <string>

#include "megatrain/plan/estimate.h"
#include "megatrain/plan/plan.h"
#include "megatrain/tensor/state_format.h"

namespace megatrain {

// "state: fp32 moments and master, exact", or which parts are not exact.
std::string describe(StateFormat format);

// "20.9B parameters (3.61B active)"; for a dense model only the first number.
std::string describe_parameters(const Workload& workload);

// Which experts of its layer a record holds: "experts 9 to 16" or "expert 9", counted from 1, or "experts" if it holds
// all of them. Empty for records that hold no experts.
std::string experts_of(const Workload& workload, int64_t record);

// "layer 3", or "experts 9 to 16 of layer 3". Layer 0 is the embedding; the one after the last layer is the head.
std::string describe_record(const Workload& workload, int64_t record);

// Multi-line text: placement, memory by tag, and the step's bottleneck.
std::string explain(const Workload& workload, const Plan& plan, const Estimate& estimate);

}  // namespace megatrain
