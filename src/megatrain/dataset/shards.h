// Shards: files of one set that are numbered in their names, such as train-00000-of-00002.jsonl.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

// The parts of a shard's file name.
struct ShardName {
  std::string_view set;  // "train-"
  int64_t number = 0;
  int64_t count = 0;
  std::string_view rest;  // ".jsonl", possibly after a hash of the shard
};

// Empty if `name` is not a shard's. The last NNNNN-of-NNNNN in a name counts.
std::optional<ShardName> shard_name(std::string_view name);

// Error(bad_input), with names, if shards are missing or numbered beyond the count in their names. Numbers begin at 0,
// or at 1 if the last one says so. `folder` is the folder of the user's files, for the message.
void check_shards(const std::string& folder, const std::vector<std::string>& files);

}  // namespace megatrain
