// A plan as JSON, and as a hash of it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "megatrain/plan/plan.h"

namespace megatrain {

nlohmann::json plan_to_json(const Plan& plan);
Plan plan_from_json(const nlohmann::json& json, const std::string& where);
std::string plan_hash(const Plan& plan);

}  // namespace megatrain
