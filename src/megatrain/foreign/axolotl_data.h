// Datasets as Axolotl's files describe them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megatrain/foreign/values.h"

namespace megatrain {

struct AxolotlDatasets {
  std::vector<std::map<std::string, std::string>> items;  // as data.train reads them
  std::vector<std::string> notes;                         // what is to be known of them
  std::vector<std::string> warnings;                      // of what is not obeyed
};

// Of `datasets`, `test_datasets` or `pretraining_dataset`. What is refused becomes a sentence of `problems`, with its
// place: a type that megatrain cannot write as Axolotl does, an option that would be ignored.
AxolotlDatasets axolotl_datasets(const std::string& name, const Foreign& value, std::vector<std::string>& problems);

}  // namespace megatrain
