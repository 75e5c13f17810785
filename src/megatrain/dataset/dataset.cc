#include "megatrain/dataset/dataset.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/shell_word.h"
#include "megatrain/base/units.h"
#include "megatrain/dataset/convert_command.h"
#include "megatrain/dataset/dataset_info.h"
#include "megatrain/dataset/folder_files.h"
#include "megatrain/dataset/shards.h"
#include "megatrain/dataset/some_of.h"
#include "megatrain/dataset/splits.h"
#include "megatrain/io/file.h"
#include "megatrain/io/json.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJsonEndings[] = {".jsonl", ".jsonlines", ".ndjson", ".json"};
constexpr std::string_view kTextEndings[] = {".txt", ".text", ".md", ".markdown", ".rst", ".tex"};
constexpr std::string_view kDescriptions[] = {"dataset_info.json", "dataset_infos.json", "dataset_dict.json",
                                              "state.json"};

// File types that are not read, and how to convert them. `reader` is a pandas function that opens the file; if it is
// empty, `advice` says what to do. Cells of tables stay text, unchanged: an answer may be 7, 007 or NA.
constexpr std::string_view kArrow = ".arrow";  // as written by the datasets library; pandas does not open it
struct Unread {
  std::string_view ending;
  const char *what, *reader, *advice;
};
constexpr Unread kUnread[] = {
    {".parquet", "a Parquet file", "read_parquet(sys.argv[1])", ""},
    {".csv", "a table", "read_csv(sys.argv[1], dtype=str, keep_default_na=False)", ""},
    {".tsv", "a table", "read_csv(sys.argv[1], sep=\"\\t\", dtype=str, keep_default_na=False)", ""},
    {".feather", "an Arrow file", "read_feather(sys.argv[1])", ""},
    {".orc", "an ORC file", "read_orc(sys.argv[1])", ""},
    {".xlsx", "a table", "read_excel(sys.argv[1], dtype=str, keep_default_na=False)", ""},
    {kArrow, "an Arrow file", "", ""},
    {".gz", "compressed", "", "unpack it with gunzip"},
    {".zst", "compressed", "", "unpack it with unzstd"},
    {".xz", "compressed", "", "unpack it with unxz"},
    {".bz2", "compressed", "", "unpack it with bunzip2"},
    {".lz4", "compressed", "", "unpack it with unlz4"},
    {".zip", "compressed", "", "unpack it with unzip"},
    {".7z", "compressed", "", "unpack it with 7z x"},
    {".tar", "an archive", "", "unpack it with tar"},
    {".tgz", "an archive", "", "unpack it with tar"},
    {".pkl", "a pickle", "", "write its samples to a JSON Lines file"},
};
constexpr int64_t kHeadBytes = 64 * kKiB;  // examined to tell text from JSON Lines

std::string ending_of(const std::string& path) {
  std::string ending = fs::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return ending;
}

bool is_one_of(std::string_view text, std::span<const std::string_view> all) {
  return std::find(all.begin(), all.end(), text) != all.end();
}

const Unread* unread(const std::string& path) {
  const std::string ending = ending_of(path);
  const auto* const found =
      std::find_if(std::begin(kUnread), std::end(kUnread), [&](const Unread& each) { return each.ending == ending; });
  return found == std::end(kUnread) ? nullptr : found;
}

// The command that writes a JSON Lines file next to it.
std::string advice_for(const std::string& path, const Unread& format) {
  if (format.advice[0] != '\0') return format.advice;
  const std::string out = fs::path(path).replace_extension(".jsonl").string();
  const std::string command = format.ending == kArrow
                                  ? python_command(
                                        "import sys, datasets; datasets.Dataset.from_file(sys.argv[1]).to_json("
                                        "sys.argv[2], force_ascii=False)",
                                        path, out)
                                  : pandas_command(format.reader, path, out);
  return fmt::format("convert it to JSON Lines: {}, and give {}", command, out);
}

[[noreturn]] void refuse(const std::string& path, const Unread& format) {
  fail_input(fmt::format("{} is {}, which is not supported; {}.", path, format.what, advice_for(path, format)));
}

// "org/name", a dataset on Hugging Face, rather than the path of a missing file. Such a name needs no quotes in a
// shell.
bool is_hub_dataset(const std::string& path) {
  const size_t slash = path.find('/');
  if (slash == 0 || slash == std::string::npos || path.find('/', slash + 1) != std::string::npos) return false;
  if (path[0] == '.' || path[0] == '-' || slash + 1 == path.size()) return false;
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("/._-").find(c) != std::string_view::npos;
  };
  if (!std::all_of(path.begin(), path.end(), is_plain)) return false;
  std::error_code ignored;
  const bool folder = fs::is_directory(path.substr(0, slash), ignored);
  return !folder && !is_json_name(path) && !is_one_of(ending_of(path), kTextEndings) && !unread(path);
}

