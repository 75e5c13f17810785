// The contents of a data folder.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

// Paths at any depth, each list sorted. Hidden files and folders are in none of them.
struct FolderFiles {
  std::vector<std::string> files;       // regular files and links to them
  std::vector<std::string> dead_links;  // broken or circular
  std::vector<std::string> others;      // each with its kind: "d/more (a link to a folder)"
};

// Links to folders are not followed. Error(bad_input) if a folder cannot be read.
FolderFiles files_below(const std::string& folder);

}  // namespace megatrain
