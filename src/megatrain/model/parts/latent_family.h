// Shared by families with latent attention (MLA): reading its fields.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/model/layers/model_config.h"
#include "megatrain/model/parts/config_reader.h"

namespace megatrain {

// Fields that read_latent_sizes() reads, for Family::fields.
std::vector<std::string> latent_fields(std::vector<std::string> more);

// What transformers assumes if a field is absent.
struct AbsentLatent {
  int64_t q_rank, kv_rank, plain, turning, value, max_position;
};

// Reads the sizes that all families have, those of latent attention, and its RoPE with the scale of its softmax. Throws
// Error(bad_input).
void read_latent_sizes(const ConfigReader& reader, const AbsentLatent& absent, ModelConfig& config);

// Sets another RoPE than read_latent_sizes() did, which `reader` has, and the scale of the softmax that goes with it.
void set_latent_rope(const ConfigReader& reader, RopeConfig rope, ModelConfig& config);

}  // namespace megatrain
