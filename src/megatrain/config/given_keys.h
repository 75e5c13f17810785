// What a file and the words of the command line give, before it is a configuration: values as text, each with its
// place.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/config/config_kinds.h"
#include "megatrain/foreign/trainer.h"

namespace megatrain {

// One key of ours.
struct GivenKey {
  ConfigText value;
  std::string origin;  // "FILE:LINE" or "--key"; the file alone for a default of another trainer
  bool on_command_line = false;
  std::string theirs{};  // the key of another trainer that said it
};

struct GivenForeign {
  Foreign value;
  bool on_command_line = false;
};

struct GivenKeys {
  std::string file;  // its name, for messages
  std::map<std::string, GivenKey> own;
  std::map<std::string, GivenForeign> foreign;                 // keys of other trainers
  const ForeignTrainer* trainer = &default_foreign_trainer();  // whose keys are read beside ours
  bool theirs = false;                                         // the file is one of the trainer's
  std::vector<std::pair<std::string, std::string>> unknown;    // keys of the file with where they stand
  std::vector<std::string> problems;                           // of its sections
  KeyNames names;                                              // what the file calls our keys
  std::string stage;                                           // TrainConfig::stage

  bool has(const std::string& key) const { return own.count(key) != 0; }
  bool has_value(const std::string& key) const;  // null is none
  // Where a key was given, or the file when it has its default.
  std::string origin(const std::string& key) const;
};

}  // namespace megatrain
