// What lies in a folder of data.
#pragma once

#include <string>
#include <vector>

namespace megatrain {

// Paths at any depth, each list in order. Hidden files and folders are in none of them.
struct FolderFiles {
  std::vector<std::string> files;       // regular ones, and links to such
  std::vector<std::string> dead_links;  // they lead nowhere, or in a circle
  std::vector<std::string> others;      // with what each is: "d/more (a link to a folder)"
};

// Links to folders are not followed. Error(bad_input) where a folder cannot be read.
FolderFiles files_below(const std::string& folder);

}  // namespace megatrain
