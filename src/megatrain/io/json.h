// nlohmann's JSON; include this instead of <nlohmann/json.hpp>. Its members are compiled once, in json.cc and
// ordered_json.cc. Without these declarations every file that uses a JSON value would compile the parser, printer and
// destructor again, which is most of the time of a sanitizer build.
#pragma once

#include <string>
#include <type_traits>

#include <nlohmann/json.hpp>

// parse is specialised because `extern` is not enough: g++ still compiles inline members, here the whole parser.
#define MEGATRAIN_JSON_PARSE(Json, Input) \
  template <>                             \
  template <>                             \
  Json Json::parse<Input>(std::add_rvalue_reference_t<Input>, Json::parser_callback_t, bool, bool);
#define MEGATRAIN_JSON(Json)                                                                              \
  extern template class Json;                                                                             \
  MEGATRAIN_JSON_PARSE(Json, std::string)                                                                 \
  MEGATRAIN_JSON_PARSE(Json, std::string&)                                                                \
  MEGATRAIN_JSON_PARSE(Json, const std::string&)                                                          \
  template <>                                                                                             \
  template <>                                                                                             \
  Json Json::parse<std::string::const_iterator>(std::string::const_iterator, std::string::const_iterator, \
                                                Json::parser_callback_t, bool, bool);

MEGATRAIN_JSON(nlohmann::basic_json<>)
MEGATRAIN_JSON(nlohmann::basic_json<nlohmann::ordered_map>)
