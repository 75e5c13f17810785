// A plan as JSON, and the hash of that JSON. A phase's keep level is written as the name it has in the phase's list.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/plan/plan.h"

namespace megatrain {

nlohmann::json plan_to_json(const Workload& workload, const Plan& plan);
// Throws Error(bad_config) if the JSON is not a plan, or is a plan for another model.
Plan plan_from_json(const Workload& workload, const nlohmann::json& json, const std::string& where);
// The experts per record of such a plan. Needs no workload, because the workload depends on it.
int64_t planned_experts_per_record(const nlohmann::json& json, const std::string& where);
std::string plan_hash(const Workload& workload, const Plan& plan);

}  // namespace megatrain
