// Where bytes live.
#pragma once

#include <cstdint>

namespace megatrain {

enum class Tier : uint8_t { hbm, host, disk };

constexpr const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::hbm: return "hbm";
    case Tier::host: return "host";
    case Tier::disk: return "disk";
  }
  return "?";
}

}  // namespace megatrain
