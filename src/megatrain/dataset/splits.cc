#include "megatrain/dataset/splits.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/dataset/shards.h"
#include "megatrain/dataset/some_of.h"
#include "megatrain/io/file.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

struct SplitWords {
  const char* split;
  std::vector<std::string_view> words;
};
const SplitWords kSplits[] = {{"train", {"train", "training"}},
                              {"validation", {"validation", "valid", "dev", "val"}},
                              {"test", {"test", "testing", "eval", "evaluation"}}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool separates(char c) { return is_digit(c) || std::string_view("-._ ").find(c) != std::string_view::npos; }

// Whether `word` appears in `name` (lower case) after a separator or at its beginning, and before a separator. In the
// name of a folder it may also be at the end.
bool has_word(std::string_view name, std::string_view word, bool folder) {
  for (size_t at = name.find(word); at != std::string_view::npos; at = name.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool ends = end == name.size() ? folder : separates(name[end]);
    if (ends && (at == 0 || separates(name[at - 1]))) return true;
  }
  return false;
}

// "train" for data/train-00000-of-00003.jsonl; empty if it is not such a shard.
std::string shard_split(const fs::path& relative) {
  if (relative.parent_path() != "data") return "";
  const std::string name = relative.filename().string();
  const auto shard = shard_name(name);
  if (!shard || !shard->set.ends_with('-') || shard->rest.find('.') == std::string_view::npos) return "";
  return std::string(shard->set.substr(0, shard->set.size() - 1));
}

std::string lower_case(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return name;
}

void add_to(std::vector<Split>& splits, const std::string& name, const std::string& file) {
  auto found = std::find_if(splits.begin(), splits.end(), [&](const Split& split) { return split.name == name; });
  if (found == splits.end()) found = splits.insert(splits.end(), Split{.name = name});
  found->files.push_back(file);
}

std::vector<Split> by_words(const std::string& folder, const std::vector<std::string>& files, bool folder_names) {
  std::vector<Split> splits;
  for (const auto& [split, words] : kSplits) {
    for (const std::string& file : files) {
      const fs::path relative = fs::path(file).lexically_relative(folder);
      std::vector<std::string> names = {relative.filename().string()};
      if (folder_names) {
        const fs::path parents = relative.parent_path();
        names.assign(parents.begin(), parents.end());
      }
      const bool fits = std::any_of(names.begin(), names.end(), [&, &all = words](const std::string& name) {
        return std::any_of(all.begin(), all.end(),
                           [&](std::string_view word) { return has_word(lower_case(name), word, folder_names); });
      });
      if (fits) add_to(splits, split, file);
    }
  }
  return splits;
}

// "test (d/test.jsonl), validation (d/dev.jsonl and 3 more)"
std::string shown(const std::vector<Split>& splits) {
  std::vector<std::string> parts;
  for (const Split& split : splits) {
    const size_t more = split.files.size() - 1;
    parts.push_back(
        fmt::format("{} ({}{})", split.name, split.files.front(), more == 0 ? "" : fmt::format(" and {} more", more)));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// "; of no split: d/val.jsonl, d/x.jsonl": files that may hold a missing split. These are the folder's files in no
// split, and unread files whose names have a word of the wanted splits. Names with such a word come first.
std::string candidates(const std::vector<Split>& splits, std::span<const SplitWords> wanted, const Dataset& dataset) {
  const auto has_wanted_word = [&](const std::string& file) {
    const std::string name = lower_case(fs::path(file).filename().string());
    return std::any_of(wanted.begin(), wanted.end(), [&](const SplitWords& split) {
      return std::any_of(split.words.begin(), split.words.end(),
                         [&](std::string_view word) { return has_word(name, word, /*folder=*/false); });
    });
  };
  std::vector<std::string> files;
  std::copy_if(dataset.passed_over.begin(), dataset.passed_over.end(), std::back_inserter(files), has_wanted_word);
  for (const std::string& file : dataset.files) {
    const bool placed = std::any_of(splits.begin(), splits.end(), [&](const Split& split) {
      return std::count(split.files.begin(), split.files.end(), file) != 0;
    });
    if (!placed) files.push_back(file);
  }
  std::stable_partition(files.begin(), files.end(), has_wanted_word);
  return files.empty() ? "" : "; in no split: " + some_of(files);
}

// The split whose name is one of the words; null if there is none.
const Split* split_of(const std::vector<Split>& splits, const SplitWords& one) {
  const auto found = std::find_if(splits.begin(), splits.end(), [&](const Split& split) {
    return std::find(one.words.begin(), one.words.end(), lower_case(split.name)) != one.words.end();
  });
  return found == splits.end() ? nullptr : &*found;
}

void add_missing(const std::vector<std::string>& from, std::vector<std::string>& files) {
  for (const std::string& file : from) {
    if (std::find(files.begin(), files.end(), file) == files.end()) files.push_back(file);
  }
}

}  // namespace

std::vector<Split> splits_of(const std::string& folder, const std::vector<std::string>& files) {
  std::vector<Split> splits;
  for (const std::string& file : files) {
    if (const std::string name = shard_split(fs::path(file).lexically_relative(folder)); !name.empty())
      add_to(splits, name, file);
  }
  if (splits.empty()) splits = by_words(folder, files, /*folder_names=*/true);
  if (splits.empty()) splits = by_words(folder, files, /*folder_names=*/false);
  return splits;
}

bool has_held_out(const FolderSplits& all) {
  const std::span<const SplitWords> held_out = std::span(kSplits).last(2);
  return std::any_of(held_out.begin(), held_out.end(),
                     [&](const SplitWords& words) { return split_of(all.splits, words) != nullptr; });
}

void keep_split(const std::string& folder, DatasetUse use, const std::string& asked, const FolderSplits& all,
                Dataset& dataset) {
  const std::vector<Split>& splits = all.splits;
  if (!all.whole.empty()) dataset.files = all.whole;
  if (splits.empty() && asked.empty()) return;
  const auto keep = [&](const Split& split) {
    dataset.split = split.name;
    dataset.split_by = all.by;
    for (const Split& other : splits) add_missing(other.files, dataset.files);
    std::copy_if(
        dataset.files.begin(), dataset.files.end(), std::back_inserter(dataset.left_out),
        [&](const std::string& file) { return std::count(split.files.begin(), split.files.end(), file) == 0; });
    dataset.files = split.files;
  };
  if (!asked.empty()) {
    const auto found =
        std::find_if(splits.begin(), splits.end(), [&](const Split& split) { return split.name == asked; });
    if (found != splits.end()) return keep(*found);
    fail_input(fmt::format("{} has no split {}: its {} say {}; give the name of one of them, or the paths of files.",
                           folder, printable(asked), all.by, splits.empty() ? "none" : shown(splits)));
  }
  const std::span<const SplitWords> known(kSplits);
  const auto wanted = use == DatasetUse::train ? known.first(1) : known.last(2);
  for (const SplitWords& one : wanted) {
    if (const Split* const found = split_of(splits, one)) return keep(*found);
  }
  fail_input(fmt::format(
      "the folder {} has no {} split: its {} say {}{}; give the paths of the files or folders to {}, or the name of a "
      "split: {}: [{{path: {}, split: {}}}].",
      folder, use == DatasetUse::train ? "train" : "validation or test", all.by, shown(splits),
      candidates(splits, wanted, dataset), use == DatasetUse::train ? "train on" : "evaluate on",
      use == DatasetUse::train ? "data.train" : "data.eval", dataset.name, splits.front().name));
}

}  // namespace megatrain
