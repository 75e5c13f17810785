// What `prepare --out` writes beside its files, so that a damaged one is not trained on.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/config.h"

namespace megatrain {

inline constexpr const char* kPreparedManifest = "prepared.json";

// DIR/prepared.json: the checksums of files of DIR. They are read through.
void write_prepared_manifest(const std::string& directory, const std::vector<std::string>& names);

// Reads those of data.tokens, documents, labels and order through that a prepared.json beside them names; files without
// one are taken as they are. Throws Error(bad_input) where a file, or a prepared.json, is not what `prepare` wrote.
void check_prepared_files(const TrainConfig& config);

}  // namespace megatrain
