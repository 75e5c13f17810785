// The rotary embedding of a config.json, in both forms that files use: rope_theta with rope_scaling, and transformers
// 5's rope_parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/parts/config_reader.h"

namespace megatrain {

// Throws Error(bad_input) for values that are not supported, and if two fields disagree, because versions of
// transformers differ in which one they prefer. `theta` is transformers' default if the field is absent.
RopeConfig parse_rope(const ConfigReader& model, int64_t max_position, double theta = 10000.0);

// The same for a family that rotates only the first part of each head: partial_rotary_factor of config.head_dim, where
// `part` is transformers' default. `unused` names fields of the RoPE that text does not need.
RopeConfig parse_partial_rope(const ConfigReader& model, const ModelConfig& config, double theta, double part,
                              const std::vector<std::string>& unused = {});

// The same for a family whose queries grow with the position (RopeConfig::query_growth), of which `parameters` are the
// rope_parameters. They must have llama_4_scaling_beta and original_max_position_embeddings.
RopeConfig parse_growing_rope(const ConfigReader& model, nlohmann::json parameters, const ModelConfig& config);

// Refuses values that together divide by zero or overflow, although each alone is valid. Throws Error(bad_input).
void check_rope_is_finite(const RopeConfig& rope, int64_t head_dim, const std::string& where);

}  // namespace megatrain
