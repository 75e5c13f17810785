// The verbs of the command line, and the arguments of one: plain words, options such as --json, configuration
// overrides.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace megatrain {

using Words = std::vector<std::string>;

class Arguments;

struct Verb {
  std::string name;                  // one word or two: "inspect data"
  std::string takes;                 // required arguments, "CONFIG.yaml"
  std::string summary;               // its line in 'megatrain --help'; empty: not listed
  std::string usage;                 // optional arguments, "[--layers N]"; every verb also takes --json
  std::string details;               // the rest of 'megatrain NAME --help'; ends with a newline
  std::vector<std::string> options;  // with a value: "--random 7" or "--random=7"
  std::vector<std::string> flags;    // without a value
  bool keys = true;                  // whether it takes configuration keys
  int (*run)(const Arguments& arguments) = nullptr;

  std::string help() const;
};

class Arguments {
 public:
  // Every word that starts with "-" must be an option or flag of the verb, or a configuration key. Throws
  // Error(bad_config) for any other, and for a key if the verb takes none.
  Arguments(const Words& words, const Verb& verb, std::string program = "megatrain");

  const std::string& program() const { return program_; }  // the name it was called by

  const std::vector<std::string>& plain() const { return plain_; }
  const std::vector<std::string>& overrides() const { return overrides_; }
  bool overrides(const std::string& key) const;  // whether a configuration key such as "memory.gpu" is given
  bool flag(const std::string& name) const;
  bool json() const { return flag("--json"); }
  std::optional<std::string> option(const std::string& name) const;  // if repeated, the last one
  std::vector<std::string> all(const std::string& name) const;       // in the order given
  std::optional<double> number(const std::string& name) const;       // throws Error(bad_config) if it is not a number
  std::optional<int64_t> integer(const std::string& name) const;     // throws Error(bad_config) if it is not an integer

  // The only plain argument; `what` names it in the error.
  const std::string& one(const std::string& what) const;
  void none() const;  // throws Error(bad_config) if there is a plain argument

 private:
  std::string program_, verb_;
  std::vector<std::string> plain_, overrides_, flags_;
  std::vector<std::pair<std::string, std::string>> options_;
};

}  // namespace megatrain
