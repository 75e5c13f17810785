#include "megatrain/dataset/described_splits.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/units.h"
#include "megatrain/dataset/folder_files.h"
#include "megatrain/dataset/some_of.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json_file.h"
#include "megatrain/io/yaml.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxCardBytes = 16 * kMiB;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// A name of a file in its own folder, so that no description leads elsewhere.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos;
}

// The files of one saved dataset.
std::vector<std::string> saved_files(const fs::path& folder) {
  const std::string state = (folder / "state.json").string();
  if (!is_there(state))
    fail_input(
        fmt::format("{} does not exist, which save_to_disk writes; the folder is incomplete: save it again.", state));
  const nlohmann::json json = read_json_file(state);
  const auto malformed = [&](const char* what) {
    fail_input(fmt::format("{}: {}; save the dataset again with save_to_disk.", state, what));
  };
  if (!json.is_object() || !json.contains("_data_files") || !json["_data_files"].is_array())
    malformed("\"_data_files\" is not a list of files");
  if (json.contains("_indices_data_files") && !json["_indices_data_files"].is_null() &&
      !json["_indices_data_files"].empty())
    malformed("it selects rows by indices (\"_indices_data_files\"), which are not read");
  std::vector<std::string> files, missing;
  for (const nlohmann::json& entry : json["_data_files"]) {
    const bool named = entry.is_object() && entry.contains("filename") && entry["filename"].is_string();
    if (!named || !is_plain_name(entry["filename"])) malformed("\"_data_files\" has an entry without a \"filename\"");
    const fs::path file = folder / entry["filename"].get<std::string>();
    (is_there(file) ? files : missing).push_back(file.string());
  }
  if (!missing.empty())
    fail_input(fmt::format("{} names files that do not exist: {}; get them, or save the dataset again.", state,
                           some_of(missing)));
  if (files.empty()) malformed("\"_data_files\" is empty");
  return files;
}

FolderSplits saved_splits(const fs::path& folder) {
  const std::string path = (folder / "dataset_dict.json").string();
  const nlohmann::json json = read_json_file(path);
  if (!json.is_object() || !json.contains("splits") || !json["splits"].is_array() || json["splits"].empty())
    fail_input(fmt::format("{} has to be {{\"splits\": [names]}}; save the dataset again with save_to_disk.", path));
  FolderSplits all{.by = "dataset_dict.json"};
  for (const nlohmann::json& name : json["splits"]) {
    if (!name.is_string() || !is_plain_name(name))
      fail_input(fmt::format("{}: a split is {}, expected the name of a folder.", path, printable(name.dump())));
    all.splits.push_back({.name = name, .files = saved_files(folder / name.get<std::string>())});
  }
  return all;
}

// The YAML between the first two lines of three dashes; empty if there is none.
std::string front_matter(const std::string& card) {
  if (!card.starts_with("---\n") && !card.starts_with("---\r\n")) return "";
  const size_t begin = card.find('\n') + 1;
  const size_t end = card.find("\n---", begin - 1);
  return end == std::string::npos ? "" : card.substr(begin, end + 1 - begin);
}

// The card of a folder, for messages.
struct Card {
  std::string path;
  [[noreturn]] void refuse(const std::string& what) const {
    fail_input(fmt::format("{}: {}; give the paths of the files to use.", path, what));
  }
};

std::vector<std::string> words_of(const Card& card, const YAML::Node& node) {
  std::vector<std::string> words;
  if (node.IsScalar()) {
    words.push_back(node.Scalar());
  } else if (node.IsSequence()) {
    for (const auto& each : node) {
      if (!each.IsScalar()) card.refuse("data_files has a path that is not text");
      words.push_back(each.Scalar());
    }
  } else {
    card.refuse("data_files has no path");
  }
  return words;
}

struct Pattern {
  std::string split;
  std::vector<std::string> paths;
};

// data_files: a path, a list of paths, a list of {split, path}, or a split for each path.
std::vector<Pattern> patterns_of(const Card& card, const YAML::Node& node) {
  const bool by_entry = node.IsSequence() && node.size() > 0 && node[0].IsMap();
  if (!by_entry && !node.IsMap()) return {{.split = "train", .paths = words_of(card, node)}};
  std::vector<Pattern> patterns;
  for (const auto& each : node) {
    if (node.IsMap()) {
      patterns.push_back({.split = each.first.Scalar(), .paths = words_of(card, each.second)});
    } else if (each.IsMap() && each["split"] && each["split"].IsScalar() && each["path"]) {
      patterns.push_back({.split = each["split"].Scalar(), .paths = words_of(card, each["path"])});
    } else {
      card.refuse("data_files has an entry without split and path");
    }
  }
  return patterns;
}

