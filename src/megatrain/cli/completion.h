// Shell completion, generated from the same tables of verbs and keys as --help.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/arguments.h"

namespace megatrain {

// What may be completed at one place of the command line.
struct Completed {
  std::vector<std::string> words;
  bool files = false, directories = false, configurations = false;  // configurations: *.yaml and *.yml
  bool nothing() const { return words.empty() && !files && !directories && !configurations; }
  bool operator==(const Completed&) const = default;
};

// Completes the verb's arguments.
Completed completed_arguments(const Verb& verb);
// Completes the value of an option, from the verb's usage or else from the configuration key of that name.
Completed completed_option(const Verb& verb, const std::string& option);
// Completes the value of a configuration key.
Completed completed_key(const std::string& key);

// The completion scripts. zsh uses bash's, through bashcompinit.
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace megatrain
