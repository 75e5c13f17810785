// Splits of a folder that says itself which files they are:
// - what save_to_disk of Hugging Face's `datasets` writes: state.json lists a split's Arrow files, and
// dataset_dict.json
//   the splits, which are folders of that form
// - the card of a dataset, README.md, whose front matter has `configs` with `data_files`
#pragma once

#include <optional>
#include <string>

#include "megatrain/dataset/splits.h"

namespace megatrain {

// Empty if the folder does not describe itself. The files are in the order of the description. A card's configuration
// is the one of the name `subset` or, if that is empty, the only one, the one marked `default: true` or the one named
// default. Error(bad_input) if there is no such configuration, if files are missing, or if a description is malformed.
std::optional<FolderSplits> described_splits(const std::string& folder, const std::string& subset);

// Whether `path`, relative to the card's folder, matches a pattern of data_files: * and ? within a name, ** for any
// folders, [] for a set of characters.
bool fits_glob(const std::string& path, const std::string& pattern);

}  // namespace megatrain
