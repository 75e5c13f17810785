// LLaMA-Factory's dataset_info.json, which names datasets.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatrain/dataset/dataset.h"

namespace megatrain {

// The dataset of that name. Empty if the file does not have it or is missing; `known` then lists the names it has. As
// in LLaMA-Factory, the columns "system", "tools" and "history" are used only if they are named. Error(bad_input) for
// datasets that cannot be trained on (preferences, images) or are not on this machine (hubs, scripts).
std::optional<Dataset> find_dataset(const std::string& name, const std::string& info_directory,
                                    std::vector<std::string>& known);

// Appends the file, or the files of the folder.
void add_files(const std::string& path, Dataset& dataset);

}  // namespace megatrain
