// The manifest that `prepare --out` writes next to its files, so that damaged files are not trained on.
#pragma once

#include <string>

#include "megatrain/config/config.h"
#include "megatrain/config/prepared_manifest.h"

namespace megatrain {

// Writes folder/prepared.json: what the manifest's files hold, and their checksums, for which the files are read.
void finish_prepared_set(const std::string& folder, PreparedManifest manifest);

// Verifies the files of data.tokens, documents, labels and order that a prepared.json next to them names. Files without
// one are accepted. Throws Error(bad_input) if a file or a prepared.json differs from what `prepare` wrote.
void check_prepared_files(const TrainConfig& config);

}  // namespace megatrain
