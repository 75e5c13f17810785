// Datasets as Axolotl describes them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megatrain/foreign/values.h"

namespace megatrain {

struct AxolotlDatasets {
  std::vector<std::map<std::string, std::string>> items;  // in the form that data.train reads
  std::vector<std::string> notes;                         // what the user should know about them
  std::vector<std::string> warnings;                      // about options that are not followed
};

// Translates `datasets`, `test_datasets` or `pretraining_dataset`. What is refused becomes a sentence in `problems`
// with its location: a type that megatrain cannot format as Axolotl does, or an option that would be ignored.
AxolotlDatasets axolotl_datasets(const std::string& name, const Foreign& value, std::vector<std::string>& problems);

}  // namespace megatrain
