// The rotary embedding of a config.json, in both forms that files have: rope_theta beside rope_scaling, and
// transformers 5's rope_parameters.
#pragma once

#include <cstdint>

#include "megatrain/model/config.h"
#include "megatrain/model/config_reader.h"

namespace megatrain {

// Throws Error(bad_input) for what is not supported, and where two fields disagree: versions of transformers then go by
// different ones.
// `theta`: what transformers takes where the field is absent.
RopeConfig parse_rope(const ConfigReader& model, int64_t max_position, double theta = 10000.0);

// Refuses values that divide by zero or overflow together, where each alone may be right. Error(bad_input).
void check_rope_is_finite(const RopeConfig& rope, int64_t head_dim, const std::string& where);

}  // namespace megatrain
