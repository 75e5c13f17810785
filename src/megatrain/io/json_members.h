// Compiles the members that json.h declares for one JSON type. Use MEGATRAIN_JSON_MEMBERS(Json) in one source file
// each.
#pragma once

#include <memory>
#include <utility>

#include "megatrain/io/json.h"

#define MEGATRAIN_JSON_PARSE_MEMBER(Json, Input)                                                      \
  template <>                                                                                         \
  template <>                                                                                         \
  Json Json::parse<Input>(std::add_rvalue_reference_t<Input> text, Json::parser_callback_t callback,  \
                          bool allow_exceptions, bool ignore_comments) {                              \
    return Json::parse(text.data(), text.data() + text.size(), std::move(callback), allow_exceptions, \
                       ignore_comments);                                                              \
  }
#define MEGATRAIN_JSON_MEMBERS(Json)                                                                                 \
  template class Json;                                                                                               \
  MEGATRAIN_JSON_PARSE_MEMBER(Json, std::string)                                                                     \
  MEGATRAIN_JSON_PARSE_MEMBER(Json, std::string&)                                                                    \
  MEGATRAIN_JSON_PARSE_MEMBER(Json, const std::string&)                                                              \
  template <>                                                                                                        \
  template <>                                                                                                        \
  Json Json::parse<std::string::const_iterator>(std::string::const_iterator first, std::string::const_iterator last, \
                                                Json::parser_callback_t callback, bool allow_exceptions,             \
                                                bool ignore_comments) {                                              \
    return Json::parse(std::to_address(first), std::to_address(last), std::move(callback), allow_exceptions,         \
                       ignore_comments);                                                                             \
  }
