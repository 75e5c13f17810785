// The cache of tokenized datasets. NAME is a complete store, NAME.partial one that is being made or was interrupted,
// and NAME.damaged one that is being removed.
#pragma once

#include <string>

namespace megatrain {

// Removes what killed processes left: NAME.damaged, and every NAME.partial that no process holds and that will not be
// resumed, because nothing was saved in it or its last save is more than a week old.
void remove_leftovers(const std::string& cache_directory);

// The caller holds the lock of NAME.partial.
void remove_damaged_store(const std::string& store);

}  // namespace megatrain
