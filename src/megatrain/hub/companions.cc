#include "megatrain/hub/companions.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/io/file.h"
#include "megatrain/io/lies_in.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxCompanionBytes = kGiB;

constexpr std::array<std::string_view, 14> kNames = {"tokenizer.json",
                                                     "tokenizer_config.json",
                                                     "tokenizer.model",
                                                     "special_tokens_map.json",
                                                     "added_tokens.json",
                                                     "vocab.json",
                                                     "merges.txt",
                                                     kTemplateFile,
                                                     "chat_template.json",
                                                     "generation_config.json",
                                                     "preprocessor_config.json",
                                                     "processor_config.json",
                                                     "video_preprocessor_config.json",
                                                     "tekken.json"};

// The directories that may contain files of the model, with links resolved.
std::vector<fs::path> roots_of(const std::string& directory) {
  std::error_code error;
  const fs::path own = fs::canonical(directory, error);
  if (error) fail_input(fmt::format("cannot resolve {}: {}; check the path.", directory, error.message()));
  std::vector<fs::path> roots = {own};
  for (fs::path at = own; at.has_relative_path(); at = at.parent_path()) {
    const fs::path folder = at.parent_path();
    if (at.filename() != "snapshots" || !folder.filename().string().starts_with("models--")) continue;
    roots.push_back(folder);
    // the user may have moved the blobs to another disk; nothing inside the snapshot could have caused that
    if (const fs::path blobs = fs::canonical(folder / "blobs", error); !error) roots.push_back(blobs);
    break;
  }
  return roots;
}

// Opens NAME in `directory` if it resolves to a regular file inside one of the roots, through any number of links.
File open_companion(const std::string& directory, const std::string& name, const std::vector<fs::path>& roots) {
  const std::string path = directory + "/" + name;
  std::error_code error;
  // before opening it: opening a device may have side effects
  if (fs::status(path, error).type() != fs::file_type::regular) {
    const fs::path target = fs::read_symlink(path, error);
    fail_input(fmt::format(
        "{} is {}, and an export would need it; remove it or download the model again.", path,
        error ? "neither a file nor a folder"
              : fmt::format("a link to {}, which does not exist or is not a file", printable(target.string()))));
  }
  File file = File::open_to_read(path);
  const fs::path place = fs::read_symlink(fmt::format("/proc/self/fd/{}", file.descriptor()), error);
  if (error) fail_io(fmt::format("cannot find out where {} is: {}; is /proc mounted?", path, error.message()));
  if (std::none_of(roots.begin(), roots.end(), [&](const fs::path& root) { return lies_in(place, root); })) {
    fail_input(
        fmt::format("{} is a link that leads to {}, outside the model's own folder {}; an export would copy that file: "
                    "replace the link with a copy if it belongs to the model, or remove the link.",
                    path, printable(place.string()), roots.back().string()));
  }
  return file;
}

// The names in the folder that `wanted` accepts and that are not folders.
template <class Wanted>
std::vector<std::string> names_in(const std::string& directory, const Wanted& wanted) {
  std::vector<std::string> names;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    std::error_code ignored;
    if (wanted(entry.path()) && !entry.is_directory(ignored)) names.push_back(entry.path().filename().string());
  }
  if (error) fail_io(fmt::format("cannot list {}: {}; check its permissions.", directory, error.message()));
  return names;
}

}  // namespace

bool is_companion_name(const std::string& name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() || name.starts_with("LICENSE");
}

std::vector<std::string> find_companions(const std::string& directory, bool templates) {
  std::vector<std::string> names = names_in(directory, [&](const fs::path& path) {
    const std::string name = path.filename().string();
    return is_companion_name(name) && (templates || name != kTemplateFile);
  });
  const std::string named = directory + "/" + kNamedTemplates;
  std::error_code ignored;
  if (templates && fs::is_directory(named, ignored)) {
    for (const std::string& name : names_in(named, [](const fs::path& path) { return path.extension() == ".jinja"; }))
      names.push_back(std::string(kNamedTemplates) + "/" + name);
  }
  std::sort(names.begin(), names.end());
  const std::vector<fs::path> roots = roots_of(directory);
  for (const std::string& name : names) open_companion(directory, name, roots);
  return names;
}

std::string read_companion(const std::string& directory, const std::string& name) {
  const File file = open_companion(directory, name, roots_of(directory));
  const int64_t size = file.bytes();
  if (size > kMaxCompanionBytes) {
    fail_input(fmt::format("{} has {} bytes, more than the {} such a file may have; check that it is the right file.",
                           file.path(), size, kMaxCompanionBytes));
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  file.read_at(0, bytes.data(), size);
  return bytes;
}

}  // namespace megatrain
