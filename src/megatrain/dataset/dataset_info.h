// LLaMA-Factory's dataset_info.json: datasets by name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatrain/dataset/dataset.h"

namespace megatrain {

// The dataset of that name; nothing where the file has none (or is absent), and then `known` are those it has. As
// LLaMA-Factory reads it: columns "system", "tools" and "history" are used only where they are named. Error(bad_input)
// for what is not trained on here (preferences, images) or not on this machine (hubs, scripts).
std::optional<Dataset> find_dataset(const std::string& name, const std::string& info_directory,
                                    std::vector<std::string>& known);

// Appends the file, or the files of the folder.
void add_files(const std::string& path, Dataset& dataset);

}  // namespace megatrain
