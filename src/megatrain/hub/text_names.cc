#include "megatrain/hub/text_names.h"

#include <algorithm>
#include <string_view>

namespace megatrain {

namespace {

const TextNames kPlain;

// The name with another beginning; nullopt: it does not begin with `from`.
std::optional<std::string> exchanged(const std::string& name, std::string_view from, std::string_view to) {
  if (!name.starts_with(from)) return std::nullopt;
  return std::string(to) + name.substr(from.size());
}

}  // namespace

std::string TextNames::in_files(const std::string& name) const {
  if (const auto found = exchanged(name, kPlain.model, model)) return *found;
  return exchanged(name, kPlain.head, head).value_or(name);
}

std::optional<std::string> TextNames::in_model(const std::string& name) const {
  if (auto found = exchanged(name, model, kPlain.model)) return found;
  return exchanged(name, head, kPlain.head);
}

TextNames find_text_names(const std::vector<std::string>& names) {
  static const TextNames kInside = {.model = "language_model.model.", .head = "language_model.lm_head."};
  for (const TextNames& form : {kInside, kModuleNames}) {
    if (std::ranges::any_of(names, [&](const std::string& name) { return name.starts_with(form.model); })) return form;
  }
  return kPlain;
}

}  // namespace megatrain
