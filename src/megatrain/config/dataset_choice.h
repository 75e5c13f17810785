// Parses one entry of data.train or data.eval.
#pragma once

#include <map>
#include <string>

#include "megatrain/config/config.h"

namespace megatrain {

// The values that `format` accepts, separated by commas.
std::string dataset_formats();

// Reads the entries of one dataset, nested names dotted; an entry without a name is the path. Returns what is wrong and
// what was expected, without the location; empty if all is well.
std::string read_dataset_choice(const std::map<std::string, std::string>& entries, DatasetChoice& dataset);

}  // namespace megatrain
