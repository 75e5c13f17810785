#include "megatrain/chat/jinja/jinja.h"

#include <algorithm>

#include <fmt/format.h>

#include "megatrain/base/error.h"
#include "megatrain/chat/jinja/lexer.h"
#include "megatrain/chat/jinja/parser.h"

namespace megatrain::jinja {
namespace {

bool has_generation(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const auto& statement) {
    if (statement->kind == StatementKind::generation) return true;
    for (const auto& branch : statement->branches) {
      if (has_generation(branch.second)) return true;
    }
    return has_generation(statement->body) || has_generation(statement->otherwise) ||
           (statement->macro && has_generation(statement->macro->body));
  });
}

}  // namespace

Template::Template(const std::string& source, std::string name) : name_(std::move(name)) {
  if (source.size() > kMaxSourceBytes) {
    fail_input(fmt::format("{} has {} bytes, but a chat template may have at most {}; check that it is the right file.",
                           name_, source.size(), kMaxSourceBytes));
  }
  if (!is_valid_utf8(source)) fail_input(fmt::format("{} is not valid UTF-8; a chat template has to be.", name_));
  try {
    body_ = parse_template(source);
  } catch (const SyntaxFailure& failure) {
    fail_input(fmt::format("{}, line {}: {} (the template cannot be parsed; correct it).", name_, failure.line,
                           failure.message));
  }
  has_generation_tags_ = has_generation(body_);
}

Text Template::render(Inputs inputs, RenderCost* cost) const {
  Interpreter interpreter(body_, std::move(inputs));
  const auto note = [&] {
    if (cost) *cost = interpreter.cost();
  };
  try {
    Text text = interpreter.render();
    note();
    return text;
  } catch (const Raise& raised) {
    note();
    fail_input(fmt::format("{}, line {}: {}", name_, interpreter.line(), raised.what()));
  }
}

}  // namespace megatrain::jinja
