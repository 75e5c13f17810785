// LLaMA-Factory v1's lists of datasets: a YAML file with one under each name.
#pragma once

#include <string>
#include <vector>

#include "megatrain/dataset/dataset.h"

namespace megatrain {

// By its name, this is such a list.
bool is_dataset_list(const std::string& path);

// Each entry has a `path` (relative to the current directory), and may have `converter` (alpaca, sharegpt), `size` (the
// first so many samples), `weight`, `source` and `split` (train). Error(bad_input) for what is not understood, not
// trained on here (preferences) or not on this machine; Error(bad_config) for what is no YAML.
std::vector<Dataset> open_dataset_list(const std::string& path, DatasetUse use = DatasetUse::train);

}  // namespace megatrain
