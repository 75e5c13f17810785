// Shared by families whose layers have gated delta nets, and attention with an output gate between them: reading their
// fields.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/io/json.h"
#include "megatrain/model/parts/config_reader.h"
#include "megatrain/model/layers/model_config.h"

namespace megatrain {

// Fields that read_delta_sizes() reads, for Family::fields.
std::vector<std::string> delta_fields(std::vector<std::string> more);

// Reads the sizes that all families have, those of delta nets, and the RoPE of a part of each head. `kv_heads` is what
// transformers assumes if the field is absent. `unused_rope` names fields of the RoPE that text does not need. Throws
// Error(bad_input).
void read_delta_sizes(const ConfigReader& reader, int64_t kv_heads, const std::vector<std::string>& unused_rope,
                      ModelConfig& config);

// For Family::presets: the fields of delta nets with heads of 128, and of RoPE in a quarter of heads of 256.
nlohmann::json delta_preset(int64_t value_heads, double rope_theta);

}  // namespace megatrain
