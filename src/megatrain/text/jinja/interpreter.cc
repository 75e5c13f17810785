#include "megatrain/text/jinja/interpreter.h"

#include <algorithm>

#include <fmt/format.h>

namespace megatrain::jinja {
namespace {

constexpr int kMaxCalls = 100;  // of macros, one inside another

template <class T>
class Restore {
 public:
  explicit Restore(T& place) : place_(place), value_(place) {}
  ~Restore() { place_ = std::move(value_); }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& place_;
  T value_;
};

}  // namespace

Interpreter::Interpreter(const Body& body, Inputs inputs)
    : body_(body), inputs_(std::move(inputs)), frame_(std::make_shared<Frame>()) {}

Interpreter::~Interpreter() {
  for (const auto& closure : closures_) {
    for (auto frame = closure.lock(); frame; frame = frame->parent) frame->variables.clear();
  }
}

Text Interpreter::render() { return capture(body_); }

void Interpreter::spend(size_t steps) {
  steps_ += static_cast<int64_t>(steps);
  if (steps_ > inputs_.max_steps) raise(fmt::format("the template ran for more than {} steps", inputs_.max_steps));
}

Text Interpreter::capture(const Body& body) {
  Text text;
  const Restore restore(out_);
  out_ = &text;
  run(body);
  return text;
}

void Interpreter::emit(Text text) {
  spend(text.size() / 64);
  if (turn_ >= 0) text.stamp_turn(turn_);
  out_->append(text);
  if (out_->size() > kMaxTextBytes) raise(fmt::format("the output grew past {} bytes", kMaxTextBytes));
}

Interpreter::Flow Interpreter::run(const Body& body) {
  for (const auto& statement : body) {
    const Flow flow = run(*statement);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run(const Statement& statement) {
  line_ = statement.line;
  spend(1);
  switch (statement.kind) {
    case StatementKind::data: emit(statement.data); break;
    case StatementKind::output: emit(to_text(evaluate(*statement.expression))); break;
    case StatementKind::if_:
      for (const auto& [condition, body] : statement.branches) {
        if (truth(evaluate(*condition))) return run(body);
      }
      return run(statement.otherwise);
    case StatementKind::for_: return run_for(statement);
    case StatementKind::set: assign(*statement.target, evaluate(*statement.expression)); break;
    case StatementKind::set_block:
    case StatementKind::filter_block: {
      Value block;
      {
        const Restore restore(frame_);
        frame_ = std::make_shared<Frame>(Frame{.parent = frame_});
        block = Value::of(capture(statement.body));
      }
      const Restore restore(block_);
      block_ = &block;
      const Value value = statement.expression ? evaluate(*statement.expression) : block;
      if (statement.kind == StatementKind::set_block) {
        assign(*statement.target, value);
      } else {
        emit(to_text(value));
      }
      break;
    }
    case StatementKind::macro: {
      const Value macro = make_macro(*statement.macro);
      Expression target{.kind = ExpressionKind::name, .line = statement.line, .name = statement.macro->name};
      assign(target, macro);
      break;
    }
    case StatementKind::call_block: run_call_block(statement); break;
    case StatementKind::with: {
      std::vector<Value> values;
      for (const auto& value : statement.values) values.push_back(evaluate(*value));
      const Restore restore(frame_);
      frame_ = std::make_shared<Frame>(Frame{.parent = frame_});
      for (size_t i = 0; i < values.size(); ++i) assign(*statement.branches[i].first, values[i]);
      return run(statement.body);
    }
    case StatementKind::generation: {
      const Restore restore(frame_);
      frame_ = std::make_shared<Frame>(Frame{.parent = frame_});
      Text text = capture(statement.body);
      text.stamp_generation();
      emit(std::move(text));
      break;
    }
    case StatementKind::break_: return Flow::break_;
    case StatementKind::continue_: return Flow::continue_;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_for(const Statement& statement) {
  std::vector<Value> items = iterate(evaluate(*statement.expression));
  spend(items.size());
  const Restore restore_frame(frame_);
  const Restore restore_turn(turn_);
  const Restore restore_indices(over_indices_);
  const std::shared_ptr<Frame> outer = frame_;
  if (statement.condition) {
    std::vector<Value> kept;
    for (Value& item : items) {
      frame_ = std::make_shared<Frame>(Frame{.parent = outer});
      assign(*statement.target, item);
      if (truth(evaluate(*statement.condition))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    frame_ = std::make_shared<Frame>(Frame{.parent = outer});
    return run(statement.otherwise);
  }
  const auto loop = std::make_shared<Loop>();
  loop->items = std::move(items);
  const int32_t outer_turn = turn_;
  for (size_t i = 0; i < loop->items.size(); ++i) {
    loop->index = i;
    const Value& item = loop->items[i];
    const Dict* dict = item.as_dict();
    turn_ = dict && dict->message >= 0 ? dict->message : outer_turn;
    over_indices_ = item.get<int64_t>() != nullptr;
    frame_ = std::make_shared<Frame>(Frame{.parent = outer, .variables = {{"loop", Value{loop}}}});
    assign(*statement.target, item);
    if (run(statement.body) == Flow::break_) break;
  }
  return Flow::next;
}

void Interpreter::run_call_block(const Statement& statement) {
  const Value callee = evaluate(*statement.expression->items[0]);
  Arguments arguments = evaluate_arguments(*statement.expression);
  arguments.named.emplace_back("caller", make_macro(*statement.macro));
  emit(to_text(call(callee, arguments)));
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::tuple) {
    const auto items = iterate(value);
    if (items.size() != target.items.size()) {
      raise(fmt::format("{} values to unpack (expected {}, got {})",
                        items.size() > target.items.size() ? "too many" : "not enough", target.items.size(),
                        items.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(*target.items[i], items[i]);
    return;
  }
  if (target.kind == ExpressionKind::namespace_field) {
    const Value held = lookup(target.name);
    const auto* space = held.get<std::shared_ptr<Namespace>>();
    if (!space) raise("cannot assign attribute on non-namespace object");
    if (target.attribute.starts_with("_")) {
      raise("Chat templates cannot store underscore-prefixed attributes on a namespace, but got " +
            show_string(target.attribute));
    }
    Value::list({value});  // refuses what may not be inside
    auto& attributes = (*space)->attributes;
    const auto found = std::find_if(attributes.begin(), attributes.end(),
                                    [&](const auto& attribute) { return attribute.first == target.attribute; });
    if (found == attributes.end()) {
      attributes.emplace_back(target.attribute, value);
    } else {
      found->second = value;
    }
    return;
  }
  if (over_indices_ && value.as_dict() && value.as_dict()->message >= 0) turn_ = value.as_dict()->message;
  auto& variables = frame_->variables;
  const auto found = std::find_if(variables.begin(), variables.end(),
                                  [&](const auto& variable) { return variable.first == target.name; });
  if (found == variables.end()) {
    variables.emplace_back(target.name, value);
  } else {
    found->second = value;
  }
}

Value Interpreter::lookup(const std::string& name) const {
  for (const Frame* frame = frame_.get(); frame; frame = frame->parent.get()) {
    for (const auto& [variable, value] : frame->variables) {
      if (variable == name) return value;
    }
  }
  for (const auto& [variable, value] : inputs_.variables) {
    if (variable == name) return value;
  }
  if (is_global(name)) return {std::make_shared<const Callable>(Callable{.kind = CallableKind::global, .name = name})};
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (const Undefined* undefined = callee.get<Undefined>()) raise(*undefined->message);
  const auto* held = callee.get<std::shared_ptr<const Callable>>();
  if (!held) raise(fmt::format("'{}' object is not callable", type_name(callee)));
  const Callable& callable = **held;
  switch (callable.kind) {
    case CallableKind::global: return run_global(*this, callable.name, arguments);
    case CallableKind::method: return run_method(*this, callable, arguments);
    case CallableKind::macro: break;
  }
  return call_macro(callable, arguments);
}

Value Interpreter::make_macro(const MacroNode& node) {
  closures_.push_back(frame_);
  return {std::make_shared<const Callable>(
      Callable{.kind = CallableKind::macro, .name = node.name, .macro = &node, .closure = frame_})};
}

Value Interpreter::call_macro(const Callable& callable, const Arguments& arguments) {
  const MacroNode& macro = *callable.macro;
  if (++calls_ > kMaxCalls) raise(fmt::format("macros call each other more than {} deep", kMaxCalls));
  const Restore restore_frame(frame_);
  const Restore restore_line(line_);
  const auto frame = std::make_shared<Frame>(Frame{.parent = callable.closure});
  frame_ = frame;
  const size_t count = macro.parameters.size();
  auto named = arguments.named;
  const auto take_named = [&](const std::string& name) -> std::optional<Value> {
    const auto found =
        std::find_if(named.begin(), named.end(), [&](const auto& argument) { return argument.first == name; });
    if (found == named.end()) return std::nullopt;
    Value value = std::move(found->second);
    named.erase(found);
    return value;
  };
  for (size_t i = 0; i < count; ++i) {
    const std::string& parameter = macro.parameters[i];
    std::optional<Value> value = i < arguments.positional.size() ? arguments.positional[i] : take_named(parameter);
    if (!value) {
      const size_t first_default = count - macro.defaults.size();
      value = i >= first_default ? evaluate(*macro.defaults[i - first_default])
                                 : Value::undefined(fmt::format("parameter '{}' was not provided", parameter));
    }
    frame->variables.emplace_back(parameter, std::move(*value));
  }
  if (macro.uses_caller &&
      std::find(macro.parameters.begin(), macro.parameters.end(), "caller") == macro.parameters.end()) {
    frame->variables.emplace_back("caller", take_named("caller").value_or(Value::undefined("No caller defined")));
  }
  if (macro.uses_kwargs) {
    std::vector<std::pair<Value, Value>> entries;
    for (const auto& [name, value] : named) entries.emplace_back(Value::of(name), value);
    frame->variables.emplace_back("kwargs", Value::dict(std::move(entries)));
  } else if (!named.empty()) {
    raise(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, named.front().first));
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < arguments.positional.size(); ++i) rest.push_back(arguments.positional[i]);
    frame->variables.emplace_back("varargs", Value::list(std::move(rest), SequenceKind::tuple));
  } else if (arguments.positional.size() > count) {
    raise(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, count));
  }
  Value result = Value::of(capture(macro.body));
  --calls_;
  return result;
}

Value Interpreter::apply_filter(const std::string& name, const Value& value, const Arguments& arguments) {
  if (!is_filter(name)) raise(fmt::format("No filter named '{}'.", name));
  spend(value.text() ? value.text()->size() / 64 : 1);
  return run_filter(*this, name, value, arguments);
}

bool Interpreter::apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  return run_test(name, value, arguments);
}

Parameters::Parameters(const Arguments& arguments, std::string_view function,
                       std::initializer_list<std::string_view> names, size_t required)
    : values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    raise(
        fmt::format("{}() takes at most {} arguments ({} given)", function, names.size(), arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) raise(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    const Value*& place = values_[static_cast<size_t>(found - names.begin())];
    if (place) raise(fmt::format("{}() got multiple values for argument '{}'", function, name));
    place = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) raise(fmt::format("{}() missing required argument '{}'", function, *(names.begin() + i)));
  }
}

}  // namespace megatrain::jinja
