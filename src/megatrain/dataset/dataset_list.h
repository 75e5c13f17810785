// LLaMA-Factory v1's dataset lists: a YAML file that maps names to datasets.
#pragma once

#include <string>
#include <vector>

#include "megatrain/dataset/dataset.h"

namespace megatrain {

// Whether the file's name says that it is such a list.
bool is_dataset_list(const std::string& path);

// Each entry has a `path` (relative to the current directory). Optional keys are `converter` (alpaca, sharegpt), `size`
// (use only that many samples), `weight`, `source` and `split` (train). Error(bad_input) for entries that are not
// understood, cannot be trained on (preferences) or are not on this machine; Error(bad_config) for malformed YAML.
std::vector<Dataset> open_dataset_list(const std::string& path, DatasetUse use = DatasetUse::train);

}  // namespace megatrain
