#include "megatrain/dataset/dataset.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/base/units.h"
#include "megatrain/dataset/dataset_info.h"
#include "megatrain/dataset/described_splits.h"
#include "megatrain/dataset/file_kind.h"
#include "megatrain/dataset/folder_files.h"
#include "megatrain/dataset/shards.h"
#include "megatrain/dataset/some_of.h"
#include "megatrain/dataset/splits.h"
#include "megatrain/hub/hub_cache.h"
#include "megatrain/io/byte_source.h"
#include "megatrain/io/json.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDescriptions[] = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                              "state.json"};
constexpr int64_t kHeadBytes = 64 * kKiB;  // examined to tell text from JSON Lines

bool is_one_of(std::string_view text, std::span<const std::string_view> all) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

// "org/name", a dataset on Hugging Face, rather than the path of a missing file.
bool is_hub_dataset(const std::string& path) {
  std::error_code ignored;
  return is_hub_name(path) && kind_of_file(path) == FileKind::other &&
         !fs::exists(path.substr(0, path.find('/')), ignored);
}

[[noreturn]] void refuse_missing(const std::string& path, const std::string& what) {
  if (path.find("://") != std::string::npos)
    fail_input(fmt::format("{} is a URL, and megatrain does not download; download it, and give its files.", path));
  fail_input(what);
}

// A link with the name of a data file was meant to be read, so it is not skipped silently.
[[noreturn]] void refuse_dead_link(const std::string& folder, const std::string& link) {
  fail_input(fmt::format("the folder {} has {}, a broken or circular link; fix or remove it.", folder, link));
}

// What the datasets library keeps of its own computations beside a dataset's data: cache-0123456789abcdef.arrow.
bool is_library_cache(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name.ends_with(".arrow") && (name.starts_with("cache-") || name.starts_with("tmp"));
}

bool is_samples(const std::string& path) {
  return holds_rows(path) && !is_one_of(fs::path(path).filename().string(), kDescriptions) && !is_library_cache(path);
}

[[noreturn]] void refuse_tables(const std::string& folder, const std::vector<std::string>& tables) {
  if (tables.size() == 1) refuse_unread(tables.front());
  fail_input(fmt::format("the folder {} has {} and no samples that are read; the first is {}.", folder, some_of(tables),
                         unread_advice(tables.front())));
}

void add_folder(const std::string& folder, Dataset& dataset) {
  const FolderFiles found = files_below(folder);
  const std::vector<std::string>& all = found.files;
  const auto& dead = found.dead_links;
  const bool rows =
      std::any_of(all.begin(), all.end(), is_samples) || std::any_of(dead.begin(), dead.end(), is_samples);
  const auto is_wanted = [&](const std::string& path) {
    return rows ? is_samples(path) : kind_of_file(path) == FileKind::text;
  };
  for (const std::string& link : dead) {
    if (is_wanted(link)) refuse_dead_link(folder, link);
    dataset.no_files.push_back(link + " (a broken link)");
  }
  dataset.no_files.insert(dataset.no_files.end(), found.others.begin(), found.others.end());
  for (const std::string& path : all) (is_wanted(path) ? dataset.files : dataset.passed_over).push_back(path);
  if (rows) return;
  std::vector<std::string> tables;
  std::copy_if(all.begin(), all.end(), std::back_inserter(tables),
               [](const std::string& path) { return kind_of_file(path) == FileKind::unread; });
  if (!tables.empty()) refuse_tables(folder, tables);
  if (!dataset.files.empty()) return;
  fail_input(
      fmt::format("the folder {} has no samples: expected .jsonl, .jsonlines, .ndjson, .json, .parquet, .csv, .tsv or "
                  ".arrow files, "
                  "or text (.txt .text .md .markdown .rst .tex){}; give another folder, or a file.",
                  folder, dataset.no_files.empty() ? "" : fmt::format("; not read: {}", some_of(dataset.no_files))));
}

// Files of two kinds are often the same samples twice.
void check_one_kind(const std::string& folder, const std::vector<std::string>& files) {
  const auto other = std::find_if(files.begin(), files.end(), [&](const std::string& file) {
    return kind_of_file(file) != kind_of_file(files.front());
  });
  if (other == files.end()) return;
  fail_input(
      fmt::format("the folder {} has {} ({}) and {} ({}), which may be the same samples twice; give the paths of the "
                  "files or folders to use.",
                  folder, word_of(kind_of_file(files.front())), files.front(), word_of(kind_of_file(*other)), *other));
}

// The splits of a folder: as it describes itself (described_splits.h), otherwise by the names of its files, which are
// then those of `dataset`.
FolderSplits splits_in(const std::string& folder, const DatasetPart& part, Dataset& dataset) {
  if (auto described = described_splits(folder, part.subset)) return *described;
  if (!part.subset.empty())
    fail_input(fmt::format("{} has no README.md that names its subsets; leave subset: {} out.", folder, part.subset));
  add_folder(folder, dataset);
  return {.splits = splits_of(folder, dataset.files), .by = "file names"};
}

void open_folder(const std::string& folder, DatasetUse use, const DatasetPart& part, Dataset& dataset) {
  const FolderSplits splits = splits_in(folder, part, dataset);
  keep_split(folder, use, part.split, splits, dataset);
  check_one_kind(folder, dataset.files);
  check_shards(folder, dataset.files);
  for (const std::string& file : dataset.files) refuse_unread(file);
}

// The folder of a dataset: its own path, or where the Hugging Face cache has it. Empty for anything else.
std::string folder_of(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  return !fs::exists(path, error) && is_hub_dataset(path) ? find_hub_dataset(path) : "";
}

}  // namespace

