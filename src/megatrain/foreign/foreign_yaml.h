// Values of other trainers' keys, from YAML and from words of the command line.
#pragma once

#include <string>

#include <yaml-cpp/yaml.h>

#include "megatrain/foreign/trainer.h"

namespace megatrain {

// The value of the trainer's key `name`; `where` is its place, `file` that of a list's elements.
// Throws Error(bad_config) "WHERE: …" for a list or a section where the key takes none.
Foreign read_foreign(const ForeignTrainer& trainer, const std::string& file, const std::string& where,
                     const std::string& name, const YAML::Node& node);

// The same of a text, in which a list or a mapping may stand in YAML's flow form: "[a, b]".
Foreign read_foreign_text(const ForeignTrainer& trainer, const std::string& file, const std::string& where,
                          const std::string& name, const std::string& text);

}  // namespace megatrain
