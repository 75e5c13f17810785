#include "megatrain/cli/prompt_columns.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "megatrain/base/error.h"
#include "megatrain/base/log.h"
#include "megatrain/io/file.h"

namespace megatrain {

namespace {

using Json = nlohmann::ordered_json;

// Fields that people copy from API requests, and the option that sets them for all rows.
struct Asking {
  std::string_view name;
  const char* instead;
};
constexpr Asking kAsking[] = {
    {"max_tokens", "--max-tokens"},
    {"max_new_tokens", "--max-tokens"},
    {"max_completion_tokens", "--max-tokens"},
    {"temperature", "--temperature"},
    {"top_p", "--top-p"},
    {"top_k", "--top-k"},
    {"seed", "--seed"},
    {"stop", "--stop"},
    {"system", "--system"},
    {"tools", nullptr},
};

bool asks_for_nothing(const Json& value) {
  return value.is_null() || (value.is_structured() && value.empty()) || value == "";
}

}  // namespace

void PromptColumns::check(const JsonRow& row) {
  if (row.object.contains("prompt") && row.object.contains("messages"))
    fail_input(fmt::format("{}it has both \"prompt\" and \"messages\"; keep one of them", row.where));
  for (const auto& [name, value] : row.object.items()) {
    if (name == "prompt" || name == "messages") continue;
    const auto asking = std::find_if(std::begin(kAsking), std::end(kAsking),
                                     [&name = name](const Asking& known) { return known.name == name; });
    if (asking == std::end(kAsking)) {
      others_.insert(name);
    } else if (!asks_for_nothing(value)) {
      fail_input(fmt::format("{}\"{}\" is not supported in a row; remove it{}", row.where, name,
                             asking->instead ? fmt::format(", and give {} for all rows", asking->instead) : ""));
    }
  }
}

void PromptColumns::warn(const std::string& path) const {
  constexpr size_t kNamed = 8;
  if (others_.empty()) return;
  std::vector<std::string> named;
  for (const std::string& name : others_) {
    if (named.size() == kNamed) break;
    named.push_back(printable(name));
  }
  log_warn(fmt::format("{}: only \"prompt\" or \"messages\" of a row is read; ignored: {}{}", path,
                       fmt::join(named, ", "),
                       others_.size() > kNamed ? fmt::format(" and {} more", others_.size() - kNamed) : ""));
}

}  // namespace megatrain
