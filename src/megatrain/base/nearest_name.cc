#include "megatrain/base/nearest_name.h"

namespace megatrain {

void NearestName::consider(const std::string& known, const std::string& suggestion) {
  const int64_t distance = distance_(written_, known);
  if (distance >= beyond_) return;
  beyond_ = distance;
  found_ = suggestion;
}

}  // namespace megatrain
