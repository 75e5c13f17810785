// What another trainer is: the names of its keys, what each asks for here, and its rules for what no single key says.
//
// A trainer is one ForeignTrainer, written in a file of its own (llamafactory.cc, axolotl.cc) and listed in
// foreign_trainers(). Keys that are one of ours are rows of `renamed`; keys that ask for nothing rows of `idle`;
// methods that megatrain does not have rows of `values`, `switches` and `parameters`; everything else is `rules`.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "megatrain/foreign/values.h"

namespace megatrain {

class ForeignReader;

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

// Keys that ask for nothing here, except with another value than those of `only`. A name that ends in * stands for all
// that begin so.
struct ForeignIdle {
  const char* name;
  const char* only;  // the values that ask for nothing, separated by spaces; nullptr: any does
  const char* why;
};

// A value that asks for a method which megatrain does not have; one that ends in * stands for all that begin so.
struct MethodValue {
  const char* name;
  const char* value;
  const char* method;
  const char* instead;
};

// A key that does when it is switched on, or when it is there at all.
struct MethodSwitch {
  const char* name;
  const char* method;
  const char* instead;
  bool even_off = false;
};

// A parameter of a method: it asks for nothing while the method is off.
struct MethodParameter {
  const char* name;
  const char* of;
};

struct ForeignTrainer {
  const char* name;                                  // for people
  bool (*is_file)(const std::set<std::string>&);     // by the keys of a file: it is theirs
  std::vector<std::span<const RenamedKey>> renamed;  // several lists: trainers share some
  std::vector<std::span<const ForeignIdle>> idle;
  std::vector<MethodValue> values;
  std::vector<MethodSwitch> switches;
  std::vector<MethodValue> choices;  // as `values`, but named after the switches: which way weights are trained
  std::vector<MethodParameter> parameters;
  std::vector<const char*> ruled;   // keys that `rules` understands
  std::vector<const char*> lists;   // of these and the renamed ones: a list may be their value
  std::vector<const char*> nested;  // a mapping, or a list of mappings
  void (*refuse)(const ForeignTrainer&, const ForeignKeys&);  // methods that no table can tell; may be nullptr
  void (*rules)(ForeignReader&);
  const char* columns = "";  // what of a dataset names its columns; empty: nothing in their file does
};

// In the order in which a file is asked whose it is.
std::span<const ForeignTrainer* const> foreign_trainers();
// Its keys are understood one by one in a file of ours, too.
const ForeignTrainer& default_foreign_trainer();
// Whose file has these keys, by its own mark; nullptr: none.
const ForeignTrainer* trainer_of(const std::set<std::string>& keys);

bool is_key_of(const ForeignTrainer& trainer, const std::string& name);
// The key as their files write it: `optim`, which is a section of ours, is known as optim_type here.
std::string foreign_key_name(const std::string& name);
// The other way round: how a key that they write so is known here.
std::string known_foreign_name(const std::string& written);
// The trainer that has a key of this name, first of all the default one; nullptr: none has.
const ForeignTrainer* trainer_with_key(const std::string& name);
// Whether a mapping, or a list, may be its value: of keys that megatrain obeys hardly ever.
bool takes_mapping(const ForeignTrainer& trainer, const std::string& name);
bool takes_list(const ForeignTrainer& trainer, const std::string& name);

// The key that is spelled almost like this one; empty: none is.
std::string nearest_foreign_key(const ForeignTrainer& trainer, const std::string& unknown);

// More checkpoints than a run ever writes.
inline constexpr const char* kAllCheckpoints = "1000000000";

}  // namespace megatrain