DatasetForm dataset_form(std::string_view word) {
  for (const DatasetForm form : {DatasetForm::detect, DatasetForm::messages, DatasetForm::sharegpt, DatasetForm::alpaca,
                                 DatasetForm::alpaca_prompt, DatasetForm::prompt, DatasetForm::text}) {
    if (word == word_of(form)) return form;
  }
  fail_config(fmt::format(
      "\"{}\" is not a dataset format; expected detect, messages, sharegpt, alpaca, alpaca_prompt, prompt or text.",
      word));
}

std::string_view word_of(DatasetForm form) {
  switch (form) {
    case DatasetForm::detect: return "detect";
    case DatasetForm::messages: return "messages";
    case DatasetForm::sharegpt: return "sharegpt";
    case DatasetForm::alpaca: return "alpaca";
    case DatasetForm::alpaca_prompt: return "alpaca_prompt";
    case DatasetForm::prompt: return "prompt";
    case DatasetForm::text: return "text";
  }
  return "";
}

void check_is_text(const std::string& path) {
  ByteSource file(path);
  std::string head;
  file.read(head, 0, kHeadBytes);
  std::string_view text = head;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size()));
  // The text must begin like an object with a key, or an array of such objects.
  std::string_view begin = text;
  for (const char expected : {'[', '{', '"'}) {
    if (!begin.starts_with(expected)) {
      if (expected == '[') continue;
      return;
    }
    begin.remove_prefix(1);
    begin.remove_prefix(std::min(begin.find_first_not_of(" \t\r\n"), begin.size()));
  }
  if (text.starts_with('{')) {
    const size_t end = text.find('\n');
    const bool whole = end != std::string_view::npos || file.ends_at(kHeadBytes);
    const std::string_view line = text.substr(0, end);
    if (whole && !nlohmann::json::accept(line.begin(), line.end())) return;
  }
  fail_input(
      fmt::format("{} has the name of a text file, but its first line is JSON; rename it to end in .jsonl, or give the "
                  "dataset as {{path: {}, format: text}} to train on it as text.",
                  path, path));
}

std::string passed_over_sentence(const Dataset& dataset) {
  std::vector<std::string> names;
  for (const std::string& path : dataset.passed_over) {
    const std::string name = fs::path(path).filename().string();
    const bool describes = name.starts_with("README") || name.starts_with("LICENSE") || is_one_of(name, kDescriptions);
    if (!describes) names.push_back(path);
  }
  names.insert(names.end(), dataset.no_files.begin(), dataset.no_files.end());
  if (names.empty()) return "";
  return fmt::format("not read in the folder {}: {}", dataset.name, some_of(names));
}

std::string split_sentence(const Dataset& dataset) {
  if (!dataset.left_out.empty())
    return fmt::format("reading the {} split of {}, chosen by {}; not read: {} (to use a file, give its path)",
                       dataset.split, dataset.name, dataset.split_by, some_of(dataset.left_out));
  if (!dataset.held_out.empty())
    return fmt::format(
        "the dataset {} uses all files of its folder, as in LLaMA-Factory, even those whose names say that they are "
        "not for training: {} (to leave them out, list the others as \"file_name\")",
        dataset.name, some_of(dataset.held_out));
  return "";
}

void add_files(const std::string& path, Dataset& dataset) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    add_folder(path, dataset);
  } else if (fs::exists(status)) {
    refuse_unread(path);
    dataset.files.push_back(path);
  } else {
    if (std::error_code none; fs::is_symlink(path, none))
      fail_input(fmt::format("{} is a broken or circular link; fix it, or give the path itself.", path));
    const std::string hint = unexpanded_hint(path);
    refuse_missing(path, fmt::format("no such file or folder: {}{}.", path, hint.empty() ? "; check the path" : hint));
  }
}

Dataset open_dataset(const std::string& path_or_name, const std::string& info_directory, DatasetUse use,
                     const DatasetPart& part) {
  std::vector<std::string> known;
  if (!info_directory.empty()) {
    if (auto dataset = find_dataset(path_or_name, info_directory, known)) {
      if (use != DatasetUse::train) dataset->held_out.clear();
      return *dataset;
    }
  }
  Dataset dataset{.name = path_or_name};
  std::error_code error;
  const bool there = fs::exists(path_or_name, error);
  if (const std::string folder = folder_of(path_or_name); !folder.empty()) {
    open_folder(folder, use, part, dataset);
    return dataset;
  }
  if (!info_directory.empty() && !there) {
    constexpr size_t kShown = 12;
    const bool cut = known.size() > kShown;
    known.resize(std::min(known.size(), kShown));
    refuse_missing(
        path_or_name,
        fmt::format("{} is not a file, a folder or a dataset in {}/dataset_info.json, which has {}{}; check the name.",
                    path_or_name, info_directory, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
                    cut ? ", ..." : ""));
  }
  if (there && !(part.split + part.subset).empty())
    fail_input(fmt::format("{} is a file, which has no splits or subsets; leave split and subset out.", path_or_name));
  add_files(path_or_name, dataset);
  return dataset;
}

std::optional<Dataset> open_held_out(const std::string& path_or_name, const std::string& info_directory,
                                     const std::string& subset) {
  std::vector<std::string> known;
  if (!info_directory.empty() && find_dataset(path_or_name, info_directory, known)) return std::nullopt;
  const std::string folder = folder_of(path_or_name);
  if (folder.empty()) return std::nullopt;
  Dataset dataset{.name = path_or_name};
  if (!has_held_out(splits_in(folder, {.subset = subset}, dataset))) return std::nullopt;
  return open_dataset(path_or_name, info_directory, DatasetUse::evaluate, {.subset = subset});
}

}  // namespace megatrain
