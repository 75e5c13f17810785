#include "megatrain/dataset/shards.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/dataset/some_of.h"

namespace megatrain {
namespace {

namespace fs = std::filesystem;

constexpr size_t kDigits = 5;
constexpr std::string_view kOf = "-of-";

int64_t number_of(std::string_view digits) {
  int64_t number = 0;
  for (const char c : digits) number = 10 * number + (c - '0');
  return number;
}

struct Shards {
  std::set<int64_t> numbers;
  std::string rest;  // the part after the numbers in the first file's name
};

// Names of one set's shards: missing ones, and ones beyond the set's count.
struct ShardFaults {
  std::vector<std::string> missing, beyond;
};

ShardFaults faults_of(const fs::path& parent, const std::string& set, int64_t count, const Shards& shards) {
  const int64_t first = shards.numbers.count(0) == 0 && shards.numbers.count(count) != 0 ? 1 : 0;
  const std::string rest = shards.rest.starts_with('.') ? shards.rest : "";  // a hash differs from file to file
  const auto name = [&](int64_t number) {
    return (parent / fmt::format("{}{:05}{}{:05}{}", set, number, kOf, count, rest)).string();
  };
  ShardFaults faults;
  for (int64_t number = first; number < first + count; ++number) {
    if (shards.numbers.count(number) == 0) faults.missing.push_back(name(number));
  }
  for (const int64_t number : shards.numbers) {
    if (number >= first + count) faults.beyond.push_back(name(number));
  }
  return faults;
}

}  // namespace

std::optional<ShardName> shard_name(std::string_view name) {
  const auto are_digits = [](std::string_view text) {
    return text.size() == kDigits && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  for (size_t at = name.rfind(kOf); at != std::string_view::npos && at > kDigits; at = name.rfind(kOf, at - 1)) {
    const std::string_view number = name.substr(at - kDigits, kDigits), count = name.substr(at + kOf.size(), kDigits);
    if (!are_digits(number) || !are_digits(count)) continue;
    return ShardName{.set = name.substr(0, at - kDigits),
                     .number = number_of(number),
                     .count = number_of(count),
                     .rest = name.substr(at + kOf.size() + kDigits)};
  }
  return std::nullopt;
}

void check_shards(const std::string& folder, const std::vector<std::string>& files) {
  std::map<std::tuple<fs::path, std::string, int64_t>, Shards> sets;
  for (const std::string& file : files) {
    const fs::path path(file);
    const std::string name = path.filename().string();
    const auto shard = shard_name(name);
    if (!shard) continue;
    Shards& shards = sets[{path.parent_path(), std::string(shard->set), shard->count}];
    if (shards.numbers.empty()) shards.rest = shard->rest;
    shards.numbers.insert(shard->number);
  }
  for (const auto& [key, shards] : sets) {
    const auto& [parent, set, count] = key;
    const auto [missing, beyond] = faults_of(parent, set, count, shards);
    if (missing.empty() && beyond.empty()) continue;
    if (missing.empty())
      fail_input(
          fmt::format("the folder {} has more shards than the {} in their names; extra: {}; they may belong to another "
                      "set: remove them, or give the paths of those to use.",
                      folder, count, some_of(beyond)));
    fail_input(
        fmt::format("the folder {} has {} of {} shards, by their names; missing: {}; add the missing files, or give "
                    "the paths of those to use.",
                    folder, count - static_cast<int64_t>(missing.size()), count, some_of(missing)));
  }
}

}  // namespace megatrain
