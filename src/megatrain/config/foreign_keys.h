// The names of the keys of LLaMA-Factory and the Hugging Face trainer that are understood.
#pragma once

#include <span>
#include <string>

namespace megatrain {

enum class ForeignKind { text, number, whole, flag };

// One key of theirs that is one of ours.
struct RenamedKey {
  const char* name;
  const char* key;
  ForeignKind kind;
  const char* standard = nullptr;  // their default, where it holds for a file of theirs
  const char* null = nullptr;      // what null says in our words; nullptr: it is refused
  const char* note = "";
};

std::span<const RenamedKey> renamed_keys();

// More checkpoints than a run ever writes.
inline constexpr const char* kAllCheckpoints = "1000000000";

bool is_foreign_key(const std::string& name);
// Whether a mapping, or a list, may be its value: of keys that megatrain obeys hardly ever.
bool takes_foreign_mapping(const std::string& name);
bool takes_foreign_list(const std::string& name);

// The key that is spelled almost like this one; empty: none is.
std::string nearest_foreign_key(const std::string& unknown);

}  // namespace megatrain
