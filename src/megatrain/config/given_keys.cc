#include "megatrain/config/given_keys.h"

namespace megatrain {

bool GivenKeys::has_value(const std::string& key) const {
  const auto found = own.find(key);
  return found != own.end() && !found->second.value.null;
}

std::string GivenKeys::origin(const std::string& key) const {
  const auto found = own.find(key);
  return found == own.end() ? file : found->second.origin;
}

}  // namespace megatrain
