// Typed access to the fields of a config.json; every error names the file, the field and its value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatrain/io/json.h"

namespace megatrain {

// Where a value may be absent, null means the same as absent. All functions throw Error(bad_input).
class ConfigReader {
 public:
  // `where` names the object in errors. The object must outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string where);

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const nlohmann::json& at(const char* key) const { return object_.at(key); }
  const nlohmann::json& object() const { return object_; }
  const std::string& where() const { return where_; }

  // For a field that may be absent but that transformers refuses if it is null.
  void refuse_null(const char* key) const;

  // `absent` 0: the field is required.
  int64_t positive(const char* key, int64_t absent = 0, int64_t most = int64_t{1} << 40) const;
  int64_t not_negative(const char* key, int64_t absent) const;
  double number(const char* key, double absent) const;
  double positive_number(const char* key, double absent) const;
  bool boolean(const char* key, bool absent) const;
  std::string string(const char* key, const std::string& absent) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

[[noreturn]] void refuse_unknown_field(const ConfigReader& object, const std::string& key);

// Refuses fields of a nested object that are not in `known`. An unknown field that is null enables nothing.
void check_fields_of(const ConfigReader& object, const std::vector<std::string>& known);

}  // namespace megatrain
