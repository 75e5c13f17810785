// A parsed template: statements and expressions, each with its line.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatrain/chat/jinja/value.h"

namespace megatrain::jinja {

enum class ExpressionKind {
  constant,
  name,
  namespace_field,  // name.attribute as the target of set
  list,
  tuple,
  dict,       // items: key, value, key, value, ...
  attribute,  // items[0].name
  item,       // items[0][items[1]]
  slice,      // items: start, stop, step, each may be null
  call,       // items[0](items[1...], named)
  filter,     // items[0] | name(items[1...], named); items[0] is null for a filter block
  test,       // items[0] is name(items[1...], named)
  negative,
  positive,
  logical_not,
  logical_and,
  logical_or,
  conditional,  // items: condition, value, otherwise or null
  compare,      // items[0] operators[0] items[1] operators[1] items[2] ...
  concat,
  binary,  // items[0] name items[1]
};

struct Expression {
  ExpressionKind kind;
  int line;
  int height = 1;  // of the tree below
  std::string name;
  std::string attribute;
  Value constant;
  std::vector<std::unique_ptr<Expression>> items;
  std::vector<std::pair<std::string, std::unique_ptr<Expression>>> named;
  std::unique_ptr<Expression> spread_positional;  // *args
  std::unique_ptr<Expression> spread_named;       // **kwargs
  std::vector<std::string> operators;
};

enum class StatementKind {
  data,
  output,
  if_,
  for_,
  set,
  set_block,
  macro,
  call_block,
  filter_block,
  with,
  generation,
  block,
  break_,
  continue_,
};

struct Statement;
using Body = std::vector<std::unique_ptr<Statement>>;

struct MacroNode {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<std::unique_ptr<Expression>> defaults;  // of the last parameters
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Statement {
  StatementKind kind;
  int line;
  Text data;                               // data
  std::unique_ptr<Expression> expression;  // output, for, set, call_block, filter_block, set_block's filter
  std::unique_ptr<Expression> target;      // for, set, set_block
  std::unique_ptr<Expression> condition;   // for x in y if condition
  std::vector<std::pair<std::unique_ptr<Expression>, Body>> branches;  // if, elif; with: targets and an empty body
  std::vector<std::unique_ptr<Expression>> values;                     // with
  Body body;
  Body otherwise;
  std::unique_ptr<MacroNode> macro;  // macro, call_block
  bool recursive = false;            // for
  bool scoped = false;               // block
};

}  // namespace megatrain::jinja
