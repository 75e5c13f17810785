// What each operation costs, by the bytes that it reads, in steps of the interpreter's meter. All costs are here.
//
// A step is about 50 ns. The rates below were measured, so that a million steps take about the same time whatever they
// are spent on. A slow operation that is charged too little could block a server for minutes.
#pragma once

#include <cstddef>
#include <string_view>

#include "megatrain/chat/jinja/value.h"

namespace megatrain::jinja {

constexpr size_t copy_steps(size_t bytes) { return bytes / 32; }       // in blocks: copied, compared, counted
constexpr size_t search_steps(size_t bytes) { return bytes / 4; }      // byte by byte
constexpr size_t character_steps(size_t bytes) { return bytes; }       // decoded and written again
constexpr size_t take_apart_steps(size_t bytes) { return 8 * bytes; }  // one value per character

size_t iterate_steps(const Value& value);                          // iterate()
size_t contains_steps(const Value& container, const Value& item);  // contains()
size_t find_steps(const Dict& dict, size_t key_bytes);             // find()
size_t slice_steps(const Value& object, bool with_step);           // slice_value()
size_t filter_steps(std::string_view name, const Value& value, const Arguments& arguments);
size_t method_steps(const Callable& method, const Arguments& arguments);

// Bytes of the value without its contents.
size_t shallow_weight(const Value& value);

}  // namespace megatrain::jinja
