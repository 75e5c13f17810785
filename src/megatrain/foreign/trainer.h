// Describes another trainer: its keys, what each means here, and its rules for what no single key expresses.
//
// Each trainer is one ForeignTrainer in its own file (llamafactory.cc, axolotl.cc), listed in foreign_trainers():
//   - `renamed`: keys that correspond to one of ours
//   - `idle`: keys that have no effect here
//   - `values`, `switches`, `parameters`: keys of methods that megatrain does not have
//   - `rules`: everything else
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "megatrain/foreign/values.h"

namespace megatrain {

class ForeignReader;

enum class ForeignKind { text, number, whole, flag };

// A key of theirs that corresponds to one of ours.
struct RenamedKey {
  const char* name;
  const char* key;
  ForeignKind kind;
  const char* standard = nullptr;  // their default, if it applies to a file of theirs
  const char* null = nullptr;      // what null means in our terms; nullptr: it is refused
  const char* note = "";
};

// Keys without an effect here, unless their value is not among `only`. A name that ends in * matches by prefix.
struct ForeignIdle {
  const char* name;
  const char* only;  // the values without an effect, separated by spaces; nullptr: all values
  const char* why;
};

// A value that requests a method megatrain does not have; one that ends in * matches by prefix.
struct MethodValue {
  const char* name;
  const char* value;
  const char* method;
  const char* instead;
};

// A key that requests such a method when it is enabled, or with `even_off` whenever it is given. In files for which
// `unless` is true it does not.
struct MethodSwitch {
  const char* name;
  const char* method;
  const char* instead;
  bool even_off = false;
  bool (*unless)(const ForeignKeys&) = nullptr;
};

// A parameter of a method; it has no effect while the method is off.
struct MethodParameter {
  const char* name;
  const char* of;
};

struct ForeignTrainer {
  const char* name;                                  // for people
  bool (*is_file)(const std::set<std::string>&);     // recognises a file by its keys
  std::vector<std::span<const RenamedKey>> renamed;  // several lists, because trainers share some
  std::vector<std::span<const ForeignIdle>> idle;
  std::vector<MethodValue> values;
  std::vector<MethodSwitch> switches;
  std::vector<MethodValue> choices;  // like `values` but reported after the switches: how weights are trained
  std::vector<MethodParameter> parameters;
  std::vector<const char*> ruled;                             // keys that `rules` handles
  std::vector<const char*> lists;                             // of these and the renamed keys, those that accept a list
  std::vector<const char*> nested;                            // keys that accept a mapping or a list of mappings
  void (*refuse)(const ForeignTrainer&, const ForeignKeys&);  // methods that no table can express; may be nullptr
  void (*rules)(ForeignReader&);
  const char* columns = "";  // what their file calls a dataset's columns; empty: it has no name for them
};

// In the order in which they are tried on a file.
std::span<const ForeignTrainer* const> foreign_trainers();
// The trainer whose single keys are also accepted in a file of ours.
const ForeignTrainer& default_foreign_trainer();
// The trainer whose mark is among these keys; nullptr if there is none.
const ForeignTrainer* trainer_of(const std::set<std::string>& keys);

bool is_key_of(const ForeignTrainer& trainer, const std::string& name);
// The key as their files write it. Their `optim` is called optim_type here, because `optim` is a section of ours.
std::string foreign_key_name(const std::string& name);
// The inverse: our internal name for a key as they write it.
std::string known_foreign_name(const std::string& written);
// The trainer that has a key of this name, preferring the default one; nullptr if none has it.
const ForeignTrainer* trainer_with_key(const std::string& name);
// Whether the key accepts a mapping or a list. Few keys that megatrain follows do.
bool takes_mapping(const ForeignTrainer& trainer, const std::string& name);
bool takes_list(const ForeignTrainer& trainer, const std::string& name);

// The key with the nearest spelling; empty if none is close.
std::string nearest_foreign_key(const ForeignTrainer& trainer, const std::string& unknown);

// More checkpoints than a run ever writes.
inline constexpr const char* kAllCheckpoints = "1000000000";

}  // namespace megatrain
