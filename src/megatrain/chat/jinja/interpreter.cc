#include "megatrain/chat/jinja/interpreter.h"

#include <algorithm>

#include <fmt/format.h>

namespace megatrain::jinja {
namespace {

constexpr int kMaxCalls = 100;  // nested macro calls

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
    : body_(body), inputs_(std::move(inputs)), frame_(std::make_shared<Frame>()) {
  root_ = frame_;
  constexpr size_t kStepsPerByte = 8;
  constexpr size_t kMostBytes = size_t{1} << 30;
  size_t bytes = 0;
  for (const auto& [name, value] : inputs_.variables) bytes = std::min(bytes + weight(value), kMostBytes);
  max_steps_ = inputs_.max_steps + static_cast<int64_t>(kStepsPerByte * bytes);
}

Interpreter::~Interpreter() {
  for (const auto& closure : closures_) {
    for (auto frame = closure.lock(); frame; frame = frame->parent) frame->variables.clear();
  }
}

Text Interpreter::render() { return capture(body_); }

void Interpreter::spend(size_t steps) {
  if (steps > static_cast<size_t>(max_steps_ - steps_)) {
    raise(fmt::format("the template ran for more than {} steps", max_steps_));
  }
  steps_ += static_cast<int64_t>(steps);
}

Text Interpreter::text_of(const Value& value) {
  if (!value.text()) spend(weight(value));
  return to_text(value);
}

Value Interpreter::held(Value value) {
  constexpr size_t kLarge = size_t{64} << 10, kItemBytes = 128;
  if (const auto* text = value.get<std::shared_ptr<const Text>>()) {
    const size_t bytes = (*text)->weight();
    touch(bytes);
    if (bytes >= kLarge) hold(*text, bytes);
  } else if (const auto* sequence = value.get<std::shared_ptr<Sequence>>()) {
    const size_t bytes = (*sequence)->items.size() * kItemBytes;
    touch(bytes);
    if (bytes >= kLarge) hold(*sequence, bytes);
  } else if (const auto* dict = value.get<std::shared_ptr<const Dict>>()) {
    const size_t bytes = (*dict)->entries.size() * 2 * kItemBytes;
    if (bytes >= kLarge) hold(*dict, bytes);
  }
  return value;
}

// A value that is used repeatedly is counted each time. At the limit, duplicates and freed values are dropped.
void Interpreter::hold(std::weak_ptr<const void> owner, size_t bytes) {
  held_.push_back({std::move(owner), bytes});
  held_bytes_ += bytes;
  if (held_bytes_ <= kMaxHeldBytes && held_.size() < 4096) {
    peak_bytes_ = std::max(peak_bytes_, held_bytes_);
    return;
  }
  std::sort(held_.begin(), held_.end(), [](const Held& a, const Held& b) { return a.owner.owner_before(b.owner); });
  const auto same = [](const Held& a, const Held& b) {
    return !a.owner.owner_before(b.owner) && !b.owner.owner_before(a.owner);
  };
  held_.erase(std::unique(held_.begin(), held_.end(), same), held_.end());
  std::erase_if(held_, [](const Held& one) { return one.owner.expired(); });
  held_bytes_ = 0;
  for (const Held& one : held_) held_bytes_ += one.bytes;
  spend(held_.size());
  peak_bytes_ = std::max(peak_bytes_, held_bytes_);
  if (held_bytes_ > kMaxHeldBytes) {
    raise(fmt::format("the template's values grew past {} bytes", kMaxHeldBytes));
  }
}

Text Interpreter::capture(const Body& body) {
  Text text;
  const Restore restore(out_);
  out_ = &text;
  run(body);
  return text;
}

void Interpreter::emit(Text text) {
  touch(text.weight());
  if (turn_ >= 0) text.stamp_turn(turn_);
  out_->append(text);
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
    case StatementKind::output: emit(text_of(evaluate(*statement.expression))); break;
    case StatementKind::if_:
      for (const auto& [condition, body] : statement.branches) {
        if (truth(evaluate(*condition))) return run(body);
      }
      return run(statement.otherwise);
    case StatementKind::for_: return run_for(statement);
    case StatementKind::set: run_set(statement); break;
    case StatementKind::set_block:
    case StatementKind::filter_block: {
      Value block;
      {
        const Restore restore(frame_);
        frame_ = std::make_shared<Frame>(Frame{.parent = frame_});
        block = held(Value::of(capture(statement.body)));
      }
      const Restore restore(block_);
      block_ = &block;
      const Value value = statement.expression ? evaluate(*statement.expression) : block;
      if (statement.kind == StatementKind::set_block) {
        assign(*statement.target, value);
      } else {
        emit(text_of(value));
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
    case StatementKind::block: {  // sees variables set outside all loops, unless it is scoped
      const Restore restore(frame_);
      frame_ = std::make_shared<Frame>(Frame{.parent = statement.scoped ? frame_ : root_});
      return run(statement.body);
    }
    case StatementKind::break_: return Flow::break_;
    case StatementKind::continue_: return Flow::continue_;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::run_for(const Statement& statement) {
  return run_loop(statement, evaluate(*statement.expression), frame_, 0);
}

// In a loop over numbers, messages[i] is the message of the iteration, and messages[i - 1] is only looked at.
void Interpreter::run_set(const Statement& statement) {
  const Expression& from = *statement.expression;
  const Value value = evaluate(from);
  const bool own = index_ && from.kind == ExpressionKind::item && from.items[1]->kind == ExpressionKind::name &&
                   from.items[1]->name == *index_;
  if (own && value.as_dict() && value.as_dict()->message >= 0) {
    turn_ = std::max(outer_turn_, value.as_dict()->message);
    bound_ = true;
  }
  assign(*statement.target, value);
}

Value Interpreter::call_loop(const Loop& loop, const Arguments& arguments) {
  if (!loop.recursive) raise("The loop must have the 'recursive' marker to be called.");
  const Parameters p(arguments, "loop", {"iterable"}, 1);
  if (++calls_ > kMaxCalls) raise(fmt::format("macros and loops call each other more than {} deep", kMaxCalls));
  const Restore restore_line(line_);
  Text text;
  {
    const Restore restore(out_);
    out_ = &text;
    run_loop(*loop.recursive, *p[0], loop.outer, loop.depth + 1);
  }
  --calls_;
  return Value::of(std::move(text));
}

Interpreter::Flow Interpreter::run_loop(const Statement& statement, const Value& over, std::shared_ptr<Frame> outer,
                                        int64_t depth) {
  spend(iterate_steps(over));
  std::vector<Value> items = iterate(over);
  spend(items.size());
  const Restore restore_frame(frame_);
  const Restore restore_turn(turn_);
  const Restore restore_index(index_);
  const Restore restore_outer_turn(outer_turn_);
  const Restore restore_bound(bound_);
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
  loop->depth = depth;
  if (statement.recursive) {
    loop->recursive = &statement;
    loop->outer = outer;
  }
  if (loop->items.size() > 1000) hold(std::weak_ptr<const Loop>(loop), loop->items.size() * sizeof(Value));
  const int32_t outer_turn = turn_;
  const bool named = statement.target->kind == ExpressionKind::name;
  for (size_t i = 0; i < loop->items.size(); ++i) {
    loop->index = i;
    const Value& item = loop->items[i];
    const Dict* dict = item.as_dict();
    turn_ = std::max(outer_turn, dict ? dict->message : -1);  // a turn may look back at messages to quote them
    index_ = named && item.get<int64_t>() ? &statement.target->name : nullptr;
    outer_turn_ = outer_turn;
    bound_ = false;
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
  emit(text_of(call(callee, arguments)));
}

void Interpreter::assign(const Expression& target, const Value& value) {
  if (target.kind == ExpressionKind::tuple) {
    spend(iterate_steps(value));
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
    Value::list({value});  // raises for values that must not be stored
    auto& attributes = (*space)->attributes;
    if (Value* known = find_variable(attributes, target.attribute)) {
      *known = value;
    } else {
      attributes.emplace_back(target.attribute, value);
    }
    return;
  }
  if (index_ && !bound_ && value.as_dict()) turn_ = std::max(turn_, value.as_dict()->message);
  if (Value* known = find_variable(frame_->variables, target.name)) {
    *known = value;
  } else {
    frame_->variables.emplace_back(target.name, value);
  }
}

// Null if there is none. A template may have as many variables as it has bytes, so every comparison is charged.
Value* Interpreter::find_variable(std::vector<std::pair<std::string, Value>>& variables, std::string_view name) {
  constexpr size_t kLookBytes = 4;
  size_t bytes = kLookBytes;
  Value* found = nullptr;
  for (auto variable = variables.begin(); variable != variables.end() && !found; ++variable) {
    bytes += kLookBytes + (variable->first.size() == name.size() ? name.size() : 0);
    if (variable->first == name) found = &variable->second;
  }
  touch(bytes);
  return found;
}

Value Interpreter::lookup(const std::string& name) {
  for (Frame* frame = frame_.get(); frame; frame = frame->parent.get()) {
    if (const Value* known = find_variable(frame->variables, name)) return *known;
  }
  if (const Value* known = find_variable(inputs_.variables, name)) return *known;
  if (is_global(name)) return {std::make_shared<const Callable>(Callable{.kind = CallableKind::global, .name = name})};
  return Value::undefined(fmt::format("'{}' is undefined", name));
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (const Undefined* undefined = callee.get<Undefined>()) raise(*undefined->message);
  if (const auto* loop = callee.get<std::shared_ptr<Loop>>()) return call_loop(**loop, arguments);
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
  if (++calls_ > kMaxCalls) raise(fmt::format("macros and loops call each other more than {} deep", kMaxCalls));
  const Restore restore_frame(frame_);
  const Restore restore_line(line_);
  const auto frame = std::make_shared<Frame>(Frame{.parent = callable.closure});
  frame_ = frame;
  const size_t count = macro.parameters.size();
  spend(count * arguments.named.size() / 8);
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
  spend(filter_steps(name, value, arguments));
  return held(run_filter(*this, name, value, arguments));
}

bool Interpreter::apply_test(const std::string& name, const Value& value, const Arguments& arguments) {
  if (!arguments.positional.empty()) {
    const Value& other = arguments.positional[0];
    name == "in" ? spend(contains_steps(other, value)) : compare(value, other);
  }
  if (value.text()) touch(weight(value));
  if (name == "lower" || name == "upper") spend(weight(value));
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
