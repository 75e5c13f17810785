// Verbs of the command line, and the words behind one: plain ones, --json and the like, and configuration overrides.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace megatrain {

using Words = std::vector<std::string>;

class Arguments;

struct Verb {
  std::string name;                  // one word, or two: "inspect data"
  std::string takes;                 // what has to follow, "CONFIG.yaml"
  std::string summary;               // its line in 'megatrain --help'; empty: it has none
  std::string usage;                 // what may follow, "[--layers N]"; every verb also takes --json
  std::string details;               // the rest of 'megatrain NAME --help'; ends a line
  std::vector<std::string> options;  // take a value: "--random 7" or "--random=7"
  std::vector<std::string> flags;    // take none
  bool keys = true;                  // whether it takes keys of the configuration
  int (*run)(const Arguments& arguments) = nullptr;

  std::string help() const;
};

class Arguments {
 public:
  // Everything that starts with "-" must be an option or a flag of the verb or a configuration key. Throws
  // Error(bad_config) for what is neither, and for a key where the verb takes none.
  Arguments(const Words& words, const Verb& verb, std::string program = "megatrain");

  const std::string& program() const { return program_; }  // as it was called

  const std::vector<std::string>& plain() const { return plain_; }
  const std::vector<std::string>& overrides() const { return overrides_; }
  bool overrides(const std::string& key) const;  // of the configuration, such as "memory.gpu"
  bool flag(const std::string& name) const;
  bool json() const { return flag("--json"); }
  std::optional<std::string> option(const std::string& name) const;  // the last one given
  std::vector<std::string> all(const std::string& name) const;       // in the order given
  std::optional<double> number(const std::string& name) const;       // throws Error(bad_config) when it is none
  std::optional<int64_t> integer(const std::string& name) const;     // throws Error(bad_config) when it is none

  // The only plain word; `what` names it in the error.
  const std::string& one(const std::string& what) const;
  void none() const;  // throws Error(bad_config) when there is a plain word

 private:
  std::string program_, verb_;
  std::vector<std::string> plain_, overrides_, flags_;
  std::vector<std::pair<std::string, std::string>> options_;
};

}  // namespace megatrain
