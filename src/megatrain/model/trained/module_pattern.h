// Patterns over names of modules, as PEFT has them: Python regular expressions, run by PCRE2.
#pragma once

#include <memory>
#include <string>

namespace megatrain {

class ModulePattern {
 public:
  // Throws Error(bad_config) for a text that is no regular expression; `key` names the setting.
  ModulePattern(const std::string& text, const std::string& key);
  ~ModulePattern();
  ModulePattern(ModulePattern&&) noexcept;

  bool matches(const std::string& name) const;  // the whole name

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// Whether a text can only be meant as a regular expression: names of modules have none of these characters.
inline bool is_module_pattern(const std::string& text) {
  return text.find_first_of("\\^$*+?()[]{}|") != std::string::npos;
}

}  // namespace megatrain
