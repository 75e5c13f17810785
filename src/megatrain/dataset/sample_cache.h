// The cache of tokenized datasets. NAME is a complete store, NAME.partial one that is being made or was interrupted,
// and NAME.damaged one that is being removed.
#pragma once

#include <string>

namespace megatrain {

// Removes what killed processes left: NAME.damaged, and NAME.partial if no process holds it and none will resume it.
// The latter is the case if nothing was saved in it, or the last save is more than a week old.
void remove_leftovers(const std::string& cache_directory);

// The caller holds the lock of NAME.partial.
void remove_damaged_store(const std::string& store);

}  // namespace megatrain
