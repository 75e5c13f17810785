// Filters for numbers, and parsing numbers in text like Python.
#pragma once

#include "megatrain/chat/jinja/interpreter.h"

namespace megatrain::jinja {

Value filter_abs(Interpreter&, const Value& value, const Arguments& arguments);
Value filter_int(Interpreter&, const Value& value, const Arguments& arguments);
Value filter_float(Interpreter&, const Value& value, const Arguments& arguments);
Value filter_round(Interpreter&, const Value& value, const Arguments& arguments);

}  // namespace megatrain::jinja