std::string name_of(const YAML::Node& config) {
  return config["config_name"] && config["config_name"].IsScalar() ? config["config_name"].Scalar() : "default";
}

YAML::Node chosen_config(const Card& card, const YAML::Node& configs, const std::string& subset) {
  std::vector<std::string> names;
  YAML::Node marked, named;
  for (const auto& config : configs) {
    if (!config.IsMap()) card.refuse("configs has an entry that is not a map");
    names.push_back(name_of(config));
    const std::string wanted = subset.empty() ? "default" : subset;
    if (names.back() == wanted) named.reset(config);
    if (config["default"] && config["default"].IsScalar() && config["default"].Scalar() == "true") marked.reset(config);
  }
  if (!subset.empty()) {
    if (std::find(names.begin(), names.end(), subset) != names.end()) return named;
    card.refuse(fmt::format("it has no subset {}, but {}", printable(subset), fmt::join(names, ", ")));
  }
  if (names.size() == 1) return configs[0];
  if (marked.IsMap()) return marked;
  if (named.IsMap()) return named;
  fail_input(fmt::format("{} has several subsets and no default: {}; name one: data.train: [{{path: {}, subset: {}}}].",
                         card.path, fmt::join(names, ", "), parent_directory(card.path), names.front()));
}

std::optional<FolderSplits> card_splits(const std::string& folder, const std::string& subset) {
  const Card card{folder + "/README.md"};
  if (!is_there(card.path)) return std::nullopt;
  const std::string text = front_matter(read_text_file(card.path, kMaxCardBytes));
  if (text.find("configs:") == std::string::npos) return std::nullopt;
  const YAML::Node document = parse_yaml(text, card.path);
  if (!document.IsMap() || !document["configs"] || !document["configs"].IsSequence() || document["configs"].size() == 0)
    return std::nullopt;
  const YAML::Node config = chosen_config(card, document["configs"], subset);
  if (!config["data_files"] && !config["data_dir"]) return std::nullopt;  // only names a configuration
  const std::string below =
      config["data_dir"] && config["data_dir"].IsScalar() ? config["data_dir"].Scalar() + "/" : "";
  if (!config["data_files"])
    card.refuse(fmt::format("the subset {} has a data_dir and no data_files", name_of(config)));
  const std::vector<std::string> all = files_below(folder).files;
  FolderSplits splits{.by = "the card README.md"};
  for (const Pattern& pattern : patterns_of(card, config["data_files"])) {
    Split split{.name = pattern.split};
    for (const std::string& path : pattern.paths) {
      const size_t before = split.files.size();
      for (const std::string& file : all) {
        const bool fits = fits_glob(fs::path(file).lexically_relative(folder).string(), below + path);
        if (fits && std::find(split.files.begin(), split.files.end(), file) == split.files.end())
          split.files.push_back(file);
      }
      if (split.files.size() == before)
        card.refuse(
            fmt::format("no file here matches {} of the split {}, so the dataset is incomplete: download it "
                        "again",
                        printable(below + path), printable(pattern.split)));
    }
    splits.splits.push_back(std::move(split));
  }
  return splits;
}

bool matches(const std::vector<std::string>& parts, size_t part, const std::vector<std::string>& pattern, size_t at) {
  if (at == pattern.size()) return part == parts.size();
  if (pattern[at] == "**") {
    for (size_t skip = part; skip <= parts.size(); ++skip) {
      if (matches(parts, skip, pattern, at + 1)) return true;
    }
    return false;
  }
  return part < parts.size() && ::fnmatch(pattern[at].c_str(), parts[part].c_str(), FNM_PERIOD) == 0 &&
         matches(parts, part + 1, pattern, at + 1);
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : fs::path(path).lexically_normal()) parts.push_back(part.string());
  return parts;
}

}  // namespace

bool fits_glob(const std::string& path, const std::string& pattern) {
  return matches(parts_of(path), 0, parts_of(pattern), 0);
}

std::optional<FolderSplits> described_splits(const std::string& folder, const std::string& subset) {
  const fs::path path(folder);
  const auto saved = [&](FolderSplits splits) {
    if (subset.empty()) return splits;
    fail_input(
        fmt::format("{} was written by save_to_disk, which has no subsets; leave subset: {} out.", folder, subset));
  };
  if (is_there(path / "dataset_dict.json")) return saved(saved_splits(path));
  if (is_there(path / "state.json")) {
    const nlohmann::json state = read_json_file((path / "state.json").string());
    if (state.is_object() && state.contains("_data_files"))
      return saved({.by = "state.json", .whole = saved_files(path)});
  }
  return card_splits(folder, subset);
}

}  // namespace megatrain
