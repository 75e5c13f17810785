// The settings of a PEFT directory's adapters, from its adapter_config.json.
#pragma once

#include <string>

#include "megatrain/config/config.h"
#include "megatrain/config/given_keys.h"

namespace megatrain {

inline constexpr const char* kAdapterFile = "adapter_config.json";

struct AdapterFile {
  TrainConfig::Adapter settings;
  std::string base;  // base_model_name_or_path; empty: it names none
};

// Throws Error(bad_input) for a directory without such a file or with pickled weights alone, and for settings that
// megatrain does not have.
AdapterFile read_adapter_file(const std::string& directory);

// Warns if the file names a base other than `base`, a model's directory.
void warn_of_other_base(const std::string& directory, const AdapterFile& file, const std::string& base);

// With model.adapter, a directory or a name in the Hugging Face cache, the settings come from there, and so does
// model.path if no model is given. Throws
// Error(bad_config) for a given key of the adapter that differs; dropout may.
void settle_adapter_keys(TrainConfig& config, const GivenKeys& given);

}  // namespace megatrain
