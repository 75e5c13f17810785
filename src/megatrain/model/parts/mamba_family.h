// Shared by families with Mamba 2: reading their fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatrain/model/parts/config_reader.h"
#include "megatrain/model/layers/model_config.h"

namespace megatrain {

// All readers here throw Error(bad_input).

// Whether each layer has Mamba instead of attention, by their types under either of two names; nullopt if the field is
// absent.
std::optional<std::vector<bool>> read_mamba_layers(const ConfigReader& reader, const char* key, int64_t layers);

// A list of the least and the most step. transformers writes {"__float__": "Infinity"} for infinity.
void read_step_limits(const ConfigReader& reader, const char* key, Mamba2Config& config);

// Reads the fields of Granite 4 and Falcon-H1 but for the layers. The heads together have `width` elements,
// which `width_is` describes in errors.
std::vector<std::string> mamba_fields(std::vector<std::string> more);
void read_mamba_sizes(const ConfigReader& reader, int64_t width, const char* width_is, Mamba2Config& config);

// Refuses sizes that the ops do not take. The names are those of the fields.
struct MambaNames {
  const char *heads, *groups, *head_dim, *state_dim, *taps;
};
void check_mamba(const ConfigReader& reader, const MambaNames& names, const Mamba2Config& config);

}  // namespace megatrain
