// Shards: files of one set whose names count them, as in train-00000-of-00002.jsonl.
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
  std::string_view rest;  // ".jsonl", or with a hash of the shard's own before it
};

// Nothing where `name` is no shard's. The last NNNNN-of-NNNNN of a name counts.
std::optional<ShardName> shard_name(std::string_view name);

// Refuses shards that are not all there, with the names of the missing ones, and shards beyond the count that their
// names have: Error(bad_input). Numbers begin at 0, or at 1 where the last one says so. `folder` is where the user's
// files lie, for the message.
void check_shards(const std::string& folder, const std::vector<std::string>& files);

}  // namespace megatrain
