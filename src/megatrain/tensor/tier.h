// Where bytes live.
#pragma once

#include <cstdint>

namespace megatrain {

// files: the model's own files, which are only read.
enum class Tier : uint8_t { hbm, host, disk, files };

constexpr const char* tier_name(Tier tier) {
  switch (tier) {
    case Tier::hbm: return "hbm";
    case Tier::host: return "host";
    case Tier::disk: return "disk";
    case Tier::files: return "files";
  }
  return "?";
}

}  // namespace megatrain
