// Filters that lay text out: truncate, wordcount, center, urlencode, pprint.
#pragma once

#include "megatrain/chat/jinja/interpreter.h"

namespace megatrain::jinja {

Value filter_truncate(Interpreter&, const Value& value, const Arguments& arguments);
Value filter_wordcount(Interpreter&, const Value& value, const Arguments& arguments);
Value filter_center(Interpreter&, const Value& value, const Arguments& arguments);
Value filter_urlencode(Interpreter&, const Value& value, const Arguments& arguments);
Value filter_pprint(Interpreter&, const Value& value, const Arguments& arguments);

}  // namespace megatrain::jinja
