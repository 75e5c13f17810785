#include "megatrain/dataset/folder_files.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

void add(const fs::directory_entry& entry, FolderFiles& found) {
  std::error_code error;
  const std::string path = entry.path().string();
  const bool link = entry.is_symlink(error);
  const fs::file_status status = entry.status(error);
  const auto other = [&](const char* what) { found.others.push_back(fmt::format("{} ({})", path, what)); };
  switch (status.type()) {
    case fs::file_type::regular: found.files.push_back(path); break;
    case fs::file_type::directory:
      if (link) other("a link to a folder");
      break;
    case fs::file_type::fifo: other("a pipe"); break;
    case fs::file_type::socket: other("a socket"); break;
    case fs::file_type::block:
    case fs::file_type::character: other("a device"); break;
    default:
      if (link)
        found.dead_links.push_back(path);
      else
        other("cannot be examined");
  }
}

}  // namespace

FolderFiles files_below(const std::string& folder) {
  FolderFiles found;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error), end;
  for (; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const bool hidden = at->path().filename().string().starts_with('.');
    if (!hidden)
      add(*at, found);
    else if (at->is_directory(ignored))
      at.disable_recursion_pending();
  }
  if (error) fail_input(fmt::format("cannot read the folder {}: {}; check its permissions.", folder, error.message()));
  for (auto* const paths : {&found.files, &found.dead_links, &found.others}) std::sort(paths->begin(), paths->end());
  return found;
}

}  // namespace megatrain
