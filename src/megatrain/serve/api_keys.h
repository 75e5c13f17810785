// Keys that clients have to show: Authorization: Bearer KEY.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace megatrain {

class ApiKeys {
 public:
  ApiKeys() = default;  // none: everybody may ask
  // A file with a key a line; empty lines are skipped. Throws Error(bad_config) if it has none, or one that no header
  // can hold, and Error(bad_input) if it cannot be read.
  static ApiKeys read(const std::string& file);

  bool any() const { return !keys_.empty(); }
  // Whether the Authorization header has one of the keys. Takes as long for a wrong key as for a right one.
  bool allow(std::string_view authorization) const;

 private:
  std::vector<std::string> keys_;
};

}  // namespace megatrain
