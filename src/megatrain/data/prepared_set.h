// What `prepare --out` writes beside its files, so that a damaged one is not trained on.
#pragma once

#include <string>

#include "megatrain/config/config.h"
#include "megatrain/config/prepared_manifest.h"

namespace megatrain {

// Writes folder/prepared.json: what the manifest's files hold, and their checksums. The files are read through.
void finish_prepared_set(const std::string& folder, PreparedManifest manifest);

// Reads those of data.tokens, documents, labels and order through that a prepared.json beside them names; files without
// one are taken as they are. Throws Error(bad_input) where a file, or a prepared.json, is not what `prepare` wrote.
void check_prepared_files(const TrainConfig& config);

}  // namespace megatrain
