// The directory of tokenised datasets: NAME is a complete store, NAME.partial one that is being made or was
// interrupted, NAME.damaged one that is being removed.
#pragma once

#include <string>

namespace megatrain {

// Removes what killed processes left: NAME.damaged, and the NAME.partial folders that no process holds and none will go
// on with, as nothing was saved in them or the last save is more than a week old.
void remove_leftovers(const std::string& cache_directory);

// The caller holds the lock of NAME.partial.
void remove_damaged_store(const std::string& store);

}  // namespace megatrain
