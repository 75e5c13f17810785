// A plan as JSON, and as a hash of it. What a phase keeps is written by the name that the phase's list has for it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/plan/plan.h"

namespace megatrain {

nlohmann::json plan_to_json(const Workload& workload, const Plan& plan);
// Throws Error(bad_config) for what is no plan, or one for another model.
Plan plan_from_json(const Workload& workload, const nlohmann::json& json, const std::string& where);
// Of such a plan, before there is a workload: how it cuts experts into records.
int64_t planned_experts_per_record(const nlohmann::json& json, const std::string& where);
std::string plan_hash(const Workload& workload, const Plan& plan);

}  // namespace megatrain
