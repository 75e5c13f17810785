// The words behind a verb: plain ones, --json and the like, and configuration overrides.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace megatrain {

using Words = std::vector<std::string>;

class Arguments {
 public:
  // `options` take a value ("--random 7" or "--random=7"), `flags` none. Everything else that starts with "--" must be
  // a configuration key. Throws Error(bad_config) for what is neither.
  Arguments(const Words& words, const std::vector<std::string>& options, const std::vector<std::string>& flags,
            const std::string& verb);

  const std::vector<std::string>& plain() const { return plain_; }
  const std::vector<std::string>& overrides() const { return overrides_; }
  bool flag(const std::string& name) const;
  std::optional<std::string> option(const std::string& name) const;  // the last one given
  std::vector<std::string> all(const std::string& name) const;       // in the order given
  std::optional<double> number(const std::string& name) const;       // throws Error(bad_config) when it is none
  std::optional<int64_t> integer(const std::string& name) const;     // throws Error(bad_config) when it is none

  // The only plain word; `what` names it in the error.
  const std::string& one(const std::string& what) const;

 private:
  std::string verb_;
  std::vector<std::string> plain_, overrides_, flags_;
  std::vector<std::pair<std::string, std::string>> options_;
};

}  // namespace megatrain
