// Reads the configuration of a training run, and refuses by name what is another kind of file.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/config.h"

namespace megatrain {

// Calls load_config. Throws Error(bad_config), naming the key it belongs to, when `path` is another kind of file, such
// as data or a model's config.json. The same when data.tokenizer is such a file.
TrainConfig load_run_config(const std::string& path, const std::vector<std::string>& overrides = {},
                            const ConfigNeeds& needs = {});

// The same for the text of a configuration; `name` stands for its file in messages.
TrainConfig parse_run_config(const std::string& text, const std::string& name,
                             const std::vector<std::string>& overrides = {}, const ConfigNeeds& needs = {});

}  // namespace megatrain