[[noreturn]] void refuse_missing(const std::string& path, const std::string& what) {
  if (path.find("://") != std::string::npos)
    fail_input(fmt::format("{} is a URL, and megatrain does not download; download it, and give its files.", path));
  if (is_hub_dataset(path)) {
    const std::string folder = "data/" + path.substr(path.find('/') + 1);
    fail_input(
        fmt::format("{0}: no such file or folder; if it is a dataset on the Hugging Face hub, download it with 'hf "
                    "download {0} --repo-type dataset --local-dir {1}', and give {1} (for Parquet files, the next "
                    "message says how to convert them).",
                    path, folder));
  }
  fail_input(what);
}

// A link with the name of a data file was meant to be read, so it is not skipped silently.
[[noreturn]] void refuse_dead_link(const std::string& folder, const std::string& link) {
  fail_input(fmt::format("the folder {} has {}, a broken or circular link; fix or remove it.", folder, link));
}

void add_folder(const std::string& folder, Dataset& dataset) {
  const FolderFiles found = files_below(folder);
  const std::vector<std::string>& all = found.files;
  const auto is_samples = [](const std::string& path) {
    return is_json_name(path) && !is_one_of(fs::path(path).filename().string(), kDescriptions);
  };
  const auto& dead = found.dead_links;
  const bool json =
      std::any_of(all.begin(), all.end(), is_samples) || std::any_of(dead.begin(), dead.end(), is_samples);
  const auto is_wanted = [&](const std::string& path) {
    return json ? is_samples(path) : is_one_of(ending_of(path), kTextEndings);
  };
  for (const std::string& link : dead) {
    if (is_wanted(link)) refuse_dead_link(folder, link);
    dataset.no_files.push_back(link + " (a broken link)");
  }
  dataset.no_files.insert(dataset.no_files.end(), found.others.begin(), found.others.end());
  for (const std::string& path : all) (is_wanted(path) ? dataset.files : dataset.passed_over).push_back(path);
  if (json) return;
  std::vector<std::string> tables;
  for (const std::string& path : all) {
    if (unread(path)) tables.push_back(path);
  }
  if (tables.size() == 1) refuse(tables.front(), *unread(tables.front()));
  if (!tables.empty()) {
    const Unread& format = *unread(tables.front());
    fail_input(fmt::format("the folder {} has {} and no JSON; the first is {}, which is not supported; {}.", folder,
                           some_of(tables), format.what, advice_for(tables.front(), format)));
  }
  if (!dataset.files.empty()) return;
  fail_input(
      fmt::format("the folder {} has no samples: expected .jsonl, .jsonlines, .ndjson or .json files, or text ({}){}; "
                  "give another folder, or a file.",
                  folder, fmt::join(kTextEndings, " "),
                  dataset.no_files.empty() ? "" : fmt::format("; not read: {}", some_of(dataset.no_files))));
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

bool is_json_name(const std::string& path) { return is_one_of(ending_of(path), kJsonEndings); }

void check_is_text(const std::string& path) {
  const File file = File::open_to_read(path);
  std::string head(static_cast<size_t>(std::min(file.bytes(), kHeadBytes)), '\0');
  file.read_at(0, head.data(), std::ssize(head));
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
    const bool whole = end != std::string_view::npos || file.bytes() <= kHeadBytes;
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
    return fmt::format(
        "reading the {} split of the folder {}, chosen by file names; not read: {} (to use a file, give its path)",
        dataset.split, dataset.name, some_of(dataset.left_out));
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
    if (const Unread* const format = unread(path)) refuse(path, *format);
    dataset.files.push_back(path);
  } else {
    if (std::error_code none; fs::is_symlink(path, none))
      fail_input(fmt::format("{} is a broken or circular link; fix it, or give the path itself.", path));
    const std::string hint = unexpanded_hint(path);
    refuse_missing(path, fmt::format("no such file or folder: {}{}.", path, hint.empty() ? "; check the path" : hint));
  }
}

Dataset open_dataset(const std::string& path_or_name, const std::string& info_directory, DatasetUse use) {
  std::vector<std::string> known;
  if (!info_directory.empty()) {
    if (auto dataset = find_dataset(path_or_name, info_directory, known)) {
      if (use != DatasetUse::train) dataset->held_out.clear();
      return *dataset;
    }
  }
  Dataset dataset{.name = path_or_name};
  std::error_code error;
  if (!info_directory.empty() && !fs::exists(path_or_name, error)) {
    constexpr size_t kShown = 12;
    const bool cut = known.size() > kShown;
    known.resize(std::min(known.size(), kShown));
    refuse_missing(
        path_or_name,
        fmt::format("{} is not a file, a folder or a dataset in {}/dataset_info.json, which has {}{}; check the name.",
                    path_or_name, info_directory, known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")),
                    cut ? ", ..." : ""));
  }
  add_files(path_or_name, dataset);
  if (fs::is_directory(path_or_name, error)) {
    keep_split(path_or_name, use, dataset);
    check_shards(path_or_name, dataset.files);
  }
  return dataset;
}

}  // namespace megatrain
