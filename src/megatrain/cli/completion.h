// What a shell offers behind a word of the command line: read from the tables of verbs and keys, as --help is.
#pragma once

#include <string>
#include <vector>

#include "megatrain/config/arguments.h"

namespace megatrain {

// What may stand in a place.
struct Completed {
  std::vector<std::string> words;
  bool files = false, directories = false, configurations = false;  // of the last, *.yaml and *.yml
  bool nothing() const { return words.empty() && !files && !directories && !configurations; }
  bool operator==(const Completed&) const = default;
};

// Behind the verb: what it takes.
Completed completed_arguments(const Verb& verb);
// The value of an option of the verb, from its usage, or where that does not say from the key of that name.
Completed completed_option(const Verb& verb, const std::string& option);
// The value of a key of the configuration.
Completed completed_key(const std::string& key);

// The scripts; for zsh, bash's through bashcompinit.
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace megatrain
