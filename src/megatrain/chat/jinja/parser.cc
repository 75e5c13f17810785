#include "megatrain/chat/jinja/parser.h"

#include <algorithm>
#include <initializer_list>

#include <fmt/format.h>

#include "megatrain/chat/jinja/lexer.h"

namespace megatrain::jinja {
namespace {

constexpr int kMaxDepth = 150;    // nested tags and expressions
constexpr int kMaxHeight = 1000;  // height of an expression's tree

using ExpressionPtr = std::unique_ptr<Expression>;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Body parse() {
    Body body = parse_body({});
    if (current().kind != TokenKind::end) fail("unexpected tag");
    return body;
  }

 private:
  struct Deeper {
    explicit Deeper(Parser& parser) : depth(parser.depth_) {
      if (++depth > kMaxDepth) parser.fail(fmt::format("tags or expressions nest deeper than {} levels", kMaxDepth));
    }
    ~Deeper() { --depth; }
    int& depth;
  };

  [[noreturn]] void fail(const std::string& message) const { throw SyntaxFailure{current().line, message}; }

  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool at_name(std::string_view name) const { return current().kind == TokenKind::name && current().text == name; }
  bool at_symbol(std::string_view symbol) const {
    return current().kind == TokenKind::symbol && current().text == symbol;
  }
  bool skip_name(std::string_view name) {
    const bool found = at_name(name);
    if (found) take();
    return found;
  }
  bool skip_symbol(std::string_view symbol) {
    const bool found = at_symbol(symbol);
    if (found) take();
    return found;
  }

