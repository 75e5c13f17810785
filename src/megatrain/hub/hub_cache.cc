#include "megatrain/hub/hub_cache.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/hub/model_files.h"
#include "megatrain/hub/other_formats.h"
#include "megatrain/io/file.h"
#include "megatrain/io/user_cache.h"

namespace megatrain {

namespace fs = std::filesystem;

namespace {

// Unset and empty are the same, as for huggingface_hub.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);  // follows links
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

const char* what(ModelParts needed) { return needed == ModelParts::adapter ? "adapter" : "model"; }

std::string commands(const std::string& name, ModelParts needed) {
  if (needed == ModelParts::config)
    return fmt::format("its config.json is enough: download it with 'hf download {} config.json'", name);
  return fmt::format(
      "download it with 'hf download {0}', or with 'hf download {0} --local-dir DIR' and give DIR as the {1}", name,
      what(needed));
}

// Names in a directory, sorted.
std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The snapshot that refs/main names, or the only one that exists.
// `what` it is and `how` to get it: for messages.
fs::path snapshot_of(const fs::path& folder, const std::string& name, const char* what, const std::string& how) {
  constexpr int64_t kMaxReferenceBytes = 4096;
  const fs::path reference = folder / "refs" / "main";
  if (is_there(reference)) {
    std::string commit = read_text_file(reference.string(), kMaxReferenceBytes);
    commit.erase(commit.find_last_not_of(" \r\n\t") + 1);
    if (commit.empty() || commit.find('/') != std::string::npos || commit.front() == '.') {
      fail_input(
          fmt::format("{} holds {}, expected the name of a commit; {}", reference.string(), printable(commit), how));
    }
    const fs::path snapshot = folder / "snapshots" / commit;
    if (is_folder(snapshot)) return snapshot;
    fail_input(fmt::format("{} names commit {}, but the cache has no snapshot of it ({} does not exist); {}",
                           reference.string(), commit, snapshot.string(), how));
  }
  const std::vector<std::string> snapshots = names_in(folder / "snapshots");
  if (snapshots.size() == 1) return folder / "snapshots" / snapshots.front();
  if (snapshots.empty()) fail_input(fmt::format("{} has no snapshot of {}; {}", folder.string(), name, how));
  fail_input(fmt::format("{} has no refs/main and {} snapshots ({}); give the directory of one of them as the {}",
                         folder.string(), snapshots.size(), fmt::join(snapshots, ", "), what));
}

std::vector<std::string> missing_files(const fs::path& snapshot, ModelParts needed) {
  std::vector<std::string> missing;
  if (needed == ModelParts::adapter) {
    if (!is_there(snapshot / "adapter_config.json")) missing.emplace_back("adapter_config.json");
    if (!is_there(snapshot / "adapter_model.safetensors") && !is_there(snapshot / "adapter_model.bin"))
      missing.emplace_back("adapter_model.safetensors");
    return missing;
  }
  if (!is_there(snapshot / "config.json")) missing.push_back("config.json");
  if (needed == ModelParts::weights) {
    for (std::string& file : missing_weights(snapshot.string())) missing.push_back(std::move(file));
  }
  return missing;
}

}  // namespace

bool is_adapter_directory(const std::string& path) { return is_there(fs::path(path) / "adapter_config.json"); }

std::string hub_cache_directory() {
  if (const std::string cache = variable("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home + "/hub";
  return (fs::path(user_cache_directory()).parent_path() / "huggingface/hub").string();
}

bool is_hub_name(const std::string& path) {
  const size_t slash = path.find('/');
  if (slash == std::string::npos) return false;
  const auto plain = [](const std::string& part) {
    return !part.empty() && part.front() != '.' && part.front() != '-' &&
           std::all_of(part.begin(), part.end(), [](unsigned char c) {
             return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '.' ||
                    c == '_' || c == '-';
           });
  };
  return plain(path.substr(0, slash)) && plain(path.substr(slash + 1));
}

namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Where the cache keeps the model of this name: the folder of exactly this name, or the only one in another case.
fs::path folder_of(const std::string& name) {
  const fs::path cache = hub_cache_directory();
  const size_t slash = name.find('/');
  const std::string folder = fmt::format("models--{}--{}", name.substr(0, slash), name.substr(slash + 1));
  if (is_folder(cache / folder)) return cache / folder;
  std::vector<std::string> alike = names_in(cache);
  std::erase_if(alike, [&](const std::string& other) { return lower(other) != lower(folder); });
  return cache / (alike.size() == 1 ? alike.front() : folder);
}

// Throws Error(bad_input) if a model is needed and the path leads to something else, such as an adapter.
std::string find(const std::string& path, ModelParts needed, bool or_adapter) {
  or_adapter = or_adapter || needed == ModelParts::adapter;
  const auto check = [&](const std::string& directory) {
    if (!or_adapter || !is_adapter_directory(directory)) refuse_other_formats(directory);
  };
  check(path);
  if (is_there(path) || !is_hub_name(path)) return path;
  const fs::path folder = folder_of(path);
  if (!is_folder(folder)) {
    fail_input(fmt::format("{} is neither a directory here nor {} {} in the Hugging Face cache ({} does not exist); {}",
                           path, needed == ModelParts::adapter ? "an" : "a", what(needed), folder.string(),
                           commands(path, needed)));
  }
  const fs::path snapshot = snapshot_of(folder, path, what(needed), commands(path, needed));
  if (or_adapter && is_adapter_directory(snapshot.string())) needed = ModelParts::adapter;
  check(snapshot.string());
  const std::vector<std::string> missing = missing_files(snapshot, needed);
  if (!missing.empty()) {
    constexpr size_t kNamed = 8;
    const std::vector<std::string> named(missing.begin(),
                                         missing.begin() + static_cast<int64_t>(std::min(kNamed, missing.size())));
    const std::vector<std::string> blobs = names_in(folder / "blobs");
    const auto unfinished = std::count_if(blobs.begin(), blobs.end(),
                                          [](const std::string& name) { return name.ends_with(".incomplete"); });
    fail_input(fmt::format("the download of {} is incomplete: {} lacks {}{}{}; {}", path, snapshot.string(),
                           fmt::join(named, ", "),
                           missing.size() > kNamed ? fmt::format(" and {} more", missing.size() - kNamed) : "",
                           unfinished ? fmt::format(" ({} of its files are half downloaded: *.incomplete in {})",
                                                    unfinished, (folder / "blobs").string())
                                      : "",
                           commands(path, needed)));
  }
  return snapshot.string();
}

}  // namespace

std::string find_hub_dataset(const std::string& name) {
  const size_t slash = name.find('/');
  const std::string own = name.substr(slash + 1);
  const std::string how = fmt::format(
      "download it with 'hf download {0} --repo-type dataset', or with 'hf download {0} --repo-type dataset "
      "--local-dir "
      "data/{1}' and give data/{1}",
      name, own);
  const fs::path folder = fs::path(hub_cache_directory()) / fmt::format("datasets--{}--{}", name.substr(0, slash), own);
  if (!is_folder(folder)) {
    fail_input(
        fmt::format("{}: no such file or folder, and no dataset in the Hugging Face cache ({} does not exist); {}.",
                    name, folder.string(), how));
  }
  const fs::path snapshot = snapshot_of(folder, name, "dataset", how);
  const std::vector<std::string> blobs = names_in(folder / "blobs");
  if (std::any_of(blobs.begin(), blobs.end(), [](const std::string& blob) { return blob.ends_with(".incomplete"); })) {
    fail_input(
        fmt::format("the download of {} is incomplete: some of its files are half downloaded (*.incomplete in {}); "
                    "{}.",
                    name, (folder / "blobs").string(), how));
  }
  return snapshot.string();
}

bool in_hub_cache(const std::string& name) { return is_hub_name(name) && is_folder(folder_of(name)); }

std::string find_model(const std::string& path, ModelParts needed) { return find(path, needed, false); }

std::string find_model_or_adapter(const std::string& path, ModelParts needed) { return find(path, needed, true); }

}  // namespace megatrain
