#include "megatrain/model/parts/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "megatrain/base/error.h"

namespace megatrain {

ConfigReader::ConfigReader(const nlohmann::json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  if (!object.is_object()) fail_input(fmt::format("{} is {}; it must be an object", where_, object.dump()));
}

void ConfigReader::refuse_null(const char* key) const {
  if (object_.contains(key) && at(key).is_null())
    fail_input(
        fmt::format("{}: '{}' is null, which transformers refuses; write its value, or remove the field", where_, key));
}

int64_t ConfigReader::positive(const char* key, int64_t absent, int64_t most) const {
  if (!has(key)) {
    if (absent > 0) return absent;
    fail_input(fmt::format("{}: '{}' is missing; it must be a positive integer", where_, key));
  }
  const nlohmann::json& value = at(key);
  if (!value.is_number_integer() || value < 1 || value > most)
    fail_input(fmt::format("{}: '{}' is {}; it must be an integer from 1 to {}", where_, key, value.dump(), most));
  return value.get<int64_t>();
}

int64_t ConfigReader::not_negative(const char* key, int64_t absent) const {
  return has(key) && at(key) == 0 && at(key).is_number_integer() ? 0 : positive(key, absent);
}

double ConfigReader::number(const char* key, double absent) const {
  if (!has(key)) return absent;
  const nlohmann::json& value = at(key);
  if (!value.is_number()) fail_input(fmt::format("{}: '{}' is {}; it must be a number", where_, key, value.dump()));
  const double read = value.get<double>();
  if (!(std::abs(read) <= std::numeric_limits<float>::max()))
    fail_input(fmt::format("{}: '{}' is {}; it must be a number that float32 holds", where_, key, value.dump()));
  return read;
}

double ConfigReader::positive_number(const char* key, double absent) const {
  const double value = number(key, absent);
  if (!(value > 0)) fail_input(fmt::format("{}: '{}' is {}; it must be a number above 0", where_, key, value));
  if (value < std::numeric_limits<float>::min())
    fail_input(fmt::format("{}: '{}' is {}, which is 0 in float32; it must be a number above 0", where_, key, value));
  return value;
}

bool ConfigReader::boolean(const char* key, bool absent) const {
  if (absent && object_.contains(key) && !has(key))  // transformers takes null for false
    fail_input(fmt::format("{}: '{}' is null, which transformers refuses or takes for false; write true or false",
                           where_, key));
  if (!has(key)) return absent;
  const nlohmann::json& value = at(key);
  if (!value.is_boolean())
    fail_input(fmt::format("{}: '{}' is {}; it must be true or false", where_, key, value.dump()));
  return value.get<bool>();
}

std::string ConfigReader::string(const char* key, const std::string& absent) const {
  if (!has(key)) return absent;
  const nlohmann::json& value = at(key);
  if (!value.is_string()) fail_input(fmt::format("{}: '{}' is {}; it must be a string", where_, key, value.dump()));
  return value.get<std::string>();
}

void refuse_unknown_field(const ConfigReader& object, const std::string& key) {
  fail_input(
      fmt::format("{}: field '{}' is {}: megatrain does not know this field, and ignoring it could change the model; "
                  "if it does not change the model's maths, remove it from the file",
                  object.where(), key, object.at(key.c_str()).dump().substr(0, 80)));
}

void check_fields_of(const ConfigReader& object, const std::vector<std::string>& known) {
  for (const auto& [key, value] : object.object().items()) {
    if (!value.is_null() && std::ranges::count(known, key) == 0) refuse_unknown_field(object, key);
  }
}

}  // namespace megatrain