  std::string describe(const Token& token) const {
    switch (token.kind) {
      case TokenKind::variable_end: return "end of print statement";
      case TokenKind::block_end: return "end of statement block";
      case TokenKind::end: return "end of template";
      default: return token.text;
    }
  }
  void expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol)) fail(fmt::format("expected token '{}', got '{}'", symbol, describe(current())));
  }
  std::string expect_name() {
    if (current().kind != TokenKind::name) fail(fmt::format("expected token 'name', got '{}'", describe(current())));
    return take().text;
  }
  void expect(TokenKind kind, std::string_view what) {
    if (current().kind != kind) fail(fmt::format("expected token '{}', got '{}'", what, describe(current())));
    take();
  }

  ExpressionPtr make(ExpressionKind kind, int line) const {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = line;
    return expression;
  }
  template <class... Items>
  ExpressionPtr make(ExpressionKind kind, int line, Items... items) const {
    auto expression = make(kind, line);
    (expression->items.push_back(std::move(items)), ...);
    for (const ExpressionPtr& item : expression->items) {
      if (item) expression->height = std::max(expression->height, item->height + 1);
    }
    if (expression->height > kMaxHeight) fail(fmt::format("an expression has more than {} steps", kMaxHeight));
    return expression;
  }
  ExpressionPtr make_constant(Value value, int line) const {
    auto expression = make(ExpressionKind::constant, line);
    expression->constant = std::move(value);
    return expression;
  }

  // ---- statements ----

  // Reads up to a tag that begins with one of `ends` (left as the current token), or the end of the template.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const Deeper deeper(*this);
    Body body;
    while (current().kind != TokenKind::end) {
      const Token token = take();
      if (token.kind == TokenKind::data) {
        auto statement = make_statement(StatementKind::data, token.line);
        statement->data = Text(token.text);
        body.push_back(std::move(statement));
      } else if (token.kind == TokenKind::variable_begin) {
        auto statement = make_statement(StatementKind::output, token.line);
        statement->expression = parse_tuple(true, {}, false);
        expect(TokenKind::variable_end, "end of print statement");
        body.push_back(std::move(statement));
      } else {
        if (current().kind == TokenKind::name && std::find(ends.begin(), ends.end(), current().text) != ends.end()) {
          return body;
        }
        body.push_back(parse_statement());
        expect(TokenKind::block_end, "end of statement block");
      }
    }
    if (ends.size() > 0) fail(fmt::format("unexpected end of template, expected '{}'", *(ends.end() - 1)));
    return body;
  }

  Body parse_block(std::initializer_list<std::string_view> ends) {
    skip_symbol(":");
    expect(TokenKind::block_end, "end of statement block");
    return parse_body(ends);
  }

  // Reads a body whose output is a value; break and continue may not leave it.
  void parse_captured(Statement& statement, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    statement.body = parse_block({end});
    loops_ = loops;
    take();
  }

  std::unique_ptr<Statement> make_statement(StatementKind kind, int line) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = line;
    return statement;
  }

  std::unique_ptr<Statement> parse_statement() {
    const int line = current().line;
    if (current().kind != TokenKind::name) fail("tag name expected");
    const std::string tag = take().text;
    if (tag == "if") return parse_if(line);
    if (tag == "for") return parse_for(line);
    if (tag == "set") return parse_set(line);
    if (tag == "macro") return parse_macro(line);
    if (tag == "call") return parse_call_block(line);
    if (tag == "with") return parse_with(line);
    if (tag == "filter") {
      auto statement = make_statement(StatementKind::filter_block, line);
      statement->expression = parse_filter_chain(nullptr, true);
      parse_captured(*statement, "endfilter");
      return statement;
    }
    if (tag == "generation") {
      auto statement = make_statement(StatementKind::generation, line);
      parse_captured(*statement, "endgeneration");
      return statement;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) throw SyntaxFailure{line, fmt::format("'{}' outside a loop", tag)};
      return make_statement(tag == "break" ? StatementKind::break_ : StatementKind::continue_, line);
    }
    if (tag == "block") return parse_named_block(line);
    if (tag == "extends" || tag == "include" || tag == "import" || tag == "from" || tag == "autoescape" ||
        tag == "print" || tag == "trans" || tag == "do") {
      throw SyntaxFailure{line, fmt::format("the tag '{}' is not supported in a chat template", tag)};
    }
    throw SyntaxFailure{line, fmt::format("Encountered unknown tag '{}'.", tag)};
  }

  std::unique_ptr<Statement> parse_named_block(int line) {
    auto statement = make_statement(StatementKind::block, line);
    const std::string name = expect_name();
    if (std::find(blocks_.begin(), blocks_.end(), name) != blocks_.end())
      fail(fmt::format("block '{}' defined twice", name));
    blocks_.push_back(name);
    statement->scoped = skip_name("scoped");
    if (at_name("required")) fail("a required block is not supported in a chat template");
    parse_captured(*statement, "endblock");
    skip_name(name);
    return statement;
  }

  std::unique_ptr<Statement> parse_if(int line) {
    auto statement = make_statement(StatementKind::if_, line);
    while (true) {
      ExpressionPtr condition = parse_tuple(false, {}, false);
      Body body = parse_block({"elif", "else", "endif"});
      statement->branches.emplace_back(std::move(condition), std::move(body));
      const std::string tag = take().text;
      if (tag == "elif") continue;
      if (tag == "else") {
        statement->otherwise = parse_block({"endif"});
        take();
      }
      return statement;
    }
  }

  std::unique_ptr<Statement> parse_for(int line) {
    auto statement = make_statement(StatementKind::for_, line);
    statement->target = parse_target(false, {"in"});
    if (!skip_name("in")) fail(fmt::format("expected token 'in', got '{}'", describe(current())));
    statement->expression = parse_tuple(false, {"recursive"}, false);
    if (skip_name("if")) statement->condition = parse_expression(true);
    statement->recursive = skip_name("recursive");
    ++loops_;
    statement->body = parse_block({"endfor", "else"});
    --loops_;
    if (take().text == "else") {
      statement->otherwise = parse_block({"endfor"});
      take();
    }
    return statement;
  }

  std::unique_ptr<Statement> parse_set(int line) {
    auto statement = make_statement(StatementKind::set, line);
    statement->target = parse_target(true, {});
    if (skip_symbol("=")) {
      statement->expression = parse_tuple(true, {}, false);
      return statement;
    }
    statement->kind = StatementKind::set_block;
    if (at_symbol("|")) statement->expression = parse_filter_chain(nullptr, false);
    parse_captured(*statement, "endset");
    return statement;
  }

  std::unique_ptr<Statement> parse_with(int line) {
    auto statement = make_statement(StatementKind::with, line);
    while (current().kind != TokenKind::block_end) {
      if (!statement->values.empty()) expect_symbol(",");
      statement->branches.emplace_back(parse_target(false, {}), Body{});
      expect_symbol("=");
      statement->values.push_back(parse_expression(true));
    }
    statement->body = parse_block({"endwith"});
    take();
    return statement;
  }

  void parse_signature(MacroNode& macro) {
    expect_symbol("(");
    while (!at_symbol(")")) {
      if (!macro.parameters.empty()) expect_symbol(",");
      macro.parameters.push_back(expect_name());
      if (skip_symbol("=")) {
        macro.defaults.push_back(parse_expression(true));
      } else if (!macro.defaults.empty()) {
        fail("non-default argument follows default argument");
      }
    }
    expect_symbol(")");
  }

  // Reads the macro's body, and notes which of the names available to a macro it uses.
  void parse_macro_body(MacroNode& macro, std::string_view end) {
    const size_t begin = at_;
    const int loops = std::exchange(loops_, 0);
    macro.body = parse_block({end});
    loops_ = loops;
    for (size_t at = begin; at < at_; ++at) {
      if (tokens_[at].kind != TokenKind::name) continue;
      macro.uses_caller |= tokens_[at].text == "caller";
      macro.uses_varargs |= tokens_[at].text == "varargs";
      macro.uses_kwargs |= tokens_[at].text == "kwargs";
    }
    take();
  }

  std::unique_ptr<Statement> parse_macro(int line) {
    auto statement = make_statement(StatementKind::macro, line);
    statement->macro = std::make_unique<MacroNode>();
    statement->macro->name = expect_name();
    parse_signature(*statement->macro);
    parse_macro_body(*statement->macro, "endmacro");
    return statement;
  }

  std::unique_ptr<Statement> parse_call_block(int line) {
    auto statement = make_statement(StatementKind::call_block, line);
    statement->macro = std::make_unique<MacroNode>();
    statement->macro->name = "caller";
    if (at_symbol("(")) parse_signature(*statement->macro);
    statement->expression = parse_expression(true);
    if (statement->expression->kind != ExpressionKind::call) fail("expected call");
    parse_macro_body(*statement->macro, "endcall");
    return statement;
  }

  ExpressionPtr parse_target(bool with_namespace, std::initializer_list<std::string_view> ends) {
    const int line = current().line;
    std::vector<ExpressionPtr> targets;
    bool is_tuple = false;
    while (true) {
      if (targets.size() && at_tuple_end(ends)) break;
      targets.push_back(parse_one_target(with_namespace));
      if (!skip_symbol(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) return std::move(targets[0]);
    auto tuple = make(ExpressionKind::tuple, line);
    tuple->items = std::move(targets);
    return tuple;
  }

  ExpressionPtr parse_one_target(bool with_namespace) {
    const Deeper deeper(*this);
    const int line = current().line;
    if (skip_symbol("(")) {
      ExpressionPtr target = parse_target(with_namespace, {});
      expect_symbol(")");
      return target;
    }
    auto target = make(ExpressionKind::name, line);
    target->name = expect_name();
    for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (target->name == reserved) fail("can't assign to 'const'");
    }
    if (with_namespace && skip_symbol(".")) {
      target->kind = ExpressionKind::namespace_field;
      target->attribute = expect_name();
    }
    return target;
  }

  // ---- expressions ----

  bool at_tuple_end(std::initializer_list<std::string_view> ends) const {
    if (current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end || at_symbol(")"))
      return true;
    return current().kind == TokenKind::name && std::find(ends.begin(), ends.end(), current().text) != ends.end();
  }

  ExpressionPtr parse_tuple(bool with_condition, std::initializer_list<std::string_view> ends, bool parenthesized) {
    const int line = current().line;
    std::vector<ExpressionPtr> items;
    bool is_tuple = false;
    while (true) {
      if (at_tuple_end(ends)) break;
      items.push_back(parse_expression(with_condition));
      if (!skip_symbol(",")) break;
      is_tuple = true;
    }
    if (!is_tuple) {
      if (!items.empty()) return std::move(items[0]);
      if (!parenthesized) fail(fmt::format("Expected an expression, got '{}'", describe(current())));
    }
    auto tuple = make(ExpressionKind::tuple, line);
    tuple->items = std::move(items);
    return tuple;
  }

  ExpressionPtr parse_expression(bool with_condition) {
    const Deeper deeper(*this);
    if (!with_condition) return parse_or();
    const int line = current().line;
    ExpressionPtr value = parse_or();
    while (skip_name("if")) {
      ExpressionPtr condition = parse_or();
      ExpressionPtr otherwise = skip_name("else") ? parse_expression(true) : nullptr;
      value = make(ExpressionKind::conditional, line, std::move(condition), std::move(value), std::move(otherwise));
    }
    return value;
  }

  ExpressionPtr parse_or() {
    ExpressionPtr left = parse_and();
    while (at_name("or")) {
      const int line = take().line;
      left = make(ExpressionKind::logical_or, line, std::move(left), parse_and());
    }
    return left;
  }

  ExpressionPtr parse_and() {
    ExpressionPtr left = parse_not();
    while (at_name("and")) {
      const int line = take().line;
      left = make(ExpressionKind::logical_and, line, std::move(left), parse_not());
    }
    return left;
  }

  ExpressionPtr parse_not() {
    const Deeper deeper(*this);
    if (!at_name("not")) return parse_compare();
    const int line = take().line;
    return make(ExpressionKind::logical_not, line, parse_not());
  }

  ExpressionPtr parse_compare() {
    const int line = current().line;
    ExpressionPtr first = parse_sum();
    ExpressionPtr compare;
    while (true) {
      std::string op;
      for (const std::string_view symbol : {"==", "!=", "<", "<=", ">", ">="}) {
        if (at_symbol(symbol)) op = symbol;
      }
      if (at_name("in")) op = "in";
      if (at_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") {
        op = "not in";
        take();
      }
      if (op.empty()) return compare ? std::move(compare) : std::move(first);
      take();
      if (!compare) compare = make(ExpressionKind::compare, line, std::move(first));
      compare->operators.push_back(op);
      compare->items.push_back(parse_sum());
    }
  }

  ExpressionPtr parse_binary(std::initializer_list<std::string_view> symbols, ExpressionPtr (Parser::*operand)()) {
    ExpressionPtr left = (this->*operand)();
    while (current().kind == TokenKind::symbol &&
           std::find(symbols.begin(), symbols.end(), current().text) != symbols.end()) {
      const Token token = take();
      left = make(ExpressionKind::binary, token.line, std::move(left), (this->*operand)());
      left->name = token.text;
    }
    return left;
  }

  ExpressionPtr parse_sum() { return parse_binary({"+", "-"}, &Parser::parse_concat); }
  ExpressionPtr parse_product() { return parse_binary({"*", "/", "//", "%"}, &Parser::parse_power); }
  ExpressionPtr parse_power() { return parse_binary({"**"}, &Parser::parse_filtered); }

  ExpressionPtr parse_concat() {
    const int line = current().line;
    ExpressionPtr first = parse_product();
    if (!at_symbol("~")) return first;
    auto concat = make(ExpressionKind::concat, line, std::move(first));
    while (skip_symbol("~")) concat->items.push_back(parse_product());
    return concat;
  }

  ExpressionPtr parse_filtered() { return parse_unary(true); }

  ExpressionPtr parse_unary(bool with_filter) {
    const Deeper deeper(*this);
    const int line = current().line;
    ExpressionPtr node;
    if (skip_symbol("-")) {
      node = make(ExpressionKind::negative, line, parse_unary(false));
    } else if (skip_symbol("+")) {
      node = make(ExpressionKind::positive, line, parse_unary(false));
    } else {
      node = parse_primary();
    }
    node = parse_postfix(std::move(node));
    return with_filter ? parse_filters(std::move(node)) : std::move(node);
  }

  ExpressionPtr parse_primary() {
    const Token token = current();
    switch (token.kind) {
      case TokenKind::name: {
        take();
        if (token.text == "true" || token.text == "True") return make_constant(Value::of(true), token.line);
        if (token.text == "false" || token.text == "False") return make_constant(Value::of(false), token.line);
        if (token.text == "none" || token.text == "None") return make_constant(Value::none(), token.line);
        auto name = make(ExpressionKind::name, token.line);
        name->name = token.text;
        return name;
      }
      case TokenKind::string: {
        std::string text;
        while (current().kind == TokenKind::string) text += take().text;
        return make_constant(Value::of(text), token.line);
      }
      case TokenKind::integer: take(); return make_constant(Value::integer(token.text), token.line);
      case TokenKind::real: take(); return make_constant(Value::of(token.real), token.line);
      default: break;
    }
    if (skip_symbol("(")) {
      ExpressionPtr inside = parse_tuple(true, {}, true);
      expect_symbol(")");
      return inside;
    }
    if (skip_symbol("[")) {
      auto list = make(ExpressionKind::list, token.line);
      while (!at_symbol("]")) {
        if (!list->items.empty()) expect_symbol(",");
        if (at_symbol("]")) break;
        list->items.push_back(parse_expression(true));
      }
      expect_symbol("]");
      return list;
    }
    if (skip_symbol("{")) {
      auto dict = make(ExpressionKind::dict, token.line);
      while (!at_symbol("}")) {
        if (!dict->items.empty()) expect_symbol(",");
        if (at_symbol("}")) break;
        dict->items.push_back(parse_expression(true));
        expect_symbol(":");
        dict->items.push_back(parse_expression(true));
      }
      expect_symbol("}");
      return dict;
    }
    fail(fmt::format("unexpected '{}'", describe(token)));
  }

  ExpressionPtr parse_postfix(ExpressionPtr node) {
    while (true) {
      if (at_symbol(".") || at_symbol("[")) {
        node = parse_subscript(std::move(node));
      } else if (at_symbol("(")) {
        node = parse_call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr parse_filters(ExpressionPtr node) {
    while (true) {
      if (at_symbol("|")) {
        node = parse_filter_chain(std::move(node), false);
      } else if (at_name("is")) {
        node = parse_test(std::move(node));
      } else if (at_symbol("(")) {
        node = parse_call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExpressionPtr parse_subscript(ExpressionPtr node) {
    const Token token = take();
    if (token.text == ".") {
      const Token name = take();
      if (name.kind == TokenKind::name) {
        auto attribute = make(ExpressionKind::attribute, token.line, std::move(node));
        attribute->name = name.text;
        return attribute;
      }
      if (name.kind != TokenKind::integer) fail("expected name or number");
      return make(ExpressionKind::item, token.line, std::move(node),
                  make_constant(Value::integer(name.text), name.line));
    }
    std::vector<ExpressionPtr> keys;
    while (!at_symbol("]")) {
      if (!keys.empty()) expect_symbol(",");
      keys.push_back(parse_key());
    }
    expect_symbol("]");
    if (keys.size() == 1) return make(ExpressionKind::item, token.line, std::move(node), std::move(keys[0]));
    auto tuple = make(ExpressionKind::tuple, token.line);
    tuple->items = std::move(keys);
    return make(ExpressionKind::item, token.line, std::move(node), std::move(tuple));
  }

  ExpressionPtr parse_key() {
    const int line = current().line;
    ExpressionPtr start, stop, step;
    if (!at_symbol(":")) {
      start = parse_expression(true);
      if (!at_symbol(":")) return start;
    }
    expect_symbol(":");
    const auto at_end = [&] { return at_symbol(":") || at_symbol("]") || at_symbol(","); };
    if (!at_end()) stop = parse_expression(true);
    if (skip_symbol(":") && !at_end()) step = parse_expression(true);
    return make(ExpressionKind::slice, line, std::move(start), std::move(stop), std::move(step));
  }

  void parse_arguments(Expression& call) {
    expect_symbol("(");
    bool first = true;
    while (!at_symbol(")")) {
      if (!first) {
        expect_symbol(",");
        if (at_symbol(")")) break;
      }
      first = false;
      if (skip_symbol("*")) {
        if (call.spread_positional || call.spread_named) fail("invalid syntax for function call expression");
        call.spread_positional = parse_expression(true);
      } else if (skip_symbol("**")) {
        if (call.spread_named) fail("invalid syntax for function call expression");
        call.spread_named = parse_expression(true);
      } else if (current().kind == TokenKind::name && ahead().kind == TokenKind::symbol && ahead().text == "=") {
        if (call.spread_named) fail("invalid syntax for function call expression");
        const std::string name = take().text;
        take();
        call.named.emplace_back(name, parse_expression(true));
      } else {
        if (call.spread_positional || call.spread_named || !call.named.empty()) {
          fail("invalid syntax for function call expression");
        }
        call.items.push_back(parse_expression(true));
      }
    }
    expect_symbol(")");
  }

  ExpressionPtr parse_call(ExpressionPtr callee) {
    auto call = make(ExpressionKind::call, current().line, std::move(callee));
    parse_arguments(*call);
    return call;
  }

  std::string parse_dotted_name() {
    std::string name = expect_name();
    while (skip_symbol(".")) name += "." + expect_name();
    return name;
  }

  ExpressionPtr parse_filter_chain(ExpressionPtr node, bool begins_inline) {
    while (begins_inline || at_symbol("|")) {
      if (!begins_inline) take();
      begins_inline = false;
      auto filter = make(ExpressionKind::filter, current().line, std::move(node));
      filter->name = parse_dotted_name();
      if (at_symbol("(")) parse_arguments(*filter);
      node = std::move(filter);
    }
    return node;
  }

  ExpressionPtr parse_test(ExpressionPtr node) {
    const int line = take().line;
    const bool negated = skip_name("not");
    auto test = make(ExpressionKind::test, line, std::move(node));
    test->name = parse_dotted_name();
    const Token& next = current();
    const bool has_operand = next.kind == TokenKind::string || next.kind == TokenKind::integer ||
                             next.kind == TokenKind::real || at_symbol("[") || at_symbol("{") ||
                             (next.kind == TokenKind::name && !at_name("else") && !at_name("or") && !at_name("and"));
    if (at_symbol("(")) {
      parse_arguments(*test);
    } else if (has_operand) {
      if (at_name("is")) fail("You cannot chain multiple tests with is");
      test->items.push_back(parse_postfix(parse_primary()));
    }
    return negated ? make(ExpressionKind::logical_not, line, std::move(test)) : std::move(test);
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
  std::vector<std::string> blocks_;  // block names
};

}  // namespace

Body parse_template(std::string_view source) { return Parser(source).parse(); }

}  // namespace megatrain::jinja
