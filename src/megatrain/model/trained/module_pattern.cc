#include "megatrain/model/trained/module_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

struct ModulePattern::Compiled {
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match;
};

ModulePattern::ModulePattern(const std::string& text, const std::string& key) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &at, nullptr);
  if (!code) {
    PCRE2_UCHAR why[160] = {};
    pcre2_get_error_message(error, why, sizeof(why));
    fail_config(fmt::format("{}: '{}' is no regular expression: {} at character {}", key, text,
                            reinterpret_cast<const char*>(why), at + 1));
  }
  compiled_ = std::make_unique<Compiled>(
      Compiled{{code, pcre2_code_free}, {pcre2_match_data_create(1, nullptr), pcre2_match_data_free}});
}

ModulePattern::~ModulePattern() = default;
ModulePattern::ModulePattern(ModulePattern&&) noexcept = default;

bool ModulePattern::matches(const std::string& name) const {
  return pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0,
                     compiled_->match.get(), nullptr) >= 0;
}

}  // namespace megatrain
