// One entry of data.train or data.eval: its keys, and what is wrong with one.
#pragma once

#include <map>
#include <string>

#include "megatrain/config/config.h"

namespace megatrain {

// The forms that `format` may name, with commas between.
std::string dataset_formats();

// Reads the entries of one dataset, nested names dotted; an entry without a name is the path. Returns what is wrong and
// what was expected, without the place: empty where nothing is.
std::string read_dataset_choice(const std::map<std::string, std::string>& entries, DatasetChoice& dataset);

}  // namespace megatrain
