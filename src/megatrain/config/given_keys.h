// What a file and the command line set, before it becomes a configuration: values as text, each with its location.
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
  std::string origin;  // "FILE:LINE" or "--key"; only the file for another trainer's default
  bool on_command_line = false;
  std::string theirs{};  // the other trainer's key that it came from
};

struct GivenForeign {
  Foreign value;
  bool on_command_line = false;
};

struct GivenKeys {
  std::string file;  // its name, for messages
  std::map<std::string, GivenKey> own;
  std::map<std::string, GivenForeign> foreign;                 // keys of other trainers
  const ForeignTrainer* trainer = &default_foreign_trainer();  // the trainer whose keys are accepted beside ours
  bool theirs = false;                                         // the file is in that trainer's format
  std::vector<std::pair<std::string, std::string>> unknown;    // the file's unknown keys and their locations
  std::vector<std::string> problems;                           // in sections of the file
  KeyNames names;                                              // what the file calls our keys
  std::string stage;                                           // TrainConfig::stage

  bool has(const std::string& key) const { return own.count(key) != 0; }
  bool has_value(const std::string& key) const;  // false for null
  // Where a key was given, or the file if it has its default.
  std::string origin(const std::string& key) const;
};

}  // namespace megatrain
