// Runs a parsed template: Jinja's scopes and Python's values, as in transformers' sandbox.
#pragma once

#include <algorithm>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatrain/chat/jinja/ast.h"
#include "megatrain/chat/jinja/cost.h"

namespace megatrain::jinja {

// One scope. A loop iteration, a macro call and a with block have their own; an if has none.
struct Frame {
  std::shared_ptr<Frame> parent;
  std::vector<std::pair<std::string, Value>> variables;
};

// What a rendering cost.
struct RenderCost {
  int64_t steps = 0;
  size_t peak_bytes = 0;  // large values held at the same time
};

struct Inputs {
  std::vector<std::pair<std::string, Value>> variables;
  std::tm now = {};                // local time, for strftime_now
  int64_t max_steps = 30'000'000;  // in addition to the weight of its input; stops runaway templates
};

class Interpreter {
 public:
  Interpreter(const Body& body, Inputs inputs);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Text render();                      // throws Raise
  int line() const { return line_; }  // the current line, or where it failed

  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  Value call(const Value& callee, const Arguments& arguments);
  Value apply_filter(const std::string& name, const Value& value, const Arguments& arguments);
  bool apply_test(const std::string& name, const Value& value, const Arguments& arguments);
  // A dict that a template makes. One with a role counts as the message that it was made from.
  Value make_dict(std::vector<std::pair<Value, Value>> entries);
  Value operate(const std::string& op, const Value& a, const Value& b) { return binary(op, a, b); }
  // The meter. All work is counted in steps of about the time it takes to evaluate a name, and all large values in
  // bytes. Operations are charged for what they read before they run (cost.h), and for what they made afterwards. Both
  // raise beyond their limits.
  void spend(size_t steps);
  void touch(size_t bytes) { spend(copy_steps(bytes)); }
  void compare(const Value& a, const Value& b) { touch(std::min(weight(a), weight(b))); }
  RenderCost cost() const { return {.steps = steps_, .peak_bytes = peak_bytes_}; }
  const std::tm& now() const { return inputs_.now; }

  static constexpr size_t kMaxHeldBytes = size_t{128} << 20;

 private:
  enum class Flow { next, break_, continue_ };

  Flow run(const Body& body);
  Flow run(const Statement& statement);
  void run_set(const Statement& statement);
  Flow run_for(const Statement& statement);
  Flow run_loop(const Statement& statement, const Value& over, std::shared_ptr<Frame> outer, int64_t depth);
  Value call_loop(const Loop& loop, const Arguments& arguments);
  void run_call_block(const Statement& statement);
  Text capture(const Body& body);
  void emit(Text text);
  Text text_of(const Value& value);  // str(x), counted
  Value held(Value value);           // counts a value that an operation made
  void hold(std::weak_ptr<const void> owner, size_t bytes);
  void assign(const Expression& target, const Value& value);

  Value evaluate(const Expression& expression);
  Value evaluate_parts(const Expression& expression);
  Value evaluate_dict(const Expression& expression);
  Value evaluate_sign(const Expression& expression);
  Value evaluate_compare(const Expression& expression);
  Value evaluate_slice(const Value& object, const Expression& slice);
  Value evaluate_concat(const Expression& expression);
  Arguments evaluate_arguments(const Expression& expression);
  Value binary(const std::string& op, const Value& a, const Value& b);
  Value add(const Value& a, const Value& b);
  Value lookup(const std::string& name);
  Value* find_variable(std::vector<std::pair<std::string, Value>>& variables, std::string_view name);
  Value call_macro(const Callable& macro, const Arguments& arguments);
  Value make_macro(const MacroNode& node);

  const Body& body_;
  Inputs inputs_;
  std::shared_ptr<Frame> frame_, root_;
  std::vector<std::weak_ptr<Frame>> closures_;  // frames held by macros; emptied at the end, as they form cycles
  Text* out_ = nullptr;
  const Value* block_ = nullptr;  // what a filter or set block wrote
  int32_t turn_ = -1;
  const std::string* index_ = nullptr;  // loop variable of a loop over numbers, so that set can bind a message
  int32_t outer_turn_ = -1;             // turn around that loop
  bool bound_ = false;                  // set bound a message by that index in this iteration
  int line_ = 1;
  int calls_ = 0;
  int64_t steps_ = 0, max_steps_ = 0;
  struct Held {
    std::weak_ptr<const void> owner;
    size_t bytes;
  };
  std::vector<Held> held_;  // large values, some of them already freed
  size_t held_bytes_ = 0, peak_bytes_ = 0;
};

// Matches positional and named arguments to parameters; raises like Python if they do not fit.
class Parameters {
 public:
  Parameters(const Arguments& arguments, std::string_view function, std::initializer_list<std::string_view> names,
             size_t required = 0);
  const Value* operator[](size_t index) const { return values_[index]; }

 private:
  std::vector<const Value*> values_;
};

bool is_filter(std::string_view name);
Value run_filter(Interpreter& interpreter, const std::string& name, const Value& value, const Arguments& arguments);
bool run_test(const std::string& name, const Value& value, const Arguments& arguments);
bool has_method(const Value& object, std::string_view name);
bool changes_object(const Value& object, std::string_view name);  // refused, as in the sandbox
Value run_method(Interpreter& interpreter, const Callable& method, const Arguments& arguments);
bool is_global(std::string_view name);
Value run_global(Interpreter& interpreter, const std::string& name, const Arguments& arguments);

// Python's "…" % values and "…".format(…).
Value format_percent(const Value& format, const Value& values);
Value format_braces(Interpreter& interpreter, const Text& format, const Arguments& arguments);

void set_entry(std::vector<std::pair<Value, Value>>& entries, const Value& key, const Value& value);
Value slice_value(const Value& object, const Value& start, const Value& stop, const Value& step);
Text dump_json(const Value& value, bool ascii, const std::optional<std::string>& indent,
               std::string_view item_separator, std::string_view key_separator, bool sort_keys);

}  // namespace megatrain::jinja
