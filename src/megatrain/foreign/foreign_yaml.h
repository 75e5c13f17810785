// Values of other trainers' keys, from YAML and from the command line.
#pragma once

#include <string>

#include <yaml-cpp/yaml.h>

#include "megatrain/foreign/trainer.h"

namespace megatrain {

// The value of the trainer's key `name`. `where` is its location; `file` is used for the locations of list elements.
// Throws Error(bad_config) "WHERE: …" for a list or a section if the key does not take one.
Foreign read_foreign(const ForeignTrainer& trainer, const std::string& file, const std::string& where,
                     const std::string& name, const YAML::Node& node);

// The same from text, in which a list or mapping may be written in YAML's flow style: "[a, b]".
Foreign read_foreign_text(const ForeignTrainer& trainer, const std::string& file, const std::string& where,
                          const std::string& name, const std::string& text);

}  // namespace megatrain
