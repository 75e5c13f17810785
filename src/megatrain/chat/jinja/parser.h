// Parses a template's tokens into a tree, by Jinja's grammar.
#pragma once

#include <string_view>

#include "megatrain/chat/jinja/ast.h"

namespace megatrain::jinja {

Body parse_template(std::string_view source);  // throws SyntaxFailure

}  // namespace megatrain::jinja
